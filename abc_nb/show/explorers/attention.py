"""The attention explorer: a problem asked of a model, its digits judged, its attention drawn.

Layers, heads and steps count from 1 in the controls and in words, from 0 elsewhere.
"""

from __future__ import annotations

from functools import lru_cache
from html import escape
from typing import NamedTuple

import ipywidgets as w
import numpy as np
from matplotlib.figure import Figure

from abc_nb.analysis.attention import AttentionStudy, Decoded, HeadMap
from abc_nb.bias.base import Attention
from abc_nb.common.errors import InputError
from abc_nb.runs import store
from abc_nb.show import pictures
from abc_nb.show.explorers.frame import Controls, Explorer, View, choice, labelled, or_sentence, slider
from abc_nb.specs.spec import spec, train_command
from abc_nb.specs.studies import names

LONGEST = 64  # places: more do not fit on the picture
SIZE = (940, 440)  # of the picture, in pixels
WRONG = "color:#8a3000;font-weight:900;"  # and a cross: so that colour is not the only sign


@or_sentence
def explore_attention(
    name: str = "addition-abc", problem: str | None = None, seed: int = 0, profile: str = "quick"
) -> Explorer:
    """Type a problem, step through its decoding, and see what a trained model looks at.

    `name` is the model to begin with (others of its task can be chosen), `problem` what it is asked first.
    """
    if name not in (known := models(name, seed, profile)):
        raise InputError(f"the weights of {name} are not here: run `{train_command(name, seed, profile)}` first")

    @lru_cache(maxsize=4)
    def study(model: str) -> AttentionStudy:
        run = store.find(spec(model, profile), seed)
        if run is None:
            raise InputError(f"{model} is not here any more: run `{train_command(model, seed, profile)}`")
        return AttentionStudy(run, samples=100)

    @lru_cache(maxsize=4)
    def asked(model: str, problem: str) -> Asked:
        return ask(study(model), problem)

    def adjust(controls: Controls, changed: str) -> None:
        """Another model has its own sizes, another attention its best head; a new problem is shown as a whole."""
        now = study(controls["model"].value)
        if changed in ("", "model", "attention"):
            config = now.run.spec.model
            controls["layer"].max, controls["head"].max = config.decoder_layers, config.heads
            layer, head = now.ranked_heads(controls["attention"].value)[0]
            controls["layer"].value, controls["head"].value = layer + 1, head + 1
        if changed in ("", "model", "problem"):
            controls["step"].max = len(asked(controls["model"].value, controls["problem"].value).decoded.outputs)
            controls["step"].value = controls["step"].max

    def look(model: str, problem: str, **values: object) -> View:
        return view(asked(model, problem), **values)  # type: ignore[arg-type]

    problem = problem or spec(name, profile).task.problem
    rows = [
        {
            "problem": labelled(w.Text, "problem", 340, value=problem, continuous_update=False),
            "model": choice("model", known, name, 270),
            "step": slider("step", 1, 1, 1, 300),
        },
        {
            "attention": choice("attention", ["cross", "self"], "cross", 180),
            "layer": slider("layer", 1, 1, 1, 220),
            "head": slider("head", 1, 1, 1, 280),
            "mark": w.Checkbox(True, description="mark the needed cells □", indent=False),
        },
    ]
    return Explorer(rows, look, 168, adjust)


class Asked(NamedTuple):
    """A problem, what the model answers, what is right, and how the model decoded it."""

    problem: str
    answer: str
    expected: str
    decoded: Decoded


def models(name: str, seed: int = 0, profile: str = "quick") -> list[str]:
    """The experiments of this one's task whose trained weights are here, made here or shipped."""
    task = spec(name, profile).identity.task
    same = dict.fromkeys([*(str(other) for other in names(profile) if other.task == task), name])
    runs = {other: store.find(spec(other, profile), seed) for other in same}
    return [other for other, run in runs.items() if run is not None and run.has_weights]


def ask(study: AttentionStudy, text: str) -> Asked:
    """Let the study's model decode a problem as wide as it is written (zeros in front count).

    Raises InputError for a problem of another task, or one too long to be drawn.
    """
    task = study.run.spec.task
    places = max(digits.shape[1] for digits in task.read(text, zeros=True))
    if places > LONGEST:
        raise InputError(f"a number of {places} digits is too long to be drawn: type at most {LONGEST}")
    decoded = study.example(text)
    said, wanted = (
        task.write([task.token(symbol) for symbol in symbols]) for symbols in (decoded.outputs, decoded.expected)
    )
    return Asked(text.strip(), said, wanted, decoded)


def view(asked: Asked, attention: Attention, layer: int, head: int, step: int, mark: bool = True) -> View:
    """The answer, its digits up to a step, and one head's attention up to there, as sentences and a picture."""
    chosen = asked.decoded.head(attention, layer - 1, head - 1)
    text = [
        f'<b class="abc-answer" style="font-size:16px;white-space:nowrap">{escape(verdict(asked))}</b>',
        digits_table(asked.decoded, step),
        f'<span class="abc-step">{escape(step_sentence(asked.decoded, chosen, step))}</span>',
    ]
    return View("".join(text), figure(asked.decoded, chosen, (attention, layer - 1, head - 1), step, mark))


def verdict(asked: Asked) -> str:
    """One sentence: the answer, and how many of its tokens are wrong."""
    right = asked.decoded.right
    if all(right):
        return f"{asked.problem} = {asked.answer} ✓ right"
    wrong = f"✗ wrong in {right.count(False)} of {len(right)} tokens; right is {asked.expected}"
    return f"{asked.problem} = {asked.answer} {wrong}"


def step_sentence(decoded: Decoded, chosen: HeadMap, step: int, count: int = 3) -> str:
    """What one step writes, and the keys that the head looks at most while it does."""
    at = step - 1
    judged = "✓" if decoded.right[at] else f"✗ (right: {decoded.expected[at]})"
    weights, needed = chosen.weights[at], chosen.needed[at]
    seen = [
        f"{chosen.keys[column]} in column {column + 1} {weights[column]:.0%}{' □' if needed[column] else ''}"
        for column in np.argsort(-weights, kind="stable")[:count].tolist()
    ]
    mass = f"{weights[needed].sum():.0%} is on the needed cells □" if needed.any() else "no cell is needed here"
    return f"Step {step} writes {decoded.outputs[at]} {judged}. This head looks at {', '.join(seen)}; {mass}."


def digits_table(decoded: Decoded, step: int) -> str:
    """HTML: the answer over the right one, token by token, units at the right; later steps are dots."""
    rows: dict[str, list[str]] = {"model": [], "right": [], "": []}
    cell = '<td style="padding:0;min-width:22px;text-align:center;{}">{}</td>'
    for at in reversed(range(len(decoded.outputs))):
        wrong = WRONG if at < step and not decoded.right[at] else ""
        now = "outline:2px solid #111;outline-offset:-2px;" if at == step - 1 else ""
        rows["model"].append(cell.format(now + wrong, escape(decoded.outputs[at]) if at < step else "·"))
        rows["right"].append(cell.format("", escape(decoded.expected[at])))
        rows[""].append(cell.format(wrong, "✗" if wrong else ""))
    head = '<tr><th style="text-align:left;min-width:60px">{}</th>{}</tr>'
    body = "".join(head.format(name, "".join(cells)) for name, cells in rows.items())
    look = "font:16px/24px monospace;border-collapse:collapse;white-space:nowrap;color:#111;background:#fff"
    return f'<div style="overflow:auto hidden;width:{SIZE[0]}px;height:92px"><table style="{look}">{body}</table></div>'


def figure(
    decoded: Decoded, chosen: HeadMap, place: tuple[Attention, int, int], step: int, mark: bool = True
) -> Figure:
    """One head's attention up to `step` with tokens on the axes, and all heads small at the right.

    The row of `step` is framed; with `mark`, the cells that the algorithm needs are outlined.
    """
    drawn = pictures.fixed_figure(*SIZE)
    axes = pictures.panel(drawn, 70, 30, 610, 344, chosen.title)
    later = np.arange(len(chosen.weights))[:, None] >= step
    image = pictures.heat_map(axes, np.where(later, np.nan, chosen.weights), vmin=0, vmax=1)
    size = max(5, min(12, 610 / len(chosen.keys), 344 / len(chosen.outputs) * 0.7))
    said = [token if right else f"✗ {token}" for token, right in zip(chosen.outputs, chosen.right, strict=True)]
    pictures.with_tokens(axes, chosen.keys, [*said[:step], *"·" * (len(said) - step)], size)
    for label, right in zip(axes.get_yticklabels()[:step], chosen.right, strict=False):
        label.set(color="black" if right else "#b04000", fontweight="normal" if right else "bold")
    axes.set(xlabel=chosen.xlabel, ylabel="output token, units first")
    if mark:
        pictures.outline(axes, chosen.needed & ~later)
    pictures.frame(axes, 0, step - 1, len(chosen.keys))
    drawn.colorbar(image, cax=pictures.panel(drawn, 692, 30, 12, 344))
    draw_all_heads(drawn, decoded, place)
    return drawn


def draw_all_heads(drawn: Figure, decoded: Decoded, chosen: tuple[Attention, int, int]) -> None:
    """Every head's whole map, a column a layer and a row a head; the chosen one is framed."""
    name, layer, head = chosen
    layers = [weights.numpy() for (kind, _), weights in decoded.weights.items() if kind == name]
    heads, height, width = layers[0].shape
    matrices = [weights[number] for number in range(heads) for weights in layers]
    whole, corners = pictures.mosaic(matrices, len(layers), (max(1, height // 10), max(1, width // 20)))
    axes = pictures.panel(drawn, 760, 30, 174, 384, "all heads, a layer a column")
    pictures.heat_map(axes, whole, vmin=0, vmax=1)
    row, column = corners[head * len(layers) + layer]
    pictures.frame(axes, column, row, width, height)
    axes.set_yticks(
        [top + height / 2 for top, _ in corners[:: len(layers)]], [str(number) for number in range(1, heads + 1)]
    )
