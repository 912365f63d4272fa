"""The explorer of contexts: what a model does at one output of a problem; each wrong context of its certificate."""

import ipywidgets as w
import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.ticker import AutoLocator

from abc_nb.analysis import certified
from abc_nb.api import load
from abc_nb.bias.base import Attention
from abc_nb.certificates import files
from abc_nb.common.errors import InputError
from abc_nb.model.attention import Record
from abc_nb.model.transformer import Transformer
from abc_nb.problems.sampling import Batch
from abc_nb.problems.tasks import Task
from abc_nb.runs.run import Run
from abc_nb.show import pictures
from abc_nb.show.explorers.frame import Controls, Explorer, choice, or_sentence, slider, typed, verdict
from abc_nb.training.evaluation import evaluating

OWN = ("as typed below", ())


@or_sentence
def explore_contexts(name: str = "n-by-1-window-cyclic", seed: int = 2) -> w.Widget:
    """Each wrong context of a model's certificate, or an output of a typed problem: logits, margin and attention."""
    run = load(name, seed)
    model, sampler, wrong = run.model(), run.spec.sampler, wrong_sites(run)
    shown = [OWN, *((f"{problem}, output {step}", (problem, step)) for problem, step in wrong)]

    def adjust(controls: Controls, changed: str) -> None:
        """A wrong context brings its problem and output; another problem or output replaces it."""
        if changed in ("", "wrong") and controls["wrong"].value:
            controls["problem"].value, controls["step"].max = controls["wrong"].value
            controls["step"].value = controls["step"].max
        elif changed in ("problem", "step"):
            controls["wrong"].value = ()
        controls["step"].max = sampler.typed_batch(controls["problem"].value).layout.target_length

    def look(figure: Figure, wrong: object, problem: str, step: int) -> str:
        said = draw(figure, model, sampler.task, sampler.typed_batch(problem), step - 1)
        figure.axes[0].set_xlabel(f"token; right: green; written instead: orange\noutput {step} of {problem.strip()}")
        return verdict(said)

    controls = {
        "wrong": choice("wrong context", shown, shown[min(1, len(wrong))][1], 930),
        "problem": typed("problem", sampler.task.problem, 460),
        "step": slider("output (units: 1)", 1, 1, 1, 440),
    }
    return Explorer(controls, look, 330, 28, adjust)


def wrong_sites(run: Run) -> list[tuple[str, int]]:
    """The wrong problems of a model's certificate, each with its first wrong output from 1; InputError without one."""
    if (certificate := certified.of_run(run)) is None:
        name, path = run.spec.name, files.path_of(run.spec.run_name(run.seed))
        command = f"abc-nb certify {name} --seed {run.seed} --output {path}"
        has = f"{name}, seed {run.seed}, has no certificate of the weights that are here"
        raise InputError(f"{has}: run `{command}` first")
    return [(example["problem"], example["token"] + 1) for example in certificate["counterexamples"]]


@torch.inference_mode()
def draw(figure: Figure, model: Transformer, task: Task, batch: Batch, step: int) -> str:
    """Draw the logits of output `step` (from 0) and the weight of each head on open keys; says what is written."""
    record = Record()
    with evaluating(model):
        logits = model(batch.source, batch.target[:, :-1], batch.layout, record)[0, step].numpy()
    right, said = int(batch.target[0, step + 1]), int(logits.argmax())
    draw_logits(figure, task, logits, right)
    draw_weights(figure, {key: own[0, :, step].numpy() for key, own in record.weights.items()}, task, batch, step)
    judged = "✓ right" if said == right else f"✗ right is {task.vocabulary[right]}"
    margin = logits[right] - np.delete(logits, right).max()
    return f"Output {step + 1} is {task.vocabulary[said]} {judged}; margin {margin:.2f}"


def draw_logits(figure: Figure, task: Task, logits: np.ndarray, right: int) -> None:
    """The logits of the digits and of the end of the answer."""
    tokens = [token for token in range(len(task.vocabulary)) if token < task.base or token == right]
    axes, (green, orange) = pictures.panel(figure, 64, 30, 246, 226), pictures.COLORS[2:4]
    colors = [green if token == right else orange if token == logits.argmax() else "0.7" for token in tokens]
    axes.bar(range(len(tokens)), logits[tokens], color=colors)
    axes.axhline(0, color="0.5", linewidth=0.6)
    axes.set_xticks(range(len(tokens)), task.text(tokens))
    axes.yaxis.set_major_locator(AutoLocator())
    axes.set_ylabel("logit")


def draw_weights(
    figure: Figure, weights: dict[tuple[Attention, int], np.ndarray], task: Task, batch: Batch, step: int
) -> None:
    """A map an attention and layer, heads down; of the keys only those that some head sees."""
    order = sorted((key for key in weights if key[0] != "source"), key=lambda key: (key[1], key[0] == "cross"))
    seen = {key: np.flatnonzero(weights[key].max(0) > 0).tolist() for key in order}
    cell, left = 520 / max(1, sum(len(keys) + 1 for keys in seen.values())), 360.0
    for (name, layer), keys in seen.items():
        axes = pictures.panel(figure, left, 30, cell * max(1, len(keys)), 226, f"{name} {layer + 1}")
        if keys:
            image = pictures.heat_map(axes, weights[name, layer][:, keys], "cividis", vmin=0, vmax=1)
            pictures.with_tokens(axes, names_of(name, keys, task, batch, step), [])
            axes.set_xlabel("key")
        left += cell * (len(keys) + 1)
    heads = range(len(weights[order[0]]))
    figure.axes[1].set(ylabel="head", yticks=heads, yticklabels=[head + 1 for head in heads])
    figure.colorbar(image, cax=pictures.panel(figure, 872, 30, 12, 226, "weight"))


def names_of(name: Attention, keys: list[int], task: Task, batch: Batch, step: int) -> list[str]:
    """Keys in words: what each is, how many places above this output, and its token."""
    layout, tokens = batch.layout, batch.target[0] if name == "self" else batch.source[0]
    if name == "self":
        places = {column: ("y", column - 1 - step) for column in range(1, step + 1)}
    else:
        long = [operand.columns.tolist() for operand in layout.operands if not layout.is_short(operand)]
        places = {
            own: (letter, at - step) for letter, part in zip("ab", long, strict=False) for at, own in enumerate(part)
        }
    words = {column: f"{what}{f'{away:+d}' if away else ''}\n" for column, (what, away) in places.items()}
    return [words.get(column, "") + task.vocabulary[int(tokens[column])] for column in keys]
