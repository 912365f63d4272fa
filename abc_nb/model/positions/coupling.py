"""Position coupling (Cho et al. 2024)."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from abc_nb.model.positions.abacus import Abacus
from abc_nb.model.positions.base import Index
from abc_nb.problems.layouts import EOS, SOS, Layout


@dataclass(frozen=True)
class Coupling(Abacus):
    """Digits of one place share a position, in operands and output (Cho et al. 2024, section 3).

    The operator and what comes before the output (the paper's =, here its first token) stand next to
    the units, at 1; a place p (units = 0) is at p + 2, and the ends of the source are at 0. Starts, and
    the one of evaluation, are those of `Abacus`; the authors evaluate from the first one. (For Parity their
    code couples the token before an output with the bit that it needs; here they are next to each other,
    as on the other tasks.) The paper counts the other way, from the highest place: no more than another
    name for the same positions.
    """

    def places(self, index: Index, layout: Layout) -> Index:
        source = torch.where(index.source > 0, index.source + 1, 0)
        source[[column for column, symbol in layout.symbols if symbol not in (SOS, EOS)]] = 1
        return Index(source, index.target + 1)

    def needed(self, layout: Layout) -> int:
        return super().needed(layout) + 1
