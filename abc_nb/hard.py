"""Hard problems: what random test numbers rarely hold, such as a carry through the whole number."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd

from abc_nb.compute import widen
from abc_nb.evaluation import TEST_SEED, exact_match, wilson
from abc_nb.model import Transformer
from abc_nb.sampling import Sampler, generator, make_batch
from abc_nb.tasks import Digits, Task

Maker = Callable[[Task, int, int, np.random.Generator], list[Digits]]


def uniform(task: Task, length: int, count: int, rng: np.random.Generator) -> list[Digits]:
    """Operands of random digits, (count, places) each; a single digit has one place."""
    second = {"": [], "number": [length], "digit": [1]}[task.operation.second]
    return [rng.integers(task.base, size=(count, places)) for places in (length, *second)]


def mostly(digit: int) -> Maker:
    """Nine digits in ten are this one; -1 is the highest digit of the base."""

    def make(task: Task, length: int, count: int, rng: np.random.Generator) -> list[Digits]:
        numbers = uniform(task, length, count, rng)
        return [np.where(rng.random(number.shape) < 0.9, digit % task.base, number) for number in numbers]

    return make


def repeated(task: Task, length: int, count: int, rng: np.random.Generator) -> list[Digits]:
    """One digit, over and over."""
    return [np.repeat(number[:, :1], number.shape[1], axis=1) for number in uniform(task, length, count, rng)]


def carried(task: Task, length: int, count: int, rng: np.random.Generator) -> list[Digits]:
    """One long carry: a run of highest digits from the units on, or for two numbers digits that just carry on."""
    numbers = uniform(task, length, count, rng)
    run = np.arange(length) < rng.integers(length // 2, length + 1, size=(count, 1))
    if task.operation.second != "number":
        return [np.where(run, task.base - 1, numbers[0]), *numbers[1:]]
    complement = task.base - 1 - numbers[0]
    start = np.arange(length) == 0  # the units add up to the base itself, the other places to one less
    numbers[0] = np.where(start, np.maximum(numbers[0], 1), numbers[0])
    return [numbers[0], np.where(start, task.base - numbers[0], np.where(run, complement, numbers[1]))]


def short(task: Task, length: int, count: int, rng: np.random.Generator) -> list[Digits]:
    """Operands of any number of digits up to this length, each its own: zeros in front of all but the longest."""
    found = []
    for number in uniform(task, length, count, rng):
        places = number.shape[1]
        found.append(np.where(np.arange(places) < rng.integers(1, places + 1, size=(count, 1)), number, 0))
    return found


KINDS: dict[str, Maker] = {
    "random digits": uniform,
    "one long carry": carried,
    "mostly zeros": mostly(0),
    "mostly the highest digit": mostly(-1),
    "one digit repeated": repeated,
    "of different lengths": short,
}


def hard_cases(model: Transformer, sampler: Sampler, length: int, samples: int = 200) -> pd.DataFrame:
    """Exact match on each kind of problem of up to `length` digits: kind, samples, accuracy, ci_low, ci_high."""
    task, rows = sampler.task, []
    places, width = task.places(length), task.width(length, sampler.regime)
    for number, (kind, make) in enumerate(KINDS.items()):
        operands = make(task, places, samples, generator(TEST_SEED, length, number))
        batch = make_batch(task, widen(operands, width, task), width, sampler.arrangement)
        right = exact_match(model, batch)
        rows.append((kind, samples, right.float().mean().item(), *wilson(int(right.sum()), samples)))
    return pd.DataFrame(rows, columns=["kind", "samples", "accuracy", "ci_low", "ci_high"])
