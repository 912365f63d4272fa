"""A product's trace drawn as on paper, with what one of its cells is made from."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from abc_nb.problems.products import Product
from abc_nb.show.pictures import new_figure

NEEDED, CELL = "#c44e52", "#4c72b0"


def product_figure(problem: str, row: int = 1, column: int = 1) -> Figure:
    """The table of a product, units at the right, and arrows to one cell from the four tokens that decide it.

    A cell shows its digit and, smaller, what it carries on. The arrows begin at the digit of the first factor in the
    same column, the digit of the second in the same row, the cell above to the right, and the cell before.
    """
    task = Product("n-by-n")
    operands = task.read(problem)
    first, second = (digits[0] for digits in operands)
    table = task.table(operands)[0]
    rows, columns = table.shape
    figure, (axes,) = new_figure(1, 0.55 * rows + 1.0, 0.7 * columns + 2.0)
    for place, digit in enumerate(first):
        axes.text(-place, 1, str(digit), ha="center", va="center", fontsize=13, color=CELL)
    for r in range(rows):
        axes.text(1.4, -r, f"× {second[r]}", ha="center", va="center", fontsize=13, color=CELL)
        for c in range(columns):
            cell = int(table[r, c])
            axes.text(-c, -r, str(cell % task.base), ha="center", va="center", fontsize=13)
            if cell >= task.base:
                axes.text(
                    -c - 0.3, -r + 0.22, str(cell // task.base), ha="center", va="center", fontsize=8, color="gray"
                )
    sources = {"column": (-column, 1), "row": (1.25, -row), "before": (-column + 1, -row)}
    if row and column < columns - 1:
        sources["above"] = (-column - 1, -row + 1)
    for start in sources.values():
        arrow(axes, start, (-column, -row))
    axes.set(xlim=(-columns + 0.3, 2.0), ylim=(-rows + 0.4, 1.6))
    axes.axis("off")
    return figure


def arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float]) -> None:
    style = {"arrowstyle": "->", "color": NEEDED, "shrinkA": 9, "shrinkB": 9, "linewidth": 1.4}
    axes.annotate("", xy=end, xytext=start, arrowprops={**style, "connectionstyle": "arc3,rad=0.12"})
