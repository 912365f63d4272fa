"""Cells and coloured lines over them, which all pictures of a problem are made of; `docs/index.html` has the same."""

from collections.abc import Collection, Iterable

from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch, PathPatch
from matplotlib.path import Path

from abc_nb.bias.base import Attention, Bias
from abc_nb.problems.sampling import Batch
from abc_nb.problems.tasks import Task

INK, PALE = "#23272c", "#b9b3a6"
CELL_LOOKS = {"plain": ("white", "#ddd8cc", 0.8), "lit": ("#fff0bf", "#d9ac2c", 0.8), "asked": ("white", INK, 1.8)}
SIZE = 0.27  # inches: a cell
GAP = 2.2  # cells between the problem and its answer
NODE = 0.8  # cells from the middle of an output token up to where the lines of its heads begin
LINE_END = 0.34  # cells from the middle of a cell to where a line ends in it
Point = tuple[float, float]
SeenToken = tuple[Attention, int]  # a token that is looked at: of the problem (cross) or of the answer (self)


class Board:
    """Cells of side 1 on a panel, and lines between them."""

    def __init__(self, panel: Axes, across: tuple[float, float], down: tuple[float, float]) -> None:
        self.panel = panel
        panel.set(xlim=across, ylim=down, aspect="equal")
        panel.axis("off")

    def cell(self, center: Point, token: str, look: str = "plain", color: str = INK) -> None:
        face, edge, width = CELL_LOOKS[look]
        box = FancyBboxPatch((center[0] - 0.43, center[1] - 0.43), 0.86, 0.86, "round,pad=0,rounding_size=0.12")
        box.set(facecolor=face, edgecolor=edge, linewidth=width, zorder=1 + (look != "plain"))
        self.panel.add_patch(box)
        self.text(center, token, color)

    def text(self, center: Point, text: str, color: str = INK, size: float = 9) -> None:
        self.panel.text(*center, text, ha="center", va="center", fontsize=size, color=color, zorder=4)

    def wire(self, start: Point, end: Point, color: str, bend: float = 1, dotted: bool = False) -> None:
        """A line that begins and ends upright, and has a dot at its end; between level ends it goes up by `bend`."""
        (start_x, start_y), (end_x, end_y) = start, end
        middle = (start_y + end_y) / 2 if abs(end_y - start_y) > 0.5 else start_y + bend
        curve = Path([start, (start_x, middle), (end_x, middle), end], [Path.MOVETO, *[Path.CURVE4] * 3])
        style = ":" if dotted else "-"
        self.panel.add_patch(PathPatch(curve, fill=False, edgecolor=color, linewidth=1.6, linestyle=style, zorder=3))
        self.node(end, color, 3.2)

    def node(self, center: Point, color: str = INK, size: float = 4.5) -> None:
        self.panel.plot(*center, "o", color=color, markersize=size, zorder=3)


class Problem(Board):
    """A problem and its answer, digits of one place below one another; the token of one step is asked for."""

    def __init__(self, panel: Axes, task: Task, batch: Batch, step: int, gap: float = GAP) -> None:
        self.layout, self.step = batch.layout, step
        operands, symbols = self.layout.operands, self.layout.symbols
        super().__init__(panel, (1.6 - width_of(batch), 1.6), (-0.6, gap + len(operands) + 0.2))
        self.centers: dict[SeenToken, Point] = {("cross", symbols[-1][0]): (1, gap)}
        for number, operand in enumerate(operands):
            y = gap + len(operands) - 1 - number
            self.centers["cross", symbols[number][0]] = (-operand.places, y)
            self.centers |= {("cross", column): (-place, y) for place, column in enumerate(operand.columns.tolist())}
        self.centers |= {("self", index): (1 - index, 0) for index in range(self.layout.target_length)}
        self.tokens = {"cross": task.text(batch.source[0].tolist()), "self": task.text(batch.target[0].tolist())}
        self.lowest = gap  # the height of the lowest number

    def is_symbol(self, token: SeenToken) -> bool:
        """Whether a token is a symbol of the problem, or the one with which the answer begins."""
        return token in [("self", 0), *(("cross", column) for column, _ in self.layout.symbols)]

    def open_tokens(self, bias: Bias, kind: Attention, layer: int) -> list[list[SeenToken]]:
        """The tokens that some head sees at each step."""
        dense = bias.dense(self.layout, kind, layer, heads=1)
        assert dense is not None
        return [[(kind, key) for key in row.nonzero()[:, 0].tolist()] for row in dense.isfinite().any(0)]

    def wire_end(self, token: SeenToken, number: int, count: int) -> Point:
        """Where line `number` of `count` lines to a token ends; in an upper row left of the digits below."""
        x, y = self.centers[token]
        shift = 0.5 * (number / (count - 1) - 0.5) if count > 1 else 0.0
        if y > self.lowest:
            return x + 0.3 * shift - 0.27, y - LINE_END
        return x + shift, y - LINE_END if y else LINE_END

    def draw_wires(self, wires: Iterable[tuple[SeenToken, str]]) -> None:
        """Draw what is seen at the step: lines to tokens, in their colours."""
        wires, start = [*wires], (-self.step, NODE)
        tokens = [token for token, _ in wires]
        self.stem()
        for number, (token, color) in enumerate(wires):
            self.wire(start, self.wire_end(token, tokens[:number].count(token), tokens.count(token)), color)
        self.node(start)
        self.draw_cells(tokens)

    def stem(self) -> None:
        """A line up from the token that is asked for."""
        self.panel.plot([-self.step] * 2, [0.43, NODE], color=INK, linewidth=1.6, zorder=3)

    def draw_cells(self, seen: Collection[SeenToken]) -> None:
        """Draw all cells, of which those that are seen are lit; a symbol is a cell only where it is seen."""
        for token, center in self.centers.items():
            kind, key = token
            if kind == "self" and key > self.step:
                self.cell(center, *("?", "asked") if key == self.step + 1 else ("",))
            elif token in seen or not self.is_symbol(token):
                self.cell(center, self.tokens[kind][key], "lit" if token in seen else "plain")
            elif kind == "cross":
                self.text(center, self.tokens[kind][key], PALE)


def width_of(batch: Batch) -> float:
    """The width of a problem's picture, in cells."""
    return max(batch.layout.width, *(operand.places for operand in batch.layout.operands)) + 2.2


def size_of(batch: Batch) -> tuple[float, float]:
    """Width and height of a problem's picture, in inches."""
    return SIZE * width_of(batch), SIZE * (len(batch.layout.operands) + GAP + 0.8)
