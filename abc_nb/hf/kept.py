"""What is made of the bias of problems alone, layer by layer, and kept for the next pass."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.nn.functional import pad

from abc_nb.bias.base import CLOSED, Bias, OpenKeys
from abc_nb.bias.sequence import dense_bias, leveled, open_bias, token_count
from abc_nb.hf.flex import Table, blocks
from abc_nb.hf.long import LONG, SLOTS, by_blocks
from abc_nb.hf.rows import Rows
from abc_nb.problems.layouts import Layout

MOST = 128  # matrices and tables
Made = TypeVar("Made")


class Kept:
    """Of one bias, matrices (head, token, token) and tables of open keys by layout and layer."""

    def __init__(self, bias: Bias) -> None:
        self.bias, self.made = bias, dict[Hashable, Any]()
        self.fails = False  # whether FlexAttention was not compiled

    def part(self, layout: Layout, layer: int, like: Tensor, first: int, last: int) -> Tensor:
        """The bias of a row that is one problem, and of what stands behind its end, as a `Part`."""
        end = min(last, token_count(layout))
        few = self.open_keys(layout, layer, like) if first and last >= LONG else None
        if few is None:
            found = self.matrix(layout, layer, like)[:, first:end, :end]
        else:  # a few rows of a large matrix, which is not made
            found = few.rows(slice(first, end)).dense(end).to(like.dtype)
        return pad(found, (0, last - end, 0, last - max(first, end)), value=CLOSED) if end < last else found

    def long(
        self, rows: Rows, layer: int, query: Tensor, key: Tensor, value: Tensor, softcap: float | None, short: bool
    ) -> Tensor | None:
        """A layer's attention by FlexAttention, of a `short` sequence, too; None where the dense matrix is taken."""
        short = short or (rows.tokens - rows.before) * rows.tokens >= LONG**2
        if rows.layout is None or self.fails or not short:
            return None
        few = self.open_keys(rows.layout, layer, query)
        if few is None or few.index.shape[1] > SLOTS:
            return None
        which = rows.layout, layer, query.shape[1], query.device
        table = self.once(("table", *which), lambda: Table.of(few, query.device))
        parts = self.once(
            ("blocks", *which, rows.before, rows.tokens), lambda: blocks(few, rows.tokens, rows.before, query.device)
        )
        found = by_blocks(query, key, value, table, parts, rows.before, softcap)
        self.fails = found is None
        return found

    def open_keys(self, layout: Layout, layer: int, like: Tensor) -> OpenKeys | None:
        """Each token's few open keys; None if they are not few."""

        def made() -> OpenKeys | None:
            few = open_bias(self.bias, layout, layer, like.shape[1])
            return None if few is None else OpenKeys(few.index, leveled(few.value)).to(like.device)

        return self.once(("few", layout, layer, like.shape[1], like.device), made)

    def matrix(self, layout: Layout, layer: int, like: Tensor) -> Tensor:
        """A layer's bias (head, token, token)."""
        return self.once(
            ("matrix", layout, layer, like.shape[1], like.device, like.dtype),
            lambda: leveled(dense_bias(self.bias, layout, layer, like.shape[1])).to(like.device, like.dtype),
        )

    def once(self, what: Hashable, make: Callable[[], Made]) -> Made:
        """What was made before and is kept, or else is made now."""
        if what not in self.made:
            if len(self.made) >= MOST:
                self.made.pop(next(iter(self.made)))
            with torch.inference_mode(False):  # used in training later
                self.made[what] = make()
        found: Made = self.made[what]
        return found
