"""Problems as cells, and what heads look at as coloured lines over them: the course's pictures of a mask."""

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from abc_nb.analysis.attention import needed
from abc_nb.analysis.dataset import on_paper
from abc_nb.bias.lines import Line, Lines
from abc_nb.bias.window import Window
from abc_nb.problems.sampling import Batch
from abc_nb.problems.tasks import Task
from abc_nb.show.board import (
    GAP,
    HEADS,
    INK,
    LAYERS,
    LINE_END,
    NODE,
    PALE,
    QUIET,
    RIGHT,
    SIZE,
    Board,
    Problem,
    SeenToken,
    width_of,
)
from abc_nb.show.pictures import STYLE, new_figure
from abc_nb.show.titles import ranges_in_words

LEVEL = 1.3  # cells from the node of a layer up to that of the layer before
LETTERS = {"operand 1": "a", "operand 2": "b"}


@rc_context(STYLE)
def heads(bias: Lines, layer: int, task: Task, batch: Batch, steps: Sequence[int]) -> Figure:
    """What a layer's heads see of a problem at some steps (figures 10, 11); heads that are alike share a line."""
    opened = bias.covers(batch.layout, "cross", layer).numpy()
    groups = alike(opened)
    colored = [*zip(itertools.cycle(HEADS), groups, strict=False)]
    high = SIZE * (len(batch.layout.operands) + GAP + 0.8) + 0.1 * (len(groups) + 1) / len(steps)
    figure, panels = new_figure(len(steps), 1, (max(5.5, SIZE * width_of(batch)), high))
    for panel, step in zip(panels, steps, strict=True):
        keys = ((color, key) for color, own in colored for key in np.flatnonzero(opened[own[0]][step]).tolist())
        Problem(panel, task, batch, step).look((("cross", key), color) for color, key in keys)
    said = [(f"{heads_in_words(own)}: {followed(bias, layer, own)}", color) for color, own in colored]
    return with_legend(figure, said, 2)


@rc_context(STYLE)
def sentence(text: str, opened: np.ndarray) -> Figure:
    """What heads see of a text, booleans (head, character), where its next character is asked for; the last is seen."""
    figure, (panel,) = new_figure(size=(SIZE * (len(text) + 2.4), 1.7))
    board, said = Board(panel, (-0.8, len(text) + 0.8), (-0.6, 4)), list[tuple[str, str]]()
    for color, own in zip(itertools.cycle(HEADS), alike(opened), strict=False):
        for key in np.flatnonzero(opened[own[0]][:-1]).tolist():
            board.wire((len(text), 0.43), (key, LINE_END), color, 0.8 * (len(text) - key) ** 0.6)
        said.append((heads_in_words(own), color))
    for at, token in enumerate(text):
        board.cell((at, 0), token, "lit" if opened[:, at].any() else "plain")
    board.cell((len(text), 0), "?", "asked")
    return with_legend(figure, said, len(said))


def alike(opened: np.ndarray) -> list[list[int]]:
    """The heads that see the same, of booleans (head, ...)."""
    same = [np.flatnonzero((opened == own).reshape(len(opened), -1).all(1)).tolist() for own in opened]
    return [own for head, own in enumerate(same) if own[0] == head]


def heads_in_words(heads: Sequence[int]) -> str:
    return f"head{'s' * (len(heads) > 1)} {ranges_in_words([head + 1 for head in heads])}"


@rc_context(STYLE)
def windows(shown: Mapping[str, Window], problems: Sequence[tuple[str, str]], step: int) -> Figure:
    """What windows open at one step (figures 3 and 8): a column a window, a row a problem of a task of this name."""
    batches = [(Task(name), on_paper(Task(name), text, "aligned")) for name, text in problems]
    high = [len(batch.layout.operands) + GAP + 0.8 for _, batch in batches]
    size = (SIZE * max(width_of(batch) for _, batch in batches), SIZE * sum(high) / len(high) + 0.15)
    figure, panels = new_figure(len(shown) * len(batches), len(shown), size, height_ratios=high)
    pairs = itertools.product(batches, shown.values())
    for panel, ((task, batch), window) in zip(panels, pairs, strict=True):
        problem = Problem(panel, task, batch, step)
        seen = [key for kind in ("cross", "self") for key in problem.opened(window, kind, 0)[step]]
        problem.look((key, HEADS[0] if key[0] == "cross" else HEADS[4]) for key in seen)
    for panel, title in zip(panels, shown, strict=False):
        panel.set_title(title, fontsize=9)
    return figure


@rc_context(STYLE)
def dependencies(problems: Mapping[str, tuple[str, str]], step: int) -> Figure:
    """What one output digit depends on (figure 7): digits and carries of a task's problem, by the panel's title."""
    batches = [(Task(name), on_paper(Task(name), text, "aligned")) for name, text in problems.values()]
    wide = [width_of(batch) for _, batch in batches]
    figure, panels = new_figure(len(batches), size=(SIZE * sum(wide) / len(wide) + 0.3, 2.1), width_ratios=wide)
    for panel, title, (task, batch) in zip(panels, problems, batches, strict=True):
        problem, count = Problem(panel, task, batch, step), len(batch.layout.operands)
        cells, top, carry = needed(batch.layout, "cross").numpy(), GAP + count, int(count == 1)
        problem.look((("cross", key), HEADS[number]) for number, key in enumerate(np.flatnonzero(cells[step]).tolist()))
        for place in range(batch.layout.width):
            if place or carry:
                color = INK if place == step else PALE
                ends = (-place + 0.1, top - 0.35), (-place + 0.9, top - 0.35)
                panel.annotate("", *ends, arrowprops={"arrowstyle": "->", "color": color})
                if place == step:
                    # dotted: no head looks there
                    problem.wire((-place + 0.5, top - 0.35), (-place + 0.27, LINE_END), INK, dots=True)
                problem.text((-place + 0.5, top + 0.05), str(carry), color)
            carry = (
                sum(int(problem.tokens["cross"][key]) for key in np.flatnonzero(cells[place])) + carry
            ) // task.base
        problem.text((-batch.layout.width - 0.1, top), "carry", QUIET, 8)
        panel.set(ylim=(-0.6, top + 0.5), title=title)
    return figure


@rc_context(STYLE)
def cones(biases: Mapping[str, Lines], problem: str, place: int) -> Figure:
    """What one digit of a sum can depend on, a panel a bias: cells of the problem, and lines from layer to layer."""
    task, batch = Task("addition"), on_paper(Task("addition"), problem, "natural")
    layers = 1 + max(line.layer for bias in biases.values() for line in bias.lines)
    figure, panels = new_figure(len(biases), size=(SIZE * width_of(batch), SIZE * (4.6 + LEVEL * layers) + 0.2))
    for panel, (title, bias) in zip(panels, biases.items(), strict=True):
        cone(Problem(panel, task, batch, place, 1 + LEVEL * layers), bias)
        panel.set_title(title)
    return with_legend(figure, [(f"lines of layer {layer + 1}", LAYERS[layer]) for layer in range(layers)], layers)


def cone(problem: Problem, bias: Lines) -> None:
    """One panel of `cones`: the state of a step stands between problem and answer, one for each layer.

    What goes in without a head, the token written last, has a dotted line.
    """
    layers, steps, seen = 1 + max(line.layer for line in bias.lines), {problem.step}, set[SeenToken]()
    problem.stem()
    for layer in reversed(range(layers)):
        cross, own = (problem.opened(bias, kind, layer) for kind in ("cross", "self"))
        height, color, before = NODE + LEVEL * (layers - 1 - layer), LAYERS[layer], set[int]()
        for step in steps:
            looked = {index for _, index in own[step]}
            keys = [key for key in cross[step] if not problem.is_symbol(key)]
            keys += [("self", index) for index in {step, *looked} if index and not layer]
            for key in keys:
                dots = key[0] == "self" and key[1] not in looked
                problem.wire((-step, height), problem.end(key, layer, layers), color, dots=dots)
            for index in {step, *looked} if layer else ():
                problem.wire((-step, height), (-index, height + LEVEL), color, dots=index not in looked)
            problem.node((-step, height), color)
            seen |= {*keys}
            before |= {step, *looked}
        steps = before
    problem.draw(seen)


def with_legend(figure: Figure, colors: Sequence[tuple[str, str]], across: int) -> Figure:
    """The figure with what the colours of its lines mean above it."""
    shown = [Line2D([], [], color=color, marker="o", markersize=4, label=said) for said, color in colors]
    figure.legend(handles=shown, loc="outside upper center", ncols=across, frameon=False)
    return figure


@rc_context(STYLE)
def trace(problem: str) -> Figure:
    """The table of a product as on paper, and one cell with the four tokens that decide it.

    A row stands one place further left than the one above. A cell shows its digit and, smaller, what it carries on.
    Digits of the product are green.
    """
    task = Task("n-by-n")
    operands = task.read(problem)
    (carries, digits), (first, second) = np.divmod(task.cells(operands)[0], task.base), (each[0] for each in operands)
    rows, columns = digits.shape
    across, down = (-columns - rows + 1.4, 2.1), (0.3 - 1.3 * rows, 1.9)
    figure, (panel,) = new_figure(size=(max(4.4, 0.42 * (across[1] - across[0])), 0.42 * (down[1] - down[0]) + 0.3))
    board, asked, above = Board(panel, across, down), (-2.0, -1.3), (-2.0, 0.0)
    seen = [(-1.0, 1.3), (1.5, -1.3), above, (-1.0, -1.3)]  # both factors' digits, the cell above, the one before
    for place, digit in enumerate(first):
        board.cell((-place, 1.3), str(digit), "lit" if (-place, 1.3) in seen else "plain")
    for place, digit in enumerate(second):
        at = (1.5, -1.3 * place)
        board.cell(at, str(digit), "lit" if at in seen else "plain")
        board.text((0.8, at[1]), "×", QUIET)
    for (row, column), digit in np.ndenumerate(digits):
        at, last = (-column - row, -1.3 * row), column == 0 or row == rows - 1
        board.cell(at, str(digit), "asked" if at == asked else "lit" if at in seen else "plain", RIGHT if last else INK)
        if carries[row, column]:
            board.text((at[0] - 0.27, at[1] + 0.25), str(carries[row, column]), QUIET, 6)
    board.wire((-1.8, -0.9), (-1.2, 0.95), HEADS[0])
    board.wire((-1.8, -1.75), (1.5, -1.65), HEADS[1], -0.5)
    board.wire((-2.1, -0.9), (-2.1, -0.35), HEADS[2])
    over, before = digits[0, 2], carries[1, 0]
    total = task.base * carries[1, 1] + digits[1, 1]
    sum_ = f"{first[1]} · {second[1]} + {over} + {before} = {total}"  # the last one is the carry of the cell before
    said = f"The frame: {sum_}, so the digit is {digits[1, 1]} and the carry {carries[1, 1]}"
    figure.supxlabel(said, fontsize=9)
    return figure


def followed(bias: Lines, layer: int, heads: Sequence[int]) -> str:
    """What lines of cross-attention follow, in few words: `a` and `b` are the numbers."""
    spans: dict[str, list[str]] = {}  # by what is said of them
    for line in bias.of("cross", layer):
        if line.head in heads:
            names = spans.setdefault(place_in_words(line), [])
            names += [name for name in (LETTERS.get(line.span, line.span),) if name not in names]
    return ", ".join(said.format(" and ".join(names)) for said, names in spans.items()) or "nothing"


def place_in_words(line: Line) -> str:
    """Where a line's keys stand to the query, with braces for the name of what it runs over."""
    if line.direction != "antidiagonal":
        return f"{{}}{f', {line.offset:+d}' if line.offset else ''}"
    if not line.offset:
        return "digits of {}"
    away = f"{abs(line.offset)} place{'s' * (abs(line.offset) > 1)} {'below' if line.offset > 0 else 'above'}"
    return f"digits of {{}}, {away}"
