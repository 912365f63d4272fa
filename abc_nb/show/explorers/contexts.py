"""The explorer of contexts: digits, carry and residue chosen, and what a model does there; its wrong contexts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from html import escape
from typing import Any, NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure

from abc_nb.analysis import certified
from abc_nb.bias.base import Attention
from abc_nb.certificates import files
from abc_nb.certificates.reach import period, reach
from abc_nb.common.errors import InputError
from abc_nb.model.attention import Record
from abc_nb.model.transformer import Transformer
from abc_nb.problems.automaton import Automaton
from abc_nb.problems.sampling import Batch, Sampler
from abc_nb.runs import store
from abc_nb.runs.run import Run
from abc_nb.show import pictures
from abc_nb.show.explorers.frame import Controls, Explorer, View, choice, or_sentence, slider
from abc_nb.specs.spec import spec, train_command
from abc_nb.training.evaluation import evaluating

SIZE = (940, 330)  # pixels
OPERANDS = "ab"  # what the operands of many digits are called
DIGITS = [f"{operand}_{where}" for where in ("here", "below") for operand in OPERANDS]  # the controls of digits
OWN = "as chosen below"


class Choice(NamedTuple):
    """What stands around a place in the middle of a problem."""

    here: tuple[int, ...]  # this place's digit of each operand of many digits
    below: tuple[int, ...]  # the digits of the place below
    factor: int  # the one-digit operand, if there is one
    carry: int  # into the place below: the carry, or the running value
    residue: int  # of the place's index modulo T


@or_sentence
def explore_contexts(name: str = "n-by-1-window-cyclic", seed: int = 2) -> Explorer:
    """Digits, carry and residue as controls: logits, margin and attention there; and each wrong context in turn.

    `name` and `seed` say which of the models with a certificate to begin with.
    """
    first, known = run_of(name, seed), models(name)
    if (first.spec.name, seed) not in known.values():
        raise no_certificate(first)

    @lru_cache(maxsize=4)
    def contexts(model: tuple[str, int]) -> Contexts:
        return Contexts(run_of(*model))

    def adjust(controls: Controls, changed: str) -> None:
        """A model brings its operands, carries, residues and wrong contexts; a choice replaces a wrong context."""
        if changed in ("", "model"):
            fit(controls, contexts(controls["model"].value))
        elif changed != "wrong":
            controls["wrong"].value = 0

    def look(model: tuple[str, int], wrong: int, factor: int, carry: int, residue: int, **digits: int) -> View:
        now = contexts(model)
        here, below = (
            tuple(digits[f"{name}_{where}"] for name in OPERANDS[: now.operands]) for where in ("here", "below")
        )
        return view(now.at_wrong(wrong - 1) if wrong else now.at(Choice(here, below, factor, carry, residue)))

    rows = [
        {
            "model": choice("model", [*known.items()], (first.spec.name, seed), 460),
            "wrong": choice("wrong context", [(OWN, 0)], 0, 440),
        },
        {name: slider(name.replace("_", " "), 0, 0, 9, 220) for name in DIGITS},
        {
            "factor": slider("factor", 0, 0, 9, 220),
            "carry": choice("carry into below", [0], 0, 200),
            "residue": slider("residue", 0, 0, 9, 200),
        },
    ]
    return Explorer(rows, look, 28, adjust)


def fit(controls: Controls, contexts: Contexts) -> None:
    """Controls as a model has them: its digits, one slider an operand, its carries and its wrong contexts."""
    most = contexts.rules.base - 1
    shown = {name for name in DIGITS if name[0] in OPERANDS[: contexts.operands]}
    shown |= {"factor"} if contexts.rules.factor.shape[1] else set()
    for name in (*DIGITS, "factor"):
        controls[name].max, controls[name].value = most, 0 if name.endswith("below") else most
        controls[name].layout.display = "" if name in shown else "none"
    controls["carry"].options = sorted({*contexts.rules.carry.tolist()})
    controls["residue"].max, controls["residue"].value = contexts.period - 1, 0
    wrong = [(f"{text}, output {step}", number) for number, (text, step) in enumerate(contexts.wrong, 1)]
    controls["wrong"].options = [(OWN, 0), *wrong]
    controls["wrong"].value = min(1, len(wrong))


def models(name: str, profile: str = "quick") -> dict[str, tuple[str, int]]:
    """The models of the task of `name` whose weights are here with a certificate of them: name and seed by title."""
    task, found = spec(name, profile).identity.task, dict[str, tuple[str, int]]()
    every = files.shipped() | files.made_here()
    for _, each in sorted(every.items()):
        own, seed = spec(each["experiment"], profile), each["seed"]
        run = store.find(own, seed) if own.identity.task == task and each["profile"] == profile else None
        certificate = certified.of_run(run) if run is not None and run.has_weights else None
        if certificate is not None:
            found[f"{own.name}, seed {seed}: {certificate['wrong']:,} wrong"] = own.name, seed
    return found


def run_of(name: str, seed: int, profile: str = "quick") -> Run:
    """A run whose weights are here; InputError says how to make it."""
    run = store.find(spec(name, profile), seed)
    if run is None or not run.has_weights:
        raise InputError(f"{name}, seed {seed}, has no weights here: run `{train_command(name, seed, profile)}` first")
    return run


def no_certificate(run: Run) -> InputError:
    """One sentence on a run whose weights have no certificate."""
    name, path = run.spec.name, certified.of(run).path
    command = f"abc-nb certify {name} --seed {run.seed} --output {path}"
    return InputError(
        f"{name}, seed {run.seed}, has no certificate of the weights that are here: run `{command}` first"
    )


# ---- what a model does ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Seen:
    """What the model does at one step of one problem, whose tokens up to there are right."""

    batch: Batch
    step: int
    base: int
    symbols: tuple[str, ...]  # the vocabulary
    logits: np.ndarray  # (vocabulary,)
    weights: dict[tuple[Attention, int], np.ndarray]  # (head, key) by attention and layer

    @property
    def right(self) -> int:
        return int(self.batch.target[0, self.step + 1])

    @property
    def margin(self) -> float:
        """The right logit minus the largest other one."""
        return float(self.logits[self.right] - np.delete(self.logits, self.right).max())

    def key(self, name: Attention, column: int) -> str:
        """A key in words: what it is, how many places above this step, and its token."""
        layout = self.batch.layout
        if name == "self":
            symbol = self.symbols[int(self.batch.target[0, column])]
            return f"y{away(column - 1 - self.step)}\n{symbol}" if column else symbol
        symbol = self.symbols[int(self.batch.source[0, column])]
        for operand, letter in zip(layout.operands, OPERANDS, strict=False):
            at = operand.columns.tolist()
            if column in at and not layout.is_short(operand):
                return f"{letter}{away(at.index(column) - self.step)}\n{symbol}"
        return symbol


def away(places: int) -> str:
    """How far a place is from this one: nothing for this one, `-1` for the one below."""
    return f"{places:+d}" if places else ""


class Contexts:
    """One model, and problems that hold the contexts which a reader asks for."""

    def __init__(self, run: Run) -> None:
        self.run, self.sampler = run, run.spec.sampler
        self.rules: Automaton = self.sampler.task.automaton()
        if self.rules.factor.shape[1] > 1:
            raise InputError(f"{self.sampler.task.title} has no explorer: it shows factors of one digit")
        self.far, self.period = reach(self.model, self.sampler, self.rules.settled).far, period(self.model)

    @cached_property
    def model(self) -> Transformer:
        return self.run.model()

    @property
    def operands(self) -> int:
        """How many operands have many digits."""
        return int(self.rules.digits.shape[1])

    @cached_property
    def wrong(self) -> list[tuple[str, int]]:
        """The problems that the model's certificate shows to be wrong, each with its first wrong step.

        InputError where there is no certificate of its weights.
        """
        certificate = certified.of_run(self.run)
        if certificate is None:
            raise no_certificate(self.run)
        return [(example["problem"], example["token"]) for example in certificate["counterexamples"]]

    def at(self, choice: Choice) -> Seen:
        """What the model does there; InputError for a carry that no lower digits give."""
        step, batch = problem(self.sampler, self.rules, choice, self.far, self.period)
        return self.look(batch, step)

    def at_wrong(self, number: int) -> Seen:
        text, step = self.wrong[number]
        return self.look(self.sampler.typed_batch(text), step)

    @torch.inference_mode()
    def look(self, batch: Batch, step: int) -> Seen:
        record = Record()
        with evaluating(self.model):
            logits = self.model(batch.source, batch.target[:, :-1], batch.layout, record)[0, step]
        weights = {key: each[0, :, step].numpy() for key, each in record.weights.items() if key[0] != "source"}
        return Seen(batch, step, self.rules.base, tuple(self.sampler.task.vocabulary), logits.numpy(), weights)


def problem(sampler: Sampler, rules: Automaton, choice: Choice, far: int, period: int) -> tuple[int, Batch]:
    """A problem that holds a choice at a step far from both ends, and that step."""
    step = far + rules.settled + 2
    step += (choice.residue - step) % period
    width = sampler.task.result_places(step + far + 2)
    state = (rules.carry == choice.carry) & (rules.factor == choice.factor).all(1)
    start, inputs = leading_to(rules, step - 1, state)
    digits = np.zeros((1, width, rules.digits.shape[1]), np.int64)
    digits[0, : step - 1] = rules.digits[inputs]
    digits[0, step - 1], digits[0, step] = choice.below, choice.here
    operands = [*(digits[..., number] for number in range(digits.shape[2]))]
    operands += [rules.factor[start : start + 1]] * rules.factor.shape[1]
    return step, sampler.batch(operands, width)


def leading_to(rules: Automaton, places: int, wanted: np.ndarray) -> tuple[int, list[int]]:
    """A start state and inputs of so many places after which the automaton is in one of the `wanted` states."""
    alive = [wanted]
    for _ in range(places):
        alive.insert(0, alive[0][rules.following].any(1))
    start = rules.start[alive[0][rules.start]]
    if not len(start):
        raise InputError("no lower digits give this carry: choose a smaller one, or another factor")
    state, inputs = int(start[0]), list[int]()
    for above in alive[1:]:
        inputs.append(int(above[rules.following[state]].argmax()))
        state = int(rules.following[state, inputs[-1]])
    return int(start[0]), inputs


# ---- what is shown ----------------------------------------------------------------------------------


def view(seen: Seen) -> View:
    """What the step writes and by how much; its logits, and the weight that each head gives to each open key."""
    figure = pictures.fixed_figure(*SIZE)
    draw_logits(figure, seen)
    attentions = sorted(seen.weights, key=lambda key: (key[1], key[0] == "cross"))
    open_keys = {key: np.flatnonzero(seen.weights[key].max(0) > 0).tolist() for key in attentions}
    cell = 560 / max(1, sum(len(keys) + 1 for keys in open_keys.values()))
    left = 360.0
    for key, keys in open_keys.items():
        axes = pictures.panel(figure, left, 30, cell * max(1, len(keys)), 226, f"{key[0]} {key[1] + 1}")
        if keys:
            pictures.heat_map(axes, seen.weights[key][:, keys], "cividis", vmin=0, vmax=1)
            pictures.with_tokens(axes, [seen.key(key[0], column) for column in keys], [])
        left += cell * (len(keys) + 1)
    figure.axes[1].set_ylabel("head")
    return View(f'<b class="abc-answer" style="font-size:16px">{escape(sentence(seen))}</b>', figure)


def sentence(seen: Seen) -> str:
    """What the step writes, and by how much."""
    said, right = seen.symbols[int(seen.logits.argmax())], seen.symbols[seen.right]
    judged = "✓ right" if said == right else f"✗ right is {right}"
    return f"Output {seen.step} (units = 0) is {said} {judged}; margin {seen.margin:.2f}"


def draw_logits(figure: Figure, seen: Seen) -> None:
    """The logits of the digits and of the end of the answer."""
    tokens = [number for number in range(len(seen.symbols)) if number < seen.base or number == seen.right]
    axes = pictures.panel(figure, 40, 30, 280, 226, "logits")
    best = int(seen.logits.argmax())
    green, orange = pictures.COLORS[2], pictures.COLORS[3]
    colors: list[Any] = [green if token == seen.right else orange if token == best else "0.7" for token in tokens]
    axes.bar(range(len(tokens)), seen.logits[tokens], color=colors)
    axes.axhline(0, color="0.5", linewidth=0.6)
    axes.set_xticks(range(len(tokens)), [seen.symbols[token] for token in tokens])
    problem = "".join(seen.symbols[token] for token in seen.batch.source[0].tolist())
    axes.set_xlabel(f"right: green; written instead: orange\noutput token {seen.step + 1} of {problem}")
