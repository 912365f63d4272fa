"""The attention explorer's logic: a problem asked of a model, its digits judged, its attention drawn.

Layers, heads and steps count from 0 here; what people read counts from 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from html import escape
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from abc_nb.analysis.attention import AttentionMaps, AttentionStudy, look, needed
from abc_nb.bias.base import Attention
from abc_nb.common.errors import InputError
from abc_nb.experiments import experiment, names
from abc_nb.problems.layouts import Layout
from abc_nb.runs import store
from abc_nb.show import pictures
from abc_nb.show.pictures import MONO, TEXT

LONGEST = 64  # places: more do not fit on the picture
SIZE = (940, 440)  # of the picture, in pixels
WRONG = "color:#8a3000;font-weight:900;"  # and a cross: so that colour is not the only sign
OUTLINES = (("#000000", 2.6), ("#ffffff", 1.0))  # drawn over each other, seen on dark cells and on bright ones


class Digit(NamedTuple):
    """One output token: what the model said, and what is right."""

    said: str
    wanted: str

    @property
    def right(self) -> bool:
        return self.said == self.wanted


class Look(NamedTuple):
    """One key that a head looks at."""

    column: int
    key: str
    weight: float  # from 0 to 1
    needed: bool  # whether the algorithm needs it


@dataclass(frozen=True)
class Asked:
    """One problem as a model decoded it, greedily."""

    study: AttentionStudy
    text: str
    maps: AttentionMaps
    layout: Layout

    @property
    def answer(self) -> str:
        return self.written(self.maps.outputs)

    @property
    def expected(self) -> str:
        return self.written(self.maps.expected)

    def written(self, symbols: list[str]) -> str:
        task = self.study.run.experiment.task
        return task.write([task.token(symbol) for symbol in symbols])

    @cached_property
    def digits(self) -> list[Digit]:
        """The output tokens in the order of decoding."""
        return [Digit(*pair) for pair in zip(self.maps.outputs, self.maps.expected, strict=True)]

    def needed(self, name: Attention) -> np.ndarray:
        """The cells that the algorithm needs, booleans (query, key)."""
        return needed(self.layout, name).numpy()

    def weights(self, name: Attention, layer: int, head: int) -> np.ndarray:
        """One head's attention (query, key)."""
        return self.maps.weights[name, layer][head].numpy()


def models(name: str, seed: int = 0, profile: str = "quick") -> list[str]:
    """The experiments of this one's task whose trained weights are here, made here or shipped."""
    task = experiment(name, profile).identity.task
    same = [str(other) for other in names(profile) if other.task == task]
    runs = {each: store.find(experiment(each, profile), seed) for each in [*same, name]}
    return [name for name, run in runs.items() if run is not None and run.has_weights]


def ask(study: AttentionStudy, text: str) -> Asked:
    """Let the study's model decode a problem as wide as it is written (zeros in front count).

    Raises InputError for a problem of another task, or one too long to be drawn.
    """
    task, sampler = study.run.experiment.task, study.run.experiment.sampler
    places = max(digits.shape[1] for digits in task.read(text, zeros=True))
    if places > LONGEST:
        raise InputError(f"a number of {places} digits is too long to be drawn: type at most {LONGEST}")
    batch = sampler.typed_batch(text)
    return Asked(study, text.strip(), look(study.model, task, batch), batch.layout)


def looked_at(asked: Asked, name: Attention, layer: int, head: int, step: int, count: int = 3) -> list[Look]:
    """The keys that a head looks at most at one step, the most first."""
    weights, keys, should = asked.weights(name, layer, head)[step], asked.maps.keys(name), asked.needed(name)[step]
    columns = np.argsort(-weights, kind="stable")[:count].tolist()
    return [Look(column, keys[column], float(weights[column]), bool(should[column])) for column in columns]


# ---- words ------------------------------------------------------------------------------------------


def verdict(asked: Asked) -> str:
    """One sentence: the answer, and how many of its digits are wrong."""
    wrong = sum(not digit.right for digit in asked.digits)
    if not wrong:
        return f"{asked.text} = {asked.answer} ✓ right"
    return f"{asked.text} = {asked.answer} ✗ wrong in {wrong} of {len(asked.digits)} tokens; right is {asked.expected}"


def step_sentence(asked: Asked, name: Attention, layer: int, head: int, step: int) -> str:
    """What one step writes and what the head looks at while it does."""
    digit = asked.digits[step]
    judged = "✓" if digit.right else f"✗ (right: {digit.wanted})"
    seen = [
        f"{look.key} in column {look.column + 1} {look.weight:.0%}{' □' if look.needed else ''}"
        for look in looked_at(asked, name, layer, head, step)
    ]
    cells = asked.needed(name)[step]
    mass = asked.weights(name, layer, head)[step][cells].sum()
    needed = f"{mass:.0%} is on the needed cells □" if cells.any() else "no cell is needed here"
    return f"Step {step + 1} writes {digit.said} {judged}. This head looks at {', '.join(seen)}; {needed}."


def digits_table(asked: Asked, step: int) -> str:
    """HTML: the answer over the right one, digit by digit, units at the right; later steps are dots."""
    columns = [digit_cells(digit, i == step, i > step) for i, digit in enumerate(asked.digits)]
    rows = zip(("model", "right", ""), zip(*reversed(columns), strict=True), strict=True)
    body = "".join(
        f'<tr><th style="text-align:left;min-width:60px">{head}</th>{"".join(cells)}</tr>' for head, cells in rows
    )
    look = "font:16px/24px monospace;border-collapse:collapse;white-space:nowrap;color:#111;background:#fff"
    return f'<div style="overflow:auto hidden;width:{SIZE[0]}px;height:92px"><table style="{look}">{body}</table></div>'


def digit_cells(digit: Digit, now: bool, later: bool) -> tuple[str, str, str]:
    """One output token as three cells of the table: said, wanted, and a cross if they differ."""
    wrong = not digit.right and not later
    look = ("outline:2px solid #111;outline-offset:-2px;" if now else "") + (WRONG if wrong else "")
    cell = '<td style="padding:0;min-width:22px;text-align:center;{}">{}</td>'
    said = "·" if later else escape(digit.said)
    return cell.format(look, said), cell.format("", escape(digit.wanted)), cell.format(WRONG, "✗" if wrong else "")


# ---- picture ----------------------------------------------------------------------------------------


def attention_figure(asked: Asked, name: Attention, layer: int, head: int, step: int, mark: bool = True) -> Figure:
    """One head's attention up to `step` with tokens on the axes, and all heads small at the right.

    The row of `step` is framed; with `mark`, the cells that the algorithm needs carry a small square.
    """
    figure = pictures.fixed_figure(*SIZE)
    axes = pictures.panel(figure, 70, 30, 610, 344, f"{name}-attention, layer {layer + 1}, head {head + 1}")
    weights = asked.weights(name, layer, head).copy()
    weights[step + 1 :] = np.nan
    pictures.show(axes, pictures.colored(weights, 0, 1))
    label_tokens(axes, asked, name, step)
    for color, width in OUTLINES:
        pictures.framed(axes, (0, step), weights.shape[1], 1, width, color)
    if mark:
        rows, columns = np.nonzero(asked.needed(name)[: step + 1])
        for edge, size in OUTLINES:
            axes.scatter(columns, rows, s=36, marker="s", facecolors="none", edgecolors=edge, linewidths=size)
    draw_scale(figure)
    draw_all_heads(figure, asked, name, (layer, head))
    return figure


def label_tokens(axes: Axes, asked: Asked, name: Attention, step: int) -> None:
    """Tokens on both axes; a wrong output token is bold, with a cross."""
    keys = asked.maps.keys(name)
    size = max(5, min(12, 610 / len(keys), 344 / len(asked.digits) * 0.7))
    axes.set_xticks(range(len(keys)), keys, fontsize=size, **MONO)
    outputs = [digit.said if digit.right else f"✗ {digit.said}" for digit in asked.digits]
    shown = [output if i <= step else "·" for i, output in enumerate(outputs)]
    axes.set_yticks(range(len(shown)), shown, fontsize=size, **MONO)
    for i, label in enumerate(axes.get_yticklabels()):
        if i <= step and not asked.digits[i].right:
            label.set(fontweight="bold", color="#b04000")
    axes.set_xlabel("input token" if name == "cross" else "token before", fontsize=11, **TEXT)
    axes.set_ylabel("output token, units first", fontsize=11, **TEXT)


def draw_scale(figure: Figure) -> None:
    """What the colours mean."""
    scale = pictures.panel(figure, 692, 30, 12, 344)
    pictures.show(scale, pictures.colored(np.linspace(1, 0, 100)[:, None], 0, 1))
    scale.yaxis.tick_right()
    scale.set_yticks([0, 49.5, 99], ["1", "½", "0"], fontsize=10, **TEXT)


def draw_all_heads(figure: Figure, asked: Asked, name: Attention, chosen: tuple[int, int]) -> None:
    """Every head's whole map, a column a layer and a row a head; the chosen one is framed."""
    config = asked.study.run.experiment.model
    places = [(layer, head) for head in range(config.heads) for layer in range(config.decoder_layers)]
    tiles = [pictures.colored(asked.weights(name, *place), 0, 1) for place in places]
    height, width = tiles[0].shape[:2]
    gap = (max(1, height // 10), max(1, width // 20))
    whole, corners = pictures.mosaic(tiles, config.decoder_layers, gap)
    axes = pictures.panel(figure, 746, 30, 188, 384, "all heads")
    pictures.show(axes, whole)
    row, column = corners[places.index(chosen)]
    pictures.framed(axes, (column, row), width, height)
    axes.set_xticks([c + width / 2 for _, c in corners[: config.decoder_layers]])
    axes.set_xticklabels([f"layer {i + 1}" for i in range(config.decoder_layers)], fontsize=10, **TEXT)
    axes.set_yticks([r + height / 2 for r, _ in corners[:: config.decoder_layers]])
    axes.set_yticklabels([str(head + 1) for head in range(config.heads)], fontsize=10, **TEXT)
