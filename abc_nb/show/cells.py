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
from abc_nb.show.board import INK, LINE_END, NODE, PALE, SIZE, Board, Problem, SeenToken, size_of
from abc_nb.show.pictures import STYLE, new_figure
from abc_nb.show.titles import ranges_in_words

HEADS = ("#2f6db5", "#d9822b", "#7d5bb5", "#1f9e9a", "#c25b97", "#8a7a1f", "#7a5a44")  # lines of several heads
LAYERS = ("#a89a7c", "#23272c")  # lines of the first layer, and of the second
QUIET, GREEN = "#6e6a61", "#1a7a4a"
LEVEL = 1.3  # cells from the node of a layer up to that of the layer before
LETTERS = {"operand 1": "a", "operand 2": "b"}


@rc_context(STYLE)
def heads(bias: Lines, layer: int, task: Task, batch: Batch, steps: Sequence[int]) -> Figure:
    """What a layer's heads see of a problem at some steps (figures 10, 11); heads that see the same share a line."""
    opened = bias.covers(batch.layout, "cross", layer).numpy()
    groups = head_groups(opened)
    width, height = size_of(batch)
    size = (max(5.5, width), height + 0.1 * (len(groups) + 1) / len(steps))
    figure, panels = new_figure(len(steps), 1, size)
    for panel, step in zip(panels, steps, strict=True):
        keys = ((key, color) for group, color in groups for key in np.flatnonzero(opened[group[0]][step]).tolist())
        Problem(panel, task, batch, step).draw_wires((("cross", key), color) for key, color in keys)
    labels = [(f"{heads_in_words(group)}: {followed(bias, layer, group)}", color) for group, color in groups]
    return with_legend(figure, labels, 2)


@rc_context(STYLE)
def sentence(text: str, opened: np.ndarray) -> Figure:
    """What heads see of a text, booleans (head, character), where its next character is asked for; the last is seen."""
    figure, (panel,) = new_figure(size=(SIZE * (len(text) + 2.4), 1.7))
    board, groups = Board(panel, (-0.8, len(text) + 0.8), (-0.6, 4)), head_groups(opened)
    for group, color in groups:
        for key in np.flatnonzero(opened[group[0]][:-1]).tolist():
            board.wire((len(text), 0.43), (key, LINE_END), color, 0.8 * (len(text) - key) ** 0.6)
    for column, token in enumerate(text):
        board.cell((column, 0), token, "lit" if opened[:, column].any() else "plain")
    board.cell((len(text), 0), "?", "asked")
    return with_legend(figure, [(heads_in_words(group), color) for group, color in groups], len(groups))


def head_groups(opened: np.ndarray) -> list[tuple[list[int], str]]:
    """The heads that see the same, of booleans (head, ...), and a colour for each of these groups."""
    groups: dict[bytes, list[int]] = {}
    for head, cells in enumerate(opened):
        groups.setdefault(cells.tobytes(), []).append(head)
    return [*zip(groups.values(), itertools.cycle(HEADS), strict=False)]


def heads_in_words(heads: Sequence[int]) -> str:
    return f"head{'s' * (len(heads) > 1)} {ranges_in_words([head + 1 for head in heads])}"


@rc_context(STYLE)
def windows(shown: Mapping[str, Window], problems: Sequence[tuple[str, str]], step: int) -> Figure:
    """What windows open at one step (figures 3 and 8): a column a window, a row a problem of a task of this name."""
    batches = [(Task(name), on_paper(Task(name), text, "aligned")) for name, text in problems]
    widths, heights = zip(*(size_of(batch) for _, batch in batches), strict=True)
    size = (max(widths), sum(heights) / len(heights) + 0.15)
    figure, panels = new_figure(len(shown) * len(batches), len(shown), size, height_ratios=heights)
    for panel, ((task, batch), window) in zip(panels, itertools.product(batches, shown.values()), strict=True):
        problem = Problem(panel, task, batch, step)
        tokens = [token for kind in ("cross", "self") for token in problem.open_tokens(window, kind, 0)[step]]
        problem.draw_wires((token, HEADS[0] if token[0] == "cross" else HEADS[4]) for token in tokens)
    for panel, title in zip(panels, shown, strict=False):
        panel.set_title(title, fontsize=9)
    return figure


@rc_context(STYLE)
def dependencies(problems: Mapping[str, tuple[str, str]], step: int) -> Figure:
    """What one output digit depends on (figure 7): digits and carries of a task's problem, by the panel's title."""
    batches = [(Task(name), on_paper(Task(name), text, "aligned")) for name, text in problems.values()]
    widths = [size_of(batch)[0] for _, batch in batches]
    figure, panels = new_figure(len(batches), size=(sum(widths) / len(widths) + 0.3, 2.1), width_ratios=widths)
    for panel, title, (task, batch) in zip(panels, problems, batches, strict=True):
        problem, count = Problem(panel, task, batch, step), len(batch.layout.operands)
        cells, top, carry = needed(batch.layout, "cross").numpy(), problem.lowest + count, int(count == 1)
        tokens: list[SeenToken] = [("cross", key) for key in np.flatnonzero(cells[step]).tolist()]
        problem.draw_wires(zip(tokens, HEADS, strict=False))
        for place in range(batch.layout.width):
            if place or carry:
                color = INK if place == step else PALE
                ends = (-place + 0.1, top - 0.35), (-place + 0.9, top - 0.35)
                panel.annotate("", *ends, arrowprops={"arrowstyle": "->", "color": color})
                if place == step:
                    # dotted: no head looks there
                    problem.wire((-place + 0.5, top - 0.35), (-place + 0.27, LINE_END), INK, dotted=True)
                problem.text((-place + 0.5, top + 0.05), str(carry), color)
            digits = [int(problem.tokens["cross"][key]) for key in np.flatnonzero(cells[place])]
            carry = (sum(digits) + carry) // task.base
        problem.text((-batch.layout.width - 0.1, top), "carry", QUIET, 8)
        panel.set(ylim=(-0.6, top + 0.5), title=title)
    return figure


@rc_context(STYLE)
def cones(biases: Mapping[str, Lines], problem: str, place: int) -> Figure:
    """What one digit of a sum can depend on, a panel a bias: cells of the problem, and lines from layer to layer."""
    task, batch = Task("addition"), on_paper(Task("addition"), problem, "natural")
    layers = 1 + max(line.layer for bias in biases.values() for line in bias.lines)
    figure, panels = new_figure(len(biases), size=(size_of(batch)[0], SIZE * (4.6 + LEVEL * layers) + 0.2))
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
        cross_keys, self_keys = (problem.open_tokens(bias, kind, layer) for kind in ("cross", "self"))
        height, color, steps_before = NODE + LEVEL * (layers - 1 - layer), LAYERS[layer], set[int]()
        for step in steps:
            attended = {index for _, index in self_keys[step]}
            keys = [key for key in cross_keys[step] if not problem.is_symbol(key)]
            keys += [("self", index) for index in {step, *attended} if index and not layer]
            for key in keys:
                dotted = key[0] == "self" and key[1] not in attended
                problem.wire((-step, height), problem.wire_end(key, layer, layers), color, dotted=dotted)
            for index in {step, *attended} if layer else ():
                problem.wire((-step, height), (-index, height + LEVEL), color, dotted=index not in attended)
            problem.node((-step, height), color)
            seen |= {*keys}
            steps_before |= {step, *attended}
        steps = steps_before
    problem.draw_cells(seen)


def with_legend(figure: Figure, labels: Sequence[tuple[str, str]], across: int) -> Figure:
    """The figure with the labels of its lines' colours above it."""
    handles = [Line2D([], [], color=color, marker="o", markersize=4, label=label) for label, color in labels]
    figure.legend(handles=handles, loc="outside upper center", ncols=across, frameon=False)
    return figure


@rc_context(STYLE)
def trace(problem: str) -> Figure:
    """The table of a product as on paper, and one cell with the four tokens that decide it.

    A row stands one place further left than the one above. A cell shows its digit and, smaller, what it carries on.
    Digits of the product are green.
    """
    task = Task("n-by-n")
    operands = task.read(problem)
    (carries, digits), (first, second) = np.divmod(task.cells(operands)[0], task.base), (row[0] for row in operands)
    rows, columns = digits.shape
    across, down = (-columns - rows + 1.4, 2.1), (0.3 - 1.3 * rows, 1.9)
    figure, (panel,) = new_figure(size=(max(4.4, 0.42 * (across[1] - across[0])), 0.42 * (down[1] - down[0]) + 0.3))
    board = Board(panel, across, down)
    looks = dict.fromkeys([(-1.0, 1.3), (1.5, -1.3), (-2.0, 0.0), (-1.0, -1.3)], "lit")  # the digits, above, before
    looks[-2.0, -1.3] = "asked"
    for place, digit in enumerate(first):
        board.cell((-place, 1.3), str(digit), looks.get((-place, 1.3), "plain"))
    for place, digit in enumerate(second):
        board.cell((1.5, -1.3 * place), str(digit), looks.get((1.5, -1.3 * place), "plain"))
        board.text((0.8, -1.3 * place), "×", QUIET)
    for (row, column), digit in np.ndenumerate(digits):
        x, y = -column - row, -1.3 * row
        in_product = column == 0 or row == rows - 1
        board.cell((x, y), str(digit), looks.get((x, y), "plain"), GREEN if in_product else INK)
        if carries[row, column]:
            board.text((x - 0.27, y + 0.25), str(carries[row, column]), QUIET, 6)
    board.wire((-1.8, -0.9), (-1.2, 0.95), HEADS[0])
    board.wire((-1.8, -1.75), (1.5, -1.65), HEADS[1], -0.5)
    board.wire((-2.1, -0.9), (-2.1, -0.35), HEADS[2])
    above, carry_before = digits[0, 2], carries[1, 0]
    total = task.base * carries[1, 1] + digits[1, 1]
    equation = f"{first[1]} · {second[1]} + {above} + {carry_before} = {total}"
    caption = f"The frame: {equation}, so the digit is {digits[1, 1]} and the carry {carries[1, 1]}"
    figure.supxlabel(caption, fontsize=9)
    return figure


def followed(bias: Lines, layer: int, heads: Sequence[int]) -> str:
    """What lines of cross-attention follow, in few words: `a` and `b` are the numbers."""
    spans: dict[str, dict[str, None]] = {}  # the names of spans, once each, by the phrase that they stand in
    for line in bias.of("cross", layer):
        if line.head in heads:
            spans.setdefault(place_in_words(line), {})[LETTERS.get(line.span, line.span)] = None
    return ", ".join(phrase.format(" and ".join(names)) for phrase, names in spans.items()) or "nothing"


def place_in_words(line: Line) -> str:
    """Where a line's keys stand to the query, with braces for the name of what it runs over."""
    if line.direction != "antidiagonal":
        return f"{{}}{f', {line.offset:+d}' if line.offset else ''}"
    if not line.offset:
        return "digits of {}"
    distance = f"{abs(line.offset)} place{'s' * (abs(line.offset) > 1)} {'below' if line.offset > 0 else 'above'}"
    return f"digits of {{}}, {distance}"
