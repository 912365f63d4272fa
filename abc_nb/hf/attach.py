"""A bias on the attention of a causal language model of `transformers`, through its AttentionInterface.

While a bias is attached, every layer's attention goes through `biased_attention`, this package's own attention with
the layer's bias. The bias holds the causal mask too.
"""

from __future__ import annotations

import json
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from abc_nb.bias import Bias, Line
from abc_nb.common.config import classes, from_data
from abc_nb.common.errors import InputError
from abc_nb.hf.attention import NAME, register
from abc_nb.hf.handle import FILE, Attached, Setting
from abc_nb.hf.probe import check_model, prove
from abc_nb.hf.rows import as_layouts
from abc_nb.hf.sequences import OfProblem, OfText
from abc_nb.hf.text import Reader
from abc_nb.problems.layouts import Layout, Operand
from abc_nb.problems.spans import Pattern
from abc_nb.problems.tasks import Task

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


def attach(
    model: PreTrainedModel,
    bias: Bias,
    layout: Any = None,
    period: int | None = None,
    spans: PreTrainedTokenizerBase | None = None,
) -> Attached:
    """Put a bias on a model's attention, until the handle that is returned is detached or its `with` block ends.

    A bias of problems alone takes their `layout`, or one for each row of a batch. Set the handle's `layout` before
    other problems. With a `period` the model's `position_ids` are cyclic, whatever is passed. A bias of text with
    problems in it, as `SpanLines`, takes the tokenizer, as `spans`: problems are found in every row, also while text is
    generated. Positions are those of the bias, whatever is passed.

    Rows can have padding on the left or on the right, as the `attention_mask` says. Training, evaluation and `generate`
    with or without its cache work; of a problem alone, the prompt is the problem and the answer's first token. Long
    problems go through FlexAttention where it can do what the dense matrix does. Several threads can use the model; a
    thread with other layouts takes them by `with handle.lent(layout=...)`.

    A few tokens are run to see that the bias acts: a zero bias changes nothing, a closed key has no influence on the
    logits, and no token sees one that comes after it. Raises InputError for a model of which that does not hold, which
    has a bias already or has a sliding window, for a bias of other heads, and for a tokenizer that merges digits.
    """
    check_model(model)
    if attached(model) is not None:
        raise InputError("this model has a bias already: detach it first, with hf.attached(model).detach()")
    setting = setting_of(bias, layout, period, spans)
    register()
    handle = Attached(model, setting)
    try:
        prove(model, handle)
        if setting.places_tokens and "position_ids" not in handle.names:
            raise InputError(f"{type(model).__name__} takes no position_ids: its tokens stand where it counts them")
        first = OfText(bias, ()) if setting.reader is not None else OfProblem(bias, setting.layout[0], period)
        first.rows(0, torch.empty(1, handle.heads, 1, 1), 0, 1)  # InputError for other heads, and for another kind
        first.positions(1)
    except BaseException:
        handle.detach()
        raise
    return handle


def setting_of(bias: Bias, layout: Any, period: int | None, spans: PreTrainedTokenizerBase | None) -> Setting:
    """What `attach` was asked for; InputError for what does not go together."""
    if not isinstance(bias, Bias):
        raise InputError(f"give a bias of this package, not {bias!r}")
    if spans is None:
        return Setting(bias, as_layouts(layout), period)
    if layout is not None or period is not None:
        raise InputError("a bias of text takes its tokenizer alone: attach(model, bias, spans=tokenizer)")
    return Setting(bias, (), None, Reader(spans, bias.patterns))


def load(folder: str | Path) -> PreTrainedModel:
    """A causal language model that was saved under its bias, with the bias on it; InputError for one without a bias."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    file = Path(folder) / FILE
    if not file.exists():
        raise InputError(f"there is no {file}: save a model while its bias is attached, by its save_pretrained")
    data = json.loads(file.read_text(encoding="utf-8"))
    known = [*classes(Bias).values(), Line, Pattern, Task, Layout, Operand]
    bias, layout = (from_data(data[name], known) for name in ("bias", "layout"))
    model = AutoModelForCausalLM.from_pretrained(folder)
    attach(model, bias, layout or None, data["period"], AutoTokenizer.from_pretrained(folder) if data["text"] else None)
    return model.eval()


def attached(model: nn.Module) -> Attached | None:
    """The handle of the bias that is on a model, or None."""
    return next((vars(module)[NAME].handle for module in model.modules() if NAME in vars(module)), None)


def under_own(model: PreTrainedModel, layout: Any) -> AbstractContextManager[Attached]:
    """The handle of the bias that is on a model, or of one of zero for a `with` block."""
    own = attached(model)
    return attach(model, Bias(), layout) if own is None else nullcontext(own)
