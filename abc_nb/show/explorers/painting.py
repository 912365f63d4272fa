"""A mask painted on the cells around one place of a problem, and a button that trains and judges a model under it."""

from collections.abc import Callable

import ipywidgets as w
import pandas as pd
import torch
from torch import Tensor

from abc_nb.analysis.dataset import on_paper
from abc_nb.common.errors import InputError, reason
from abc_nb.problems.tasks import Task
from abc_nb.show.explorers.explorer import Explorer, or_sentence, scrolling_table

ColumnRule = Callable[[Tensor], Tensor]  # distances in columns to booleans: which are open
OPEN, CLOSED = "success", ""  # looks of a cell


class Painting(w.VBox):
    """Open and close cells of a place, the one above and the one below; `judge` trains under their rule.

    Cells are tokens of aligned input. The rule opens the same distances at every place, at first the place alone.
    InputError for a problem that is none of the task's.
    """

    def __init__(self, task: Task, problem: str, judge: Callable[[ColumnRule], pd.DataFrame]) -> None:
        batch = on_paper(task, problem, "aligned")
        operand, tokens = batch.layout.operands[0], task.text(batch.source[0].tolist())
        place, stride = operand.places // 2, operand.stride
        first = operand.last - stride * place
        self.judge, self.cells = judge, dict[int, w.ToggleButton]()
        for distance in range(-stride, 2 * stride):
            exists = 0 <= first + distance < len(tokens)
            layout = w.Layout(width="48px", margin="1px 1px 1px 14px" if distance % stride == 0 else "1px")
            self.cells[distance] = w.ToggleButton(
                value=0 <= distance < stride, description=tokens[first + distance] if exists else "·", layout=layout
            )
            self.cells[distance].observe(self.colour, "value")
        self.start = w.Button(description="Train and judge", button_style="primary", icon="play")
        self.verdict = w.HTML("takes some ten seconds").add_class("abc-verdict")
        self.start.on_click(self.run)
        output = task.text(batch.target[0].tolist())[place + 1]
        label = w.HTML(f"the place above, the place of output <b>{output}</b>, the place below: green is open")
        super().__init__([label, w.HBox([*self.cells.values()]), self.start, self.verdict])
        self.colour()

    def rule(self, distance: Tensor) -> Tensor:
        """Whether a column at each distance, to the right of the place's first digit, is open."""
        return torch.isin(distance, torch.tensor([offset for offset, cell in self.cells.items() if cell.value]))

    def colour(self, _: object = None) -> None:
        for cell in self.cells.values():
            cell.button_style = OPEN if cell.value else CLOSED

    def run(self, _: w.Button) -> None:
        """The kernel is busy meanwhile."""
        self.start.disabled, self.verdict.value = True, "training"
        try:
            self.verdict.value = scrolling_table(self.judge(self.rule).reset_index(), 60)
        except InputError as error:
            self.verdict.value = f"⚠ {reason(error)}"
        finally:
            self.start.disabled = False

    __repr__ = Explorer.__repr__


explore_painting = or_sentence(Painting)
