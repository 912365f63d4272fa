"""Maps: attention, biases, accuracies and tokens as pictures of cells; each function returns a Figure."""

import itertools
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import seaborn as sns
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from abc_nb.analysis.attention import HeadMap, needed
from abc_nb.analysis.calibration_study import CalibrationStudy, letters
from abc_nb.analysis.dataset import on_paper
from abc_nb.bias.base import Attention
from abc_nb.bias.lines import Line, Lines
from abc_nb.bias.window import Window
from abc_nb.problems.layouts import EOS
from abc_nb.problems.sampling import Batch
from abc_nb.problems.tasks import Task
from abc_nb.show.pictures import (
    COLORS,
    OPEN_COLOR,
    STYLE,
    frame,
    heat_map,
    legend,
    mask,
    new_figure,
    outline,
    with_tokens,
)

CELL = 0.17  # inches: a cell that a token can be written beside
PAGE = 7.2  # inches: heads side by side
LAYERS = ("#a89a7c", "#23272c")  # lines of the first layer, and of the second
LETTERS = {"operand 1": "a", "operand 2": "b"}


@rc_context(STYLE)
def attention_maps(heads: Sequence[HeadMap], across: int = 0) -> Figure:
    """Heads on one scale (figures 5, 6), to the end tokens; wrong tokens are red, needed cells framed."""
    across = across or len(heads)
    pairs = [(head.outputs, head.keys) for head in heads]
    heights, wide = ([[*tokens, EOS].index(EOS) + 1 for tokens in own] for own in zip(*pairs, strict=True))
    ratios = [max(wide[column::across]) for column in range(across)]
    below = 0.3 * (len(heads) > across)  # room for titles below other panels
    size = (CELL * sum(ratios) / across + 1.1, CELL * max(heights) + 1.0 + below)
    figure, axes = new_figure(len(heads), across, size, width_ratios=ratios)
    for axis, head, rows, columns in zip(axes, heads, heights, wide, strict=True):
        image = heat_map(axis, head.weights[:rows, :columns], vmin=0, vmax=1, aspect="equal")
        with_tokens(axis, head.keys[:columns], head.outputs[:rows], size=9, right=head.right[:rows])
        outline(axis, head.needed[:rows, :columns])
        title = f"{head.title}: {'right' if all(head.right) else 'wrong'}"
        axis.set(title=textwrap.fill(title, max(18, 2 * columns)), xlabel=head.xlabel)
    for axis in axes[::across]:
        axis.set_ylabel("output token, units first")
    figure.colorbar(image, ax=axes, label="attention", fraction=0.03, pad=0.01)
    return figure


@rc_context(STYLE)
def windows(*wanted: Window) -> Figure:
    """Which cells windows leave open, drawn yellow (figures 3 and 8); self-attention, which all share, stands once."""
    one, two = "one number", "two numbers"
    layouts = {one: Task("successor").layout(6), two: Task("addition").layout(6, "aligned")}
    kinds: list[tuple[Attention, str]] = [("self", one), ("cross", one), ("cross", two)]
    wide = [layouts[kind].target_length if name == "self" else layouts[kind].source_length for name, kind in kinds]
    size = (CELL * sum(wide) / len(wide) + 0.9, CELL * layouts[one].target_length + 0.9)
    figure, axes = new_figure(len(wanted) * len(kinds), len(kinds), size, width_ratios=wide)
    for axis, (window, (name, kind)) in zip(axes, itertools.product(wanted, kinds), strict=True):
        if name == "self" and window is not wanted[0]:
            axis.remove()
            continue
        keys, queries = letters(layouts[kind])
        mask(axis, window.opened(layouts[kind], name, 0)[0].numpy())
        with_tokens(axis, ["$", *queries[:-1]] if name == "self" else keys, queries)
        what = "self-attention" if name == "self" else f"cross-attention, {kind}"
        more = f"{window.w} more "
        cross = {"none": "the place alone", "one": more + "to the right", "both": more + "on both sides"}
        opened = cross[window.sides] if name == "cross" else "the last two tokens"
        axis.set(
            title=f"{what}\n{opened}",
            aspect="equal",
            xlabel="tokens written so far" if name == "self" else "token of the problem",
        )
        if kind == one and (name == "self" or window is not wanted[0]):
            axis.set_ylabel("output token")
    legend(figure)
    return figure


@rc_context(STYLE)
def dependencies(problems: Mapping[str, tuple[str, str]]) -> Figure:
    """What output digits depend on (figure 7): digits and carries of a task's problem, by the panel's title."""
    figure, panels = new_figure(len(problems), size=(4.2, 1.9))
    for panel, (title, (name, problem)) in zip(panels, problems.items(), strict=True):
        depend(panel, Task(name), on_paper(Task(name), problem, "aligned"))
        panel.set_title(title)
    return figure


def depend(panel: Axes, task: Task, batch: Batch) -> None:
    """One problem of `dependencies`: a sum, or a successor, which begins with a carry."""
    source, target = (task.text(tokens[0].tolist()) for tokens in (batch.source, batch.target))
    look: dict[str, Any] = {"ha": "center", "va": "center", "family": "monospace"}
    stride, right = len(batch.layout.operands), len(source) - 2
    carry = int(stride == 1)
    arrow: dict[str, Any] = {"arrowprops": {"arrowstyle": "->", "color": "0.3"}}
    said: dict[str, Any] = {"ha": "center", "fontsize": 7, "color": "0.3"}
    if carry:
        panel.annotate("", (right + 0.25, 1.1), (right + 1, 1.1), **arrow)
        panel.text(right + 0.62, 1.24, "carry 1", **said)
    for step, (token, cells) in enumerate(zip(target[1:-1], needed(batch.layout, "cross").numpy(), strict=False)):
        at, keys = right - stride * step, np.flatnonzero(cells).tolist()
        for key in keys:
            panel.plot([key, at], [0.12, 0.88], color=COLORS[0], linewidth=1.4)
        panel.text(at, 1, token, **look)
        carry = (sum(int(source[key]) for key in keys) + carry) // task.base
        if step < len(target) - 3:
            panel.annotate("", (at - stride + 0.25, 1.1), (at, 1.1), **arrow)
            panel.text(at - stride / 2, 1.24, f"carry {carry}", **said)
    for column, token in enumerate(source):
        panel.text(column, 0, token, **look)
    panel.set(xlim=(-0.8, right + 1.8), ylim=(-0.2, 1.4), xticks=[])
    panel.set_yticks([0, 1], ["input", "output"])
    panel.grid(False)
    sns.despine(ax=panel, left=True, bottom=True)


@rc_context(STYLE)
def trace(problem: str) -> Figure:
    """The table of a product as on paper, and arrows to one cell from the four tokens that decide it (yellow).

    A row stands one place further left than the one above. A cell shows its digit and, smaller, what it carries on.
    Digits of the product are green.
    """
    task = Task("n-by-n")
    operands = task.read(problem)
    (carries, digits), (first, second) = np.divmod(task.cells(operands)[0], task.base), (each[0] for each in operands)
    rows, columns = digits.shape
    figure, (axes,) = new_figure(size=(0.62 * (columns + rows) + 1.4, 0.55 * rows + 1.0))
    texts: list[tuple[float, float, str, Any, int]]
    texts = [(-place, 1, str(digit), COLORS[0], 13) for place, digit in enumerate(first)]
    texts += [(1.4, -place, f"× {digit}", COLORS[0], 13) for place, digit in enumerate(second)]
    texts += [
        (-c - r, -r, str(digit), COLORS[2] if c == 0 or r == rows - 1 else "black", 13)
        for (r, c), digit in np.ndenumerate(digits)
    ]
    texts += [(-c - r - 0.2, -r + 0.2, str(carry), "gray", 8) for (r, c), carry in np.ndenumerate(carries) if carry]
    for x, y, text, color, size in texts:
        axes.text(x, y, text, ha="center", va="center", fontsize=size, color=color)
    for x, y in ((-1, 1), (1.4, -1), (-1, -1), (-2, 0)):  # what the framed cell is decided by
        axes.add_patch(Rectangle((x - 0.42, y - 0.36), 0.84, 0.72, color=OPEN_COLOR, alpha=0.5, zorder=0))
    # Arrows to the frame of the cell in column 1, row 1: where they begin and end, and how they bend.
    arrows = [((-1, 1), (-1.7, -0.59), -0.25), ((1.25, -1), (-1.6, -1.2), -0.2)]
    arrows += [((-1, -1), (-1.6, -1), 0.0), ((-2, 0), (-2, -0.59), 0.0)]
    style = {"arrowstyle": "->", "color": COLORS[3], "shrinkA": 9, "shrinkB": 1, "linewidth": 1.4}
    for start, end, bend in arrows:
        axes.annotate("", end, start, arrowprops={**style, "connectionstyle": f"arc3,rad={bend}"})
    frame(axes, -2.02, -0.91, 0.84, 0.82)
    above, before = digits[0, 2], carries[1, 0]
    total = task.base * carries[1, 1] + digits[1, 1]
    sum_ = f"{first[1]} · {second[1]} + {above} + {before} = {total}"  # the last one is the carry of the cell before
    said = f"The frame: {sum_}, so the digit is {digits[1, 1]} and the carry {carries[1, 1]}"
    axes.text(-columns / 2, -rows + 0.35, said, ha="center", va="center", fontsize=10)
    axes.set(xlim=(-columns - rows + 0.6, 1.7), ylim=(-rows + 0.1, 1.5))
    axes.axis("off")
    return figure


@rc_context(STYLE)
def study_heads(study: CalibrationStudy, rows: int | None = None) -> Figure:
    """The last layer's averaged cross-attention by head, up to `rows` outputs; kept lines framed, their share."""
    opened = study.opened("cross", study.last)[:, :rows]
    averaged = study.averages["cross", study.last].numpy()[:, :rows]
    count, height, width = averaged.shape
    keys, queries = letters(study.layout)
    across = min(count, int(PAGE / (0.16 * width + 0.1)) or 1)
    size = (0.16 * width + 0.1 + 0.8 / across, 0.16 * height + 0.55)
    figure, axes = new_figure(count, across, size, sharex=True, sharey=True)
    for head, (axis, matrix, cells) in enumerate(zip(axes, averaged, opened, strict=True)):
        image = heat_map(axis, matrix, aspect="equal", vmin=0, vmax=1)
        share = (matrix * cells).sum() / matrix.sum()
        axis.set_title(f"head {head + 1}: {share:.0%} framed\n{followed(study.bias, study.last, [head])}", fontsize=8)
        with_tokens(axis, keys, queries[:rows], size=7.5)
        outline(axis, cells)
    figure.supxlabel("token of the problem", fontsize=9)
    figure.supylabel("output token", fontsize=9)
    figure.colorbar(image, ax=axes, label="attention", fraction=0.03, pad=0.01)
    return figure


@rc_context(STYLE)
def biases(bias: Lines, layer: int, task: Task, batch: Batch) -> Figure:
    """Which keys a layer's cross-attention opens on a problem (figures 10, 11); heads that are alike share a panel."""
    opened = bias.covers(batch.layout, "cross", layer).numpy()
    keys, queries = (task.text(tokens[0].tolist()) for tokens in (batch.source, batch.target[:, 1:]))
    alike = [[*np.flatnonzero((opened == cells).all(axis=(1, 2)))] for cells in opened]
    groups = [heads for head, heads in enumerate(alike) if heads[0] == head]
    across = min(len(groups), int(PAGE / (0.105 * len(keys) + 0.1)) or 1)
    size = (0.105 * len(keys) + 0.1 + 0.3 / across, 0.125 * len(queries) + 0.5)
    figure, axes = new_figure(len(groups), across, size, sharex=True, sharey=True)
    for axis, heads in zip(axes, groups, strict=True):
        mask(axis, opened[heads[0]])
        with_tokens(axis, keys, queries, size=7.5)
        numbers = f"head{'s' * (len(heads) > 1)} {in_words([head + 1 for head in heads])}"
        axis.set_title(textwrap.fill(f"{numbers}: {followed(bias, layer, heads)}", 32), fontsize=9)
    legend(figure)
    figure.supxlabel("token of the problem", fontsize=9)
    figure.supylabel("output token", fontsize=9)
    return figure


def in_words(numbers: Sequence[int]) -> str:
    """`1, 2, 4 to 8`: numbers in rising order, three or more in a row by their ends."""
    rows = itertools.groupby(enumerate(numbers), lambda pair: pair[1] - pair[0])  # alike in a row
    parts = [[number for _, number in row] for _, row in rows]
    return ", ".join(f"{part[0]} to {part[-1]}" if len(part) > 2 else ", ".join(map(str, part)) for part in parts)


def followed(bias: Lines, layer: int, heads: Sequence[int]) -> str:
    """What lines of cross-attention follow, in few words: `a` and `b` are the numbers."""
    spans: dict[str, list[str]] = {}  # by what is said of them
    for line in bias.of("cross", layer):
        if line.head in heads:
            names = spans.setdefault(beside(line), [])
            names += [name for name in (LETTERS.get(line.span, line.span),) if name not in names]
    return ", ".join(said.format(" and ".join(names)) for said, names in spans.items()) or "nothing"


def beside(line: Line) -> str:
    """Where a line's keys stand to the query, with braces for the name of what it runs over."""
    if line.direction != "antidiagonal":
        return f"{{}}{f', {line.offset:+d}' if line.offset else ''}"
    if not line.offset:
        return "digits of {}"
    away = f"{abs(line.offset)} place{'s' * (abs(line.offset) > 1)} {'below' if line.offset > 0 else 'above'}"
    return f"digits of {{}}, {away}"


@rc_context(STYLE)
def cones(biases: Mapping[str, Lines], problem: str, place: int) -> Figure:
    """What one digit of a sum can depend on, a panel a bias: cells of the problem, and lines from layer to layer."""
    batch = on_paper(Task("addition"), problem, "natural")
    figure, panels = new_figure(len(biases), size=(3.6, 2.2))
    for panel, (title, bias) in zip(panels, biases.items(), strict=True):
        cone(panel, bias, batch, place)
        panel.set_title(title)
    layers = 1 + max(line.layer for bias in biases.values() for line in bias.lines)
    legend(figure, {f"lines of layer {layer + 1}": LAYERS[layer] for layer in range(layers)})
    return figure


def cone(panel: Axes, bias: Lines, batch: Batch, place: int) -> None:
    """One panel of `cones`: the state of a step stands between problem and answer, one for each layer."""
    layout, layers = batch.layout, 1 + max(line.layer for line in bias.lines)
    source, target = (Task("addition").text(tokens[0].tolist()) for tokens in (batch.source, batch.target))
    cells = {
        column: (-at, layers + 2 - number)
        for number, operand in enumerate(layout.operands)
        for at, column in enumerate(operand.columns.tolist())
    }
    written = {index: (1 - index, 0) for index in range(1, len(target) - 1)}  # the token of the place before
    seen, steps = set[tuple[int, int]](), {place}
    panel.plot([-place, -place], [0, 1], color="0.4", linewidth=1.2)
    for layer in reversed(range(layers)):
        keys = [bias.dense(layout, kind, layer).isfinite().any(0).numpy() for kind in ("cross", "self")]
        before: set[int] = set()
        for step in steps:
            height = layers - layer
            inputs = {step, *np.flatnonzero(keys[1][step]).tolist()}  # by the residual connection, and by heads
            ends = [cells[key] for key in np.flatnonzero(keys[0][step]).tolist() if key in cells]
            seen |= {*ends} | ({written[key] for key in inputs if key in written} if layer == 0 else set())
            ends += [(-key, height + 1) if layer else written[key] for key in inputs if layer or key in written]
            for x, y in ends:
                panel.plot([-step, x], [height, y], color=LAYERS[layer], linewidth=1.2, zorder=1)
            panel.plot(-step, height, "o", color=LAYERS[layer], markersize=4, zorder=2)
            before |= inputs
        steps = before
    tokens = [(at, source[column]) for column, at in cells.items()]
    tokens += [(at, target[index] if -at[0] < place else "?") for index, at in written.items() if -at[0] <= place]
    for (x, y), token in tokens:
        box: dict[str, Any] = {"boxstyle": "square,pad=0.25", "facecolor": OPEN_COLOR if (x, y) in seen else "white"}
        box |= {"edgecolor": "#d55e00", "linewidth": 2} if token == "?" else {"edgecolor": "0.6", "linewidth": 0.6}
        panel.text(x, y, token, ha="center", va="center", fontsize=8, family="monospace", bbox=box, zorder=3)
    panel.set(xlim=(-layout.width + 0.3, 0.7), ylim=(-0.6, layers + 2.6))
    panel.axis("off")
