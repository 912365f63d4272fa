"""A bias on the attention of a causal language model of `transformers`, through its AttentionInterface.

While a bias is attached, every layer's attention goes through `biased_attention`, this package's own attention with
the layer's bias. The bias holds the causal mask too. It lives on the model's attention modules: each gets a copy of
its configuration, which names that attention, so that other models of the same configuration stay as they are.
"""

from __future__ import annotations

import copy
import inspect
import json
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from abc_nb.bias import Bias, Line
from abc_nb.bias.sequence import cyclic_positions, of_heads
from abc_nb.bias.spans import SpanLines
from abc_nb.common.config import classes, from_data, to_data
from abc_nb.common.errors import InputError
from abc_nb.common.files import write_text
from abc_nb.hf.attention import LONG, NAME, register
from abc_nb.hf.probe import check_model, prove
from abc_nb.hf.rows import Rows, real_tokens, rows_of_layouts, values
from abc_nb.hf.text import Finish, Reader, rows_of_text
from abc_nb.problems.layouts import Layout, Operand
from abc_nb.problems.spans import Pattern
from abc_nb.problems.tasks import Task

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

Layouts = Layout | Sequence[Layout]
FILE = "abc_nb.json"  # of the bias, beside a saved model


def attach(
    model: PreTrainedModel,
    bias: Bias,
    layout: Layouts | None = None,
    period: int | None = None,
    spans: PreTrainedTokenizerBase | None = None,
) -> Attached:
    """Put a bias on a model's attention, until the handle that is returned is detached or its `with` block ends.

    A bias of problems alone takes their `layout`, or one for each row of a batch. Set the handle's `layout` before
    other problems. With a `period` the model's `position_ids` are cyclic, whatever is passed. A bias of text with
    problems in it, `SpanLines`, takes the tokenizer, as `spans`: problems are found in every row, also while text is
    generated. Positions are those of the bias, whatever is passed.

    Rows can have padding on the left or on the right, as the `attention_mask` says. Training, evaluation and `generate`
    with or without its cache work; of a problem alone, the prompt is the problem and the answer's first token. Long
    problems go through FlexAttention where it can do what the dense matrix does.

    A few tokens are run to see that the bias acts: a zero bias changes nothing, a closed key has no influence on the
    logits, and no token sees one that comes after it. Raises InputError for a model of which that does not hold, which
    has a bias already or has a sliding window, for a bias of other heads, and for a tokenizer that merges digits.
    """
    check_model(model)
    if attached(model) is not None:
        raise InputError("this model has a bias already: detach it first, with hf.attached(model).detach()")
    reader, layouts = None, tuple[Layout, ...]()
    if isinstance(bias, SpanLines):
        if spans is None or layout is not None or period is not None:
            raise InputError(
                "a bias of text with problems in it takes its tokenizer alone: attach(model, bias, spans=tokenizer)"
            )
        reader = Reader(spans, bias.patterns)
    else:
        layouts = as_layouts(layout)
        if not isinstance(bias, Bias):
            raise InputError(f"give a bias of this package, not {bias!r}")
        if period is not None:
            cyclic_positions(layouts[0], period)
    register()
    handle = Attached(model, bias, layouts, period, reader)
    try:
        prove(model, handle)
        if (period is not None or reader is not None) and "position_ids" not in handle.names:
            raise InputError(f"{type(model).__name__} takes no position_ids: its tokens stand where it counts them")
        if isinstance(bias, SpanLines):
            of_heads(torch.empty(bias.heads, 1, 1), handle.heads)
        else:
            values(bias, layouts[0], 0, handle.heads)  # InputError for other heads
    except BaseException:
        handle.detach()
        raise
    handle.model.save_pretrained = handle.save
    return handle


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
    return next((vars(module)[NAME] for module in model.modules() if NAME in vars(module)), None)


def under_own(model: PreTrainedModel, layout: Layouts) -> AbstractContextManager[Attached]:
    """The handle of the bias that is on a model, or of one of zero for a `with` block."""
    own = attached(model)
    return attach(model, Bias(), layout) if own is None else nullcontext(own)


def as_layouts(layout: Layouts | None) -> tuple[Layout, ...]:
    """One layout for all rows, or one for each; InputError for none."""
    many = layout if isinstance(layout, Sequence) else [layout]
    found = tuple(each for each in many if isinstance(each, Layout))
    if not found or len(found) < len(many):
        raise InputError(f"give a Layout, or a list of one for each row, not {layout!r}")
    return found


class Attached(AbstractContextManager["Attached"]):
    """A bias on a model: a context manager, and the handle with which the bias is taken off again."""

    def __init__(
        self, model: nn.Module, bias: Bias, layout: Layouts, period: int | None, reader: Reader | None
    ) -> None:
        from transformers import PreTrainedModel

        self.model: Any = model
        self.bias, self.layout, self.period = bias, layout, period
        self.reader = reader  # of problems in text
        self.heads, self.long = 1, LONG  # of the model; tokens from which on FlexAttention is taken
        self.rows: Rows | None = None  # of the pass that runs
        self.finish: Finish | None = None  # what is left to do after it, of text
        self.made: tuple[int, Tensor] | None = None  # the bias of the last layer, which those of the same lines share
        self.given: Rows | None = None  # for all passes, in the place of those that are found
        self.weights_wanted = False
        self.countable = False  # whether the model can be told where its tokens stand, and counts from 0 itself
        self.hooks: list[Any] = []
        self.layers: list[Any] = []  # in the order in which they attend
        self.configs: list[tuple[Any, Any, Any]] = [  # a module, its own configuration, and the one in its place
            (module, module.config, copy.copy(module.config))
            for module in model.modules()
            if hasattr(vars(module).get("config"), "_attn_implementation") and not isinstance(module, PreTrainedModel)
        ]

    def install(self, inner: nn.Module) -> None:
        """Put this package's attention in the place of the own one of `inner`, which all calls of a model run."""
        self.base: Any = inner
        self.names = list(inspect.signature(inner.forward).parameters)
        for module, _, private in self.configs:
            private._attn_implementation_internal = NAME
            module.config = private
            setattr(module, NAME, self)
        self.hooks = [
            inner.register_forward_pre_hook(self.before, with_kwargs=True),
            inner.register_forward_hook(self.after, with_kwargs=True),
        ]

    def keep_layers(self) -> None:
        """Leave alone what has a configuration and does not attend."""
        for module, own, _ in self.configs:
            if module not in self.layers:
                module.config = own
                delattr(module, NAME)

    def detach(self) -> None:
        """Leave the model as it was; a second call does nothing."""
        vars(self.model).pop("save_pretrained", None)
        for hook in self.hooks:
            hook.remove()
        for module, own, private in self.configs:
            if vars(module).get("config") is private:
                module.config = own
            vars(module).pop(NAME, None)
        self.configs = []

    def save(self, folder: str | Path, *args: Any, **more: Any) -> None:
        """What `save_pretrained` of a model under a bias does: the model, its bias and the tokenizer of its text."""
        type(self.model).save_pretrained(self.model, folder, *args, **more)
        if self.reader is not None:
            self.reader.tokenizer.save_pretrained(folder)
        data = {name: to_data(getattr(self, name)) for name in ("bias", "layout", "period")}
        write_text(Path(folder) / FILE, json.dumps(data | {"text": self.reader is not None}, indent=1) + "\n")

    @contextmanager
    def lent(self, **other: Any) -> Iterator[Attached]:
        """With another bias and layout, or with rows that are `given`, in the place of its own, for a `with` block."""
        own = {name: getattr(self, name) for name in other}
        vars(self).update(other)
        try:
            yield self
        finally:
            vars(self).update(own)

    def __exit__(self, *_: object) -> None:
        self.detach()

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"rows": None, "finish": None, "made": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        register()  # in the process that loads a model under a bias
        vars(self).update(state)

    def before(
        self, _: nn.Module, args: tuple[Any, ...], given: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Before a forward pass: find the rows of its tokens, and give these their positions."""
        if any(module.config._attn_implementation != NAME for module in self.layers):
            raise InputError(
                "the bias on this model was lost, since its attention has another configuration: detach the handle, "
                "and attach the bias again"
            )
        given = dict(zip(self.names, args, strict=False)) | given
        tokens = next((given[name] for name in ("input_ids", "inputs_embeds") if given.get(name) is not None), None)
        if tokens is None:
            return (), given
        cache = given.get("past_key_values")
        self.weights_wanted = bool(given.get("output_attentions") or self.base.config.output_attentions)
        seen = 0 if cache is None else int(cache.get_seq_length())
        real = real_tokens(given.get("attention_mask"), tuple(tokens.shape[:2]), seen, self.rows)
        self.finish = self.made = None
        if self.given is not None:
            self.rows = self.given
        elif isinstance(self.bias, SpanLines):
            assert self.reader is not None
            self.rows, self.finish = rows_of_text(self.bias, self.reader, given, seen, real)
        else:
            size = tokens.shape[0], tokens.shape[1]
            self.rows = rows_of_layouts(self.bias, as_layouts(self.layout), self.period, size, seen, real, self.rows)
        own, told = self.rows.positions, self.reader is not None or self.period is not None
        if own is not None and (told or given.get("position_ids") is None):
            if not (told or self.countable):
                raise InputError("this model's positions are its own: put padding behind the problems, not before them")
            given["position_ids"] = own.to(tokens.device)
        return (), given

    def after(self, _: nn.Module, args: object, given: object, found: Any) -> None:
        """After a forward pass."""
        if self.finish is not None and isinstance(found, dict):
            self.finish(found)

    def layer_of(self, module: nn.Module, query: Tensor, key: Tensor) -> tuple[int, Rows]:
        """Which layer attends, counted from 0, and its rows; `query` and `key` are (row, head, token, size)."""
        if module not in self.layers:
            self.layers.append(module)
            self.heads = query.shape[1]
        rows = self.rows
        if rows is None or query.shape[2] != rows.tokens - rows.before or key.shape[2] != rows.tokens:
            raise InputError(
                "a bias needs the whole sequence, or a cache that grows and keeps all tokens before: give one of both"
            )
        return self.layers.index(module), rows

    def bias_of(self, rows: Rows, layer: int, query: Tensor) -> Tensor:
        """What is added to a layer's logits (row or 1, head, query, key), like `query`."""
        layer = self.bias.first(layer) if isinstance(self.bias, SpanLines) else layer
        if self.made is None or self.made[0] != layer:
            self.made = layer, rows.bias(layer, query)
        return self.made[1]
