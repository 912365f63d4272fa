"""A bias on the attention of a causal language model of `transformers`, through its AttentionInterface.

While a bias is attached, every layer's attention goes through `biased_attention`, this package's own attention with
the layer's bias. The bias holds the causal mask too. It lives on the model's attention modules: each gets a copy of
its configuration, which names that attention, so that other models of the same configuration stay as they are.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor, nn

from abc_nb.bias.base import Bias, OpenKeys
from abc_nb.bias.sequence import check_bias, cyclic_positions, dense_bias, leveled, open_bias
from abc_nb.common.errors import InputError
from abc_nb.hf.attention import NAME, register
from abc_nb.hf.flex import Table, blocks, values
from abc_nb.hf.long import LONG, SLOTS, by_blocks
from abc_nb.hf.probe import check_model, prove
from abc_nb.hf.rows import Rows, place
from abc_nb.problems.layouts import Layout

if TYPE_CHECKING:
    from transformers import PreTrainedModel

KEPT = 128  # matrices and tables
Made = TypeVar("Made")
Layouts = Layout | Sequence[Layout]


def attach(
    model: PreTrainedModel, bias: Bias, layout: Layouts, period: int | None = None, flex: bool | None = None
) -> Attached:
    """Put a bias on a model's attention, until the handle that is returned is detached or its `with` block ends.

    `layout` is that of the problems to come, or one for each row of a batch, whose `attention_mask` then says where
    padding stands, on the left or on the right. Set the handle's `layout` before other problems. With a `period` the
    model's `position_ids` are cyclic, whatever is passed. Training, evaluation and `generate` with or without its
    cache work; the prompt is the problem and the answer's first token. Long sequences go through FlexAttention where it
    can do what the dense matrix does; with `flex=False` none do, and with `flex=True` short ones do, too.

    A few tokens are run to see that the bias acts: a zero bias changes nothing, a closed key has no influence on the
    logits, and no token sees one that comes after it. Raises InputError for a model of which that does not hold, which
    has a bias already or has a sliding window, and for a bias of other heads.
    """
    check_model(model)
    if attached(model) is not None:
        raise InputError("this model has a bias already: detach it first, with hf.attached(model).detach()")
    layouts = as_layouts(layout)
    for each in layouts:
        check_bias(bias, each)
        if period is not None:
            cyclic_positions(each, period)
    register()
    handle = Attached(model)
    try:
        prove(model, handle)
        handle.bias, handle.layout, handle.period, handle.flex = bias, layouts, period, flex
        if period is not None and "position_ids" not in handle.names:
            raise InputError(f"{type(model).__name__} takes no position_ids: a period is not possible")
        values(bias, layouts[0], 0, handle.heads)  # InputError for other heads
    except BaseException:
        handle.detach()
        raise
    return handle


def attached(model: nn.Module) -> Attached | None:
    """The handle of the bias that is on a model, or None."""
    found = (vars(module)[NAME] for module in model.modules() if NAME in vars(module))
    return next((handle for handle, _ in found), None)


@contextmanager
def under_own(model: PreTrainedModel, layout: Layouts) -> Iterator[Attached]:
    """The handle of the bias that is on a model, or of one of zero for a `with` block."""
    own = attached(model)
    handle = own or attach(model, Bias(), layout)
    try:
        yield handle
    finally:
        if own is None:
            handle.detach()


def as_layouts(layout: Layouts) -> tuple[Layout, ...]:
    """One layout for all rows, or one for each; InputError for none."""
    many = tuple(layout) if isinstance(layout, Sequence) else (layout,)
    if not many or not all(isinstance(each, Layout) for each in many):
        raise InputError(f"give a Layout, or a list of one for each row, not {layout!r}")
    return many


class Attached:
    """A bias on a model: a context manager, and the handle with which the bias is taken off again."""

    def __init__(self, model: nn.Module) -> None:
        from transformers import PreTrainedModel

        self.bias, self.heads = Bias(), 1
        self.flex: bool | None = False
        self.period: int | None = None
        self.layout: Layouts = ()
        self.rows: Rows | None = None  # of the pass that runs
        self.weights_wanted = False
        self.countable = False  # whether the model can be told where its tokens stand, and counts from 0 itself
        self.kept: dict[Hashable, Any] = {}  # what was made of a bias
        self.kept_of = self.bias
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
            setattr(module, NAME, (self, None))
        self.hook = self.base.register_forward_pre_hook(self.before, with_kwargs=True)

    def keep_layers(self) -> None:
        """Leave alone what has a configuration and does not attend."""
        for module, own, _ in self.configs:
            if vars(module)[NAME][1] is None:
                module.config = own
                delattr(module, NAME)

    def detach(self) -> None:
        """Leave the model as it was; a second call does nothing."""
        if hasattr(self, "hook"):
            self.hook.remove()
        for module, own, private in self.configs:
            if vars(module).get("config") is private:
                module.config = own
            vars(module).pop(NAME, None)
        self.configs = []

    @contextmanager
    def lent(self, bias: Bias, layout: Layouts) -> Iterator[Attached]:
        """Another bias for other problems in the place of its own, for a `with` block."""
        own = self.bias, self.layout
        self.bias, self.layout = bias, layout
        try:
            yield self
        finally:
            self.bias, self.layout = own

    def __enter__(self) -> Attached:
        return self

    def __exit__(self, *_: object) -> None:
        self.detach()

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"kept": {}, "rows": None}

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
        cache, mask = given.get("past_key_values"), given.get("attention_mask")
        self.weights_wanted = bool(given.get("output_attentions") or self.base.config.output_attentions)
        seen = 0 if cache is None else int(cache.get_seq_length())
        self.rows = place(as_layouts(self.layout), mask, tuple(tokens.shape[:2]), seen, self.rows)
        if self.period is not None:
            given["position_ids"] = self.rows.positions(self.period).to(tokens.device)
        elif given.get("position_ids") is None and self.rows.shifted is not None:
            if not self.countable:
                raise InputError("this model's positions are its own: put padding behind the problems, not before them")
            given["position_ids"] = self.rows.shifted.to(tokens.device)
        return (), given

    def layer_of(self, module: nn.Module, query: Tensor, key: Tensor) -> tuple[int, Rows]:
        """Which layer attends, counted from 0, and its rows; `query` and `key` are (row, head, token, size)."""
        layer: int | None = vars(module)[NAME][1]
        if layer is None:
            layer, self.heads = len(self.layers), query.shape[1]
            self.layers.append(module)
            setattr(module, NAME, (self, layer))
        rows = self.rows
        if rows is None or query.shape[2] != rows.tokens - rows.before or key.shape[2] < rows.tokens:
            raise InputError(
                "a bias needs the whole sequence, or a cache that keeps all tokens before: give one of both"
            )
        return layer, rows

    def bias_of(self, rows: Rows, layer: int, query: Tensor, keys: int) -> Tensor:
        """What is added to a layer's logits (row or 1, head, query, key), like `query`."""
        few = self.open_keys(rows, layer, query) if rows.before and rows.tokens >= LONG else None
        if few is not None:  # a few rows of a large matrix, which is not made
            return few.rows(slice(rows.before, rows.tokens)).dense(keys)[None].to(query.dtype)
        return rows.bias(lambda layout: self.matrix(layout, layer, query), keys)

    def long(
        self, rows: Rows, layer: int, query: Tensor, key: Tensor, value: Tensor, softcap: float | None
    ) -> Tensor | None:
        """A layer's attention by FlexAttention; None where the dense matrix is taken."""
        short = (rows.tokens - rows.before) * rows.tokens < LONG**2
        if self.flex is False or (short and not self.flex) or self.weights_wanted or key.shape[2] > rows.tokens:
            return None
        few = self.open_keys(rows, layer, query)
        if few is None or few.index.shape[1] > SLOTS:
            return None
        which = rows.layouts[0], layer, query.shape[1], query.device
        table = self.once(("table", *which), lambda: Table.of(few, query.device))
        parts = self.once(
            ("blocks", *which, rows.before, rows.tokens), lambda: blocks(few, rows.tokens, rows.before, query.device)
        )
        found = by_blocks(query, key, value, table, parts, rows.before, softcap)
        self.flex = False if found is None else self.flex
        return found

    def open_keys(self, rows: Rows, layer: int, like: Tensor) -> OpenKeys | None:
        """Each token's few open keys; None if they are not few, or rows are padded."""
        layout, heads = rows.layouts[0], like.shape[1]

        def made() -> OpenKeys | None:
            few = open_bias(self.bias, layout, layer, heads)
            return None if few is None else OpenKeys(few.index, leveled(few.value)).to(like.device)

        return self.once(("few", layout, layer, heads, like.device), made) if rows.index is None else None

    def matrix(self, layout: Layout, layer: int, like: Tensor) -> Tensor:
        """A layer's bias (head, token, token)."""
        return self.once(
            ("matrix", layout, layer, like.shape[1], like.device, like.dtype),
            lambda: leveled(dense_bias(self.bias, layout, layer, like.shape[1])).to(like.device, like.dtype),
        )

    def once(self, what: Hashable, make: Callable[[], Made]) -> Made:
        """What was made of the bias before and is kept, or else is made now."""
        if self.kept_of is not self.bias:
            self.kept, self.kept_of = {}, self.bias
        if what not in self.kept:
            if len(self.kept) >= KEPT:
                self.kept.pop(next(iter(self.kept)))
            with torch.inference_mode(False):  # used in training later
                self.kept[what] = make()
        found: Made = self.kept[what]
        return found
