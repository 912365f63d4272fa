"""The attention explorer: a problem asked of a model, its digits judged, its attention drawn.

Layers, heads and steps count from 1 in the controls and in words, from 0 elsewhere.
"""

from functools import lru_cache
from html import escape

import ipywidgets as w
import numpy as np
from matplotlib.figure import Figure

from abc_nb.analysis.attention import AttentionStudy, Decoded, HeadMap
from abc_nb.api import load
from abc_nb.bias.base import Attention
from abc_nb.common.errors import InputError
from abc_nb.show import pictures
from abc_nb.show.explorers.explorer import Controls, Explorer, control, or_sentence

MOST_PLACES = 64  # places: more do not fit on the picture


@or_sentence
def explore_attention(
    name: str = "addition-abc", problem: str | None = None, seed: int = 0, profile: str = "quick"
) -> w.Widget:
    """Type a problem, step through its decoding, and see what the trained model `name` looks at."""
    study = AttentionStudy(load(name, seed, profile), samples=100)
    config, first, default = study.model.config, study.ranked_heads("cross")[0], study.run.spec.task.example
    decode = lru_cache(maxsize=4)(lambda problem: ask(study, problem))

    def adjust(controls: Controls, changed: str) -> None:
        """Another attention begins with its best head; a new problem is shown as a whole."""
        if changed == "attention":
            layer, head = study.ranked_heads(controls["attention"].value)[0]
            controls["layer"].value, controls["head"].value = layer + 1, head + 1
        if changed in ("", "problem"):
            controls["step"].max = controls["step"].value = len(decode(controls["problem"].value)[1].outputs)

    def draw(figure: Figure, problem: str, step: int, attention: Attention, layer: int, head: int) -> str:
        verdict, decoded = decode(problem)
        head_map = decoded.head(attention, layer - 1, head - 1)
        draw_head(figure, head_map, step)
        draw_all_heads(figure, decoded, attention, layer - 1, head - 1)
        answer = f'<b class="abc-answer" style="font-size:16px;white-space:nowrap">{escape(verdict)}</b>'
        return f'{answer}<div class="abc-step">{escape(step_sentence(decoded, head_map, step))}</div>'

    controls = {
        "problem": control(w.Text, "problem", 460, value=problem or default, continuous_update=False),
        "step": control(w.IntSlider, "step", 440, value=1, min=1, max=1),
        "attention": control(w.Dropdown, "attention", 180, options=["cross", "self"], value="cross"),
        "layer": control(w.IntSlider, "layer", 220, value=first[0] + 1, min=1, max=config.decoder_layers),
        "head": control(w.IntSlider, "head", 280, value=first[1] + 1, min=1, max=config.heads),
    }
    return Explorer(controls, draw, 440, 56, adjust)


def ask(study: AttentionStudy, text: str) -> tuple[str, Decoded]:
    """The model's answer with a verdict, and its decoding of the problem; InputError for one too long to draw."""
    task = study.run.spec.task
    places = max(digits.shape[1] for digits in task.read(text))
    if places > MOST_PLACES:
        raise InputError(f"a number of {places} digits is too long to be drawn: type at most {MOST_PLACES}")
    decoded = study.example(text)
    answer, right = (
        task.write([*map(task.token, tokens)], decoded.layout) for tokens in (decoded.outputs, decoded.expected)
    )
    wrong = decoded.right.count(False)
    verdict = f"✗ wrong in {wrong} of {len(decoded.right)} tokens; right is {right}" if wrong else "✓ right"
    return f"{text.strip()} = {answer} {verdict}", decoded


def step_sentence(decoded: Decoded, head: HeadMap, step: int) -> str:
    """What one step writes, and the keys that the head looks at most while it does."""
    row = step - 1
    verdict = "✓" if decoded.right[row] else f"✗ (right: {decoded.expected[row]})"
    weights, needed = head.weights[row], head.needed[row]
    keys = [
        f"{head.keys[column]} in column {column + 1} {weights[column]:.0%}{' □' if needed[column] else ''}"
        for column in np.argsort(-weights, kind="stable")[:3].tolist()
    ]
    mass = f"{weights[needed].sum():.0%} is on the needed cells □" if needed.any() else "no cell is needed here"
    return f"Step {step} writes {decoded.outputs[row]} {verdict}. This head looks at {', '.join(keys)}; {mass}."


def draw_head(figure: Figure, head: HeadMap, step: int) -> None:
    """One head's attention up to `step`, whose row is framed; the needed cells are outlined."""
    axes = pictures.pixel_axes(figure, 70, 30, 584, 344, head.title)
    later = np.arange(len(head.weights))[:, None] >= step
    image = pictures.heat_map(axes, np.where(later, np.nan, head.weights), vmin=0, vmax=1)
    size = max(5, min(12, 584 / len(head.keys), 344 / len(head.outputs) * 0.7))
    outputs = [token if right else f"✗ {token}" for token, right in zip(head.outputs, head.right, strict=True)]
    pictures.label_tokens(axes, head.keys, [*outputs[:step], *"·" * (len(outputs) - step)], size, head.right[:step])
    axes.set(xlabel=head.xlabel, ylabel="output token, units first")
    pictures.outline(axes, head.needed & ~later)
    pictures.frame_block(axes, 0, step - 1, len(head.keys))
    figure.colorbar(image, cax=pictures.pixel_axes(figure, 664, 30, 12, 344, "attention"))


def draw_all_heads(figure: Figure, decoded: Decoded, name: Attention, layer: int, head: int) -> None:
    """Every head's whole map, a column per layer and a row per head; the chosen one is framed."""
    layers = [weights.numpy() for (kind, _), weights in decoded.weights.items() if kind == name]
    heads, height, width = layers[0].shape
    axes = pictures.pixel_axes(figure, 766, 30, 168, 366, "all heads")
    matrices = [weights[number] for number in range(heads) for weights in layers]
    corners = pictures.mosaic(axes, matrices, len(layers), (max(1, height // 10), max(1, width // 20)))
    row, column = corners[head * len(layers) + layer]
    pictures.frame_block(axes, column, row, width, height)
    axes.set_yticks([top + height / 2 for top, _ in corners[:: len(layers)]], [*map(str, range(1, heads + 1))])
    axes.set_xticks([left + width / 2 for _, left in corners[: len(layers)]], [*map(str, range(1, len(layers) + 1))])
    axes.set(xlabel="layer", ylabel="head")
