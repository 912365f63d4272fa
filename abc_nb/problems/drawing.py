"""Operands that are drawn at random: of training problems and of test sets."""

import numpy as np

from abc_nb.problems.digits import Digits, distinct_digits, is_less, number_range, to_digits, varied_digits
from abc_nb.problems.notation import stack
from abc_nb.problems.tasks import Task, Width, single_width, width_pair


def training_operands(task: Task, pool: np.ndarray, count: int, width: Width, rng: np.random.Generator) -> list[Digits]:
    """Independent numbers of `pool`, all of which fit, or random tokens; of tables random numbers of the size."""
    rule = task.rule
    if rule.whole and rule.whole.draw:
        return [rule.whole.draw(count, single_width(width), rng)]
    if rule.stacked:
        digits, numbers = width_pair(width)
        return [stack(rule, varied_digits(task.base, count, numbers * digits, rng).reshape(count, numbers, digits))]
    if task.pads:
        drawn = [to_digits(rng.choice(pool, count), task.base, single_width(width)) for _ in range(rule.long_operands)]
        return with_factor(task, drawn, rng)
    if task.two_numbers:
        return [varied_digits(task.base, count, places, rng) for places in task.operand_places(width)]
    alphabets = [input_.alphabet for input_ in rule.inputs]
    sizes = zip(alphabets, task.operand_places(width), strict=True)
    return [alphabet[rng.integers(len(alphabet), size=(count, places))] for alphabet, places in sizes]


def operands_of_length(task: Task, length: Width, samples: int, width: Width, rng: np.random.Generator) -> list[Digits]:
    """At most so many different problems whose operands have exactly `length` digits or items, uniformly drawn.

    Each operand's numbers are distinct; a factor of a few digits is any number of so many.
    """
    rule = task.rule
    if rule.whole and rule.whole.draw:
        return [np.unique(rule.whole.draw(samples, single_width(width), rng), axis=0)]
    if rule.stacked:
        digits, numbers = width_pair(width)
        drawn = rng.integers(task.base, size=(samples, numbers, digits))
        drawn[:, :, -1] = rng.integers(1, task.base, size=(samples, numbers))
        return [stack(rule, drawn)]
    if rule.notation == "number":
        lengths = width_pair(length)[: rule.long_operands + task.table]
        ranges = [number_range(digits, rule.counted_in or task.base) for digits in lengths]
        count = min(samples, *(high - low for low, high in ranges))
        sizes = zip(ranges, task.operand_places(width), strict=False)  # a factor is drawn later
        long = [distinct_digits(low, high, task.base, places, count, rng) for (low, high), places in sizes]
        return with_factor(task, long, rng)
    if task.table:
        return training_operands(task, np.empty(0), samples, width, rng)
    alphabets, places = [input_.alphabet for input_ in rule.inputs[: rule.long_operands]], single_width(length)
    count = min(samples, *(len(alphabet) ** places for alphabet in alphabets))
    indices = (distinct_digits(0, len(alphabet) ** places, len(alphabet), places, count, rng) for alphabet in alphabets)
    long = [alphabet[index] for alphabet, index in zip(alphabets, indices, strict=True)]
    return with_factor(task, long, rng)


def with_factor(task: Task, long: list[Digits], rng: np.random.Generator) -> list[Digits]:
    """All operands: long ones in an order that the task allows, or one and a uniform factor of few digits."""
    alphabet, digits = task.rule.inputs[-1].alphabet, task.rule.short_digits
    factor = [alphabet[rng.integers(len(alphabet), size=(len(long[0]), digits))]] if digits else []
    return larger_first(task, long) + factor


def larger_first(task: Task, long: list[Digits]) -> list[Digits]:
    """Two numbers of the same places, the larger one first where the task wants that."""
    if not task.rule.larger_first:
        return long
    first, second = long
    swapped = is_less(first, second)[:, None]
    return [np.where(swapped, second, first), np.where(swapped, first, second)]
