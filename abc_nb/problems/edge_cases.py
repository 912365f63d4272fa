"""Hard problems: what random test numbers rarely hold, such as a carry through the whole number."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from abc_nb.problems.tasks import Digits, Task

Maker = Callable[[Task, int, int, np.random.Generator], list[Digits]]


def uniform(task: Task, length: int, count: int, rng: np.random.Generator) -> list[Digits]:
    """Operands of random digits, (count, places) each; a single digit has one place."""
    return [rng.integers(task.base, size=(count, places)) for places in task.operand_places(length)]


def mostly(digit: int) -> Maker:
    """Nine digits in ten are this one; -1 is the highest digit of the base."""

    def make(task: Task, length: int, count: int, rng: np.random.Generator) -> list[Digits]:
        numbers = uniform(task, length, count, rng)
        return [np.where(rng.random(number.shape) < 0.9, digit % task.base, number) for number in numbers]

    return make


def repeated(task: Task, length: int, count: int, rng: np.random.Generator) -> list[Digits]:
    """One digit, over and over."""
    return [np.repeat(number[:, :1], number.shape[1], axis=1) for number in uniform(task, length, count, rng)]


def carry(task: Task, numbers: list[Digits], run: np.ndarray) -> list[Digits]:
    """Change a number from the units on, so that a carry runs through `run` places, (count, 1).

    Successor and N x 1 get highest digits, two numbers get digits that just carry on: the units add up
    to the base itself, the other places to one less. What is left may carry the run further.
    """
    inside = np.arange(numbers[0].shape[1]) < run
    if task.operation.second is not None:
        least = min(2, task.base - 1)  # by 0 and 1 nothing is carried
        factors = [np.maximum(factor, least) for factor in numbers[1:]]
        return [np.where(inside, task.base - 1, numbers[0]), *factors]
    first, second = numbers
    start = inside & (np.arange(inside.shape[1]) == 0)
    first = np.where(start, np.maximum(first, 1), first)
    complement = task.base - 1 - first
    return [first, np.where(start, complement + 1, np.where(inside, complement, second))]


def carried(task: Task, length: int, count: int, rng: np.random.Generator) -> list[Digits]:
    """One long carry, through half of the places or more."""
    numbers = uniform(task, length, count, rng)
    return carry(task, numbers, rng.integers(max(1, length // 2), length + 1, size=(count, 1)))


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


def carries(operands: Sequence[Digits], base: int) -> np.ndarray:
    """Where adding two operands carries out of a place: booleans of shape (samples, places)."""
    a, b = operands
    out, carry = np.zeros(a.shape, bool), np.zeros(len(a), np.int64)
    for place in range(a.shape[1]):
        carry = (a[:, place] + b[:, place] + carry) // base
        out[:, place] = carry > 0
    return out


def longest_run(flags: np.ndarray) -> np.ndarray:
    """Longest run of True in each row, shape (samples,)."""
    run = best = np.zeros(len(flags), np.int64)
    for column in flags.T:
        run = np.where(column, run + 1, 0)
        best = np.maximum(best, run)
    return best
