"""One calibration to look at: the parent's averaged attention, its lines, and the bias they become."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
from torch import Tensor

from abc_nb.bias.base import Attention
from abc_nb.bias.lines import Line, Lines, cells_of
from abc_nb.calibration.calibrate_model import Averages, average_attention
from abc_nb.common.errors import InputError
from abc_nb.model.transformer import Transformer
from abc_nb.problems.layouts import Layout
from abc_nb.problems.sampling import Batch
from abc_nb.runs import store
from abc_nb.runs.store import Run


def parent_run_of(run: Run) -> Run:
    """The run that a run was made from; InputError if there is none with these weights."""
    name, parent_spec, checksum = run.spec.name, run.spec.parent, run.facts["parent"]["weights"]
    for origin in store.ANYWHERE:
        parent = store.find(parent_spec, run.seed, (origin,))
        if parent is not None and parent.checksum in (None, checksum):
            return parent
    raise InputError(f"the {parent_spec.name} that {name} was made from is not there: train {name} here")


@dataclass(frozen=True)
class CalibrationStudy:
    """What an ABC run was made from. Raises InputError for a run without calibration."""

    run: Run  # before practice

    def __post_init__(self) -> None:
        if self.run.spec.practice:
            object.__setattr__(self, "run", parent_run_of(self.run))
        if self.run.spec.calibration is None:
            raise InputError(f"{self.run.spec.name} has no calibrated bias: take an experiment such as addition-abc")

    @cached_property
    def bias(self) -> Lines:
        bias: Lines = self.run.bias()
        return bias

    @cached_property
    def parent_run(self) -> Run:
        """The run that was calibrated, made here or shipped. InputError if it is not there."""
        return parent_run_of(self.run)

    @cached_property
    def parent(self) -> Transformer:
        return self.parent_run.model()

    @cached_property
    def batch(self) -> Batch:
        """The training problems that attention was averaged over."""
        return self.run.spec.calibration_batch(self.run.seed)

    @property
    def layout(self) -> Layout:
        return self.batch.layout

    @cached_property
    def averages(self) -> dict[tuple[Attention, int], Tensor]:
        """The parent's attention (head, query, key), averaged."""
        return average_attention(self.parent, self.batch)

    @property
    def last(self) -> int:
        """The last decoder layer, counted from 0."""
        return self.run.spec.model.decoder_layers - 1

    @cached_property
    def lines(self) -> pd.DataFrame:
        """Every kept line."""
        return line_table(self.bias.lines, self.averages, self.layout)

    def strongest_head(self, name: Attention, direction: str) -> tuple[int, int]:
        """Layer and head (from 0) of the line in this direction that carries most attention."""
        lines = self.lines.query("attention == @name and direction == @direction")
        if lines.empty:
            raise InputError(f"no {direction} line was kept in {name}-attention of {self.run.spec.name}")
        strongest = lines.sort_values("share").iloc[-1]
        return int(strongest["layer"]) - 1, int(strongest["head"]) - 1

    def opened(self, name: Attention, layer: int) -> np.ndarray:
        """Which cells (head, query, key) of the averaged attention lie on kept lines."""
        return self.bias.covers(self.layout, name, layer).numpy()


def line_table(lines: Sequence[Line], averages: Averages, layout: Layout) -> pd.DataFrame:
    """A row a line, layers and heads counted from 1; `share` of its head's attention is on it, `value` is added."""
    rows = []
    for line in lines:
        weights = averages[line.attention, line.layer][line.head]
        share = weights[cells_of(line, layout)].sum().item() / len(weights)
        identity = (line.attention, line.layer + 1, line.head + 1, line.span, line.direction, line.offset)
        rows.append((*identity, share, line.value))
    columns = ["attention", "layer", "head", "span", "direction", "offset", "share", "value"]
    return pd.DataFrame(rows, columns=columns)


def letters(layout: Layout) -> tuple[list[str], list[str]]:
    """Labels of cross-attention: of keys `a` and `b` for digits of the numbers, of queries their place or row."""
    keys, length = dict(layout.symbols), layout.row_length or 1
    for letter, operand in zip("ab", layout.operands, strict=False):
        keys |= dict.fromkeys(operand.columns.tolist(), letter)
    queries = [str(step // length + 1) if step % length == 0 else "" for step in range(layout.target_length - 1)]
    return [keys.get(column, "") for column in range(layout.source_length)], [*queries, "&"]
