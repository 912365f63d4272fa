"""The window bench: a hand-made mask, open to one side, and what was measured with it."""

from functools import partial
from html import escape

import ipywidgets as w
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from abc_nb.bias.base import ENCODER_DECODER, Attention, Bias, Causal
from abc_nb.bias.window import Window
from abc_nb.common.errors import InputError
from abc_nb.problems.tasks import Task
from abc_nb.runs import store
from abc_nb.show import pictures
from abc_nb.show.explorers.frame import Explorer, control, or_sentence
from abc_nb.show.maps import percent_map
from abc_nb.specs.experiment import Name
from abc_nb.specs.models import WINDOWS
from abc_nb.specs.names import ARITHMETIC, train_command
from abc_nb.specs.recipes import TABLE
from abc_nb.specs.spec import spec

TESTED = 60  # digits
W = {"none": None} | {str(w): w for w in range(4)}  # no window, and the columns that are open beside a place's
T = {"none": None} | {str(t): t for t in range(2, 9)}  # a plain index, and periods
TRAINED = {("1", "none"): "window", ("1", "3"): "window-cyclic"}  # models by window and period
TRAINED |= {(w, t): f"window-w{w}-t{t}" for w in W for t in T if f"window-w{w}-t{t}" in WINDOWS}


@or_sentence
def explore_window(task: str = "addition", seed: int = 0) -> w.Widget:
    """Window and period as sliders: the mask, its open keys, and the accuracy that was measured with them."""
    if task not in ARITHMETIC:
        raise InputError(f"there is no window bench for {task!r}: choose one of {', '.join(ARITHMETIC)}")
    controls = {
        "w": control(w.SelectionSlider, "window w", 420, options=[*W], value="1"),
        "t": control(w.SelectionSlider, "period T", 420, options=[*T], value="3"),
        "length": control(w.IntSlider, "digits in the mask", 420, value=6, min=1, max=20),
    }
    return Explorer(controls, partial(look, task, seed, measured(task, seed)), 560, 28)


def look(task: str, seed: int, rows: pd.DataFrame, figure: Figure, w: str, t: str, length: int) -> str:
    """Draw masks and accuracies; gives what was measured with this window and period."""
    draw_masks(figure, masks_of(task, W[w], length), T[t])
    draw_accuracies(figure, rows, w, t)
    return escape(sentence(task, rows, w, t, seed))


def masks_of(task: str, w: int | None, length: int) -> dict[Attention, np.ndarray]:
    """Which keys each query may look at, booleans (query, key); without a window all but later tokens."""
    layout = Task(task).layout(Task(task).width(length, "tight"), "aligned")
    bias: Bias = Causal() if w is None else Window(w)
    return {name: bias.opened(layout, name, 0)[0].numpy() for name in ENCODER_DECODER[::-1]}


def measured(task: str, seed: int) -> pd.DataFrame:
    """What finished runs say: w and T (as the sliders show them), length, accuracy (percent)."""
    parts = [pd.DataFrame(columns=["w", "T", "length", "accuracy"], dtype=object)]
    for (window, period), model in TRAINED.items():
        if run := store.find(spec(Name(task, model)), seed):
            rows = run.evaluation()[["length", "accuracy"]]
            parts.append(rows.assign(accuracy=100 * rows.accuracy, w=window, T=period))
    return pd.concat(parts, ignore_index=True)


def sentence(task: str, measured: pd.DataFrame, w: str, t: str, seed: int = 0) -> str:
    """The measured accuracy of one window and period at a few lengths, or what to run to measure it."""
    rows = measured[(measured.w == w) & (measured["T"] == t) & measured.length.isin(TABLE)]
    if len(rows):
        parts = [f"{accuracy:.1f}% at {length}" for length, accuracy in zip(rows.length, rows.accuracy, strict=True)]
        return f"Exact match: {', '.join(parts)} digits."
    if (model := TRAINED.get((w, t))) is None:
        return f"w={w}, T={t} is no experiment"
    return f"w={w}, T={t} is not trained yet: run `{train_command(Name(task, model), seed)}`"


def draw_masks(figure: Figure, masks: dict[Attention, np.ndarray], t: int | None) -> None:
    """The mask of both attentions, open cells bright, with the position index that the model sees on the axes."""
    for (name, cells), left, width in zip(masks.items(), (46, 654), (550, 280), strict=True):
        axes = pictures.panel(figure, left, 30, width, 226, f"{name}-attention: {cells.sum()} of {cells.size} open")
        pictures.mask(axes, cells)
        queries, keys = (np.arange(count) for count in cells.shape)
        keys = keys[::-1] if name == "cross" else keys  # the source is counted from its right end
        size = max(4, min(10, width / len(keys) * 0.6, 226 / len(queries) * 0.6))
        keys, queries = (indices % t if t else indices for indices in (keys, queries))
        pictures.with_tokens(axes, [*map(str, keys)], [*map(str, queries)], size)
        axes.set(xlabel="position index of the key" + f", modulo {t}" * bool(t), ylabel="position index of the query")


def draw_accuracies(figure: Figure, measured: pd.DataFrame, w: str, t: str) -> None:
    """What was measured at sixty digits, by the windows and periods that were trained; the chosen ones are framed."""
    axes = pictures.panel(figure, 46, 336, 550, 180)
    rows, columns = (
        [label for label in labels if label in {*seen}]
        for labels, seen in zip((W, T), zip(*TRAINED, strict=True), strict=True)
    )
    cells = measured[measured.length == TESTED].pivot(index="w", columns="T", values="accuracy").astype(float)
    percent_map(axes, cells.reindex(rows, columns=columns), f"exact match (%) at {TESTED} digits; empty: not trained")
    axes.set(xlabel="period T", ylabel="window w")
    if w in rows and t in columns:
        pictures.frame(axes, columns.index(t) + 0.5, rows.index(w) + 0.5)
