"""The bias on a model in a file beside the model's own, from which it is attached again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from abc_nb.bias import Bias, Line
from abc_nb.common.collect import classes
from abc_nb.common.config import from_data, to_data
from abc_nb.common.errors import InputError
from abc_nb.common.files import write_text
from abc_nb.problems.layouts import Layout, Operand
from abc_nb.problems.spans import Pattern
from abc_nb.problems.tasks import Task

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from abc_nb.hf.attach import Attached

FILE = "abc_nb.json"


def save(handle: Attached, folder: str | Path, *args: Any, **more: Any) -> None:
    """What `save_pretrained` of a model under a bias does: the model, its bias and the tokenizer of a text's tokens."""
    type(handle.model).save_pretrained(handle.model, folder, *args, **more)
    if handle.reader is not None:
        handle.reader.tokenizer.save_pretrained(folder)
    data = {name: to_data(getattr(handle, name)) for name in ("bias", "layout", "period")}
    write_text(Path(folder) / FILE, json.dumps(data | {"text": handle.reader is not None}, indent=1) + "\n")


def load(folder: str | Path, **more: Any) -> PreTrainedModel:
    """A causal language model that was saved under its bias, with the bias on it.

    `more` goes to `from_pretrained`. InputError for a folder without a bias.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from abc_nb.hf.attach import attach

    file = Path(folder) / FILE
    if not file.exists():
        raise InputError(f"there is no {file}: save a model while its bias is attached, by its save_pretrained")
    data = json.loads(file.read_text(encoding="utf-8"))
    known = [*classes(Bias).values(), Line, Pattern, Task, Layout, Operand]
    own = {name: from_data(data[name], known) for name in ("bias", "layout")}
    model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(folder, **more)
    tokenizer = AutoTokenizer.from_pretrained(folder) if data["text"] else None
    attach(model, own["bias"], own["layout"] or None, data["period"], tokenizer)
    return model.eval()
