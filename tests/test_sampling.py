"""Samples: the split, what each batch is made of, and test sets, against Python integers."""

import hashlib
import json
from collections.abc import Callable
from operator import add, ge, mul, sub
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import torch
from helpers import array, integers, places_of
from hypothesis import given
from hypothesis import strategies as st

from abc_nb.problems import digits as writing
from abc_nb.problems import sampling
from abc_nb.problems.drawing import operands_of_length
from abc_nb.problems.layouts import Arrangement
from abc_nb.problems.sampling import Batch, Sampler
from abc_nb.problems.tasks import REGISTRY, Regime, Task

BASES = st.integers(2, 16)
DRAWN = Path(__file__).with_name("drawn.json")


def drawn_for_test(task: Task, length: int, samples: int) -> list[np.ndarray]:
    return operands_of_length(task, length, samples, task.width(length, "tight"), np.random.default_rng(5))


def operands_of(batch: Batch, base: int) -> list[list[int]]:
    """The numbers in a batch's source, read from its tokens."""
    return [integers(batch.source[:, operand.columns].numpy(), base) for operand in batch.layout.operands]


def same(first: Batch, second: Batch) -> bool:
    return torch.equal(first.source, second.source) and torch.equal(first.target, second.target)


# ---- training and validation ------------------------------------------------------------------------


def test_split_is_seven_to_one_disjoint_and_complete() -> None:
    train, validation = sampling.split_numbers(0)
    assert abs(len(train) - 7 * len(validation)) < 8
    np.testing.assert_array_equal(np.sort(np.concatenate([train, validation])), np.arange(2**20 + 1))


@pytest.mark.parametrize(
    ("name", "base", "arrangement", "regime"),
    [
        ("successor", 10, "natural", "tight"),
        ("addition", 7, "aligned", "tight"),
        ("parity", 2, "natural", "tight"),
        ("addition", 10, "as-written", "unpadded"),
    ],
)
def test_training_and_validation_numbers_come_from_their_own_part(
    name: str, base: int, arrangement: Arrangement, regime: Regime
) -> None:
    """Unpadded ones have as many digits as columns."""
    sampler = Sampler(Task(name, base), arrangement, regime)
    training = [sampler.training_batch(0, step, 50) for step in range(60)]
    for batches, part in zip((training, sampler.validation_batches(0, 500)), sampling.split_numbers(0), strict=True):
        assert {batch.layout.width for batch in batches} == {*sampler.widths}
        for batch in batches:
            for numbers in operands_of(batch, base):
                assert np.isin(numbers, part).all()
                assert regime != "unpadded" or all(len(str(number)) == batch.layout.width for number in numbers)


COMPUTE: dict[str, Callable[..., int]] = {"successor": lambda a: a + 1, "addition": add, "subtraction": sub}
COMPUTE |= dict.fromkeys(("n-by-1", "n-by-2", "n-by-3", "direct-n-by-n"), mul)


@given(st.sampled_from([*COMPUTE]), BASES, st.sampled_from(get_args(Arrangement)), st.integers(1, 60))
def test_batches_hold_right_answers(name: str, base: int, arrangement: Arrangement, length: int) -> None:
    sampler = Sampler(Task(name, base), arrangement, width_count=3)
    tested, trained = sampler.test_batch(length, 20, 1), sampler.training_batch(0, 0, 20)
    for batch in (trained, tested, *sampler.validation_batches(0, 20)):
        numbers = [integers(digits, base) for digits in batch.operands(torch.arange(len(batch.source)), sampler.task)]
        answers = batch.target[:, 1:-1].flip(1) if arrangement == "as-written" else batch.target[:, 1:-1]
        assert integers(answers.numpy(), base) == [*map(COMPUTE[name], *numbers)]
        assert name != "subtraction" or all(map(ge, *numbers)), "the larger number is first"


def test_widths_of_training() -> None:
    assert Sampler(Task("addition"), width_count=3).widths == (7, 8, 9)  # 2^20 + 2^20 has seven digits
    assert Sampler(Task("addition"), regime="padded", width_count=3).widths == (61,)
    assert Sampler(Task("addition"), "as-written", "unpadded").widths == (2, 3, 4, 5, 6)
    assert Sampler(Task("listops-sm")).widths == (1, 2, 3, 4, 5, 6, 7)
    assert Sampler(Task("direct-listops-nested")).widths == (1, 3, 5, 7, 9, 11, 13)


@pytest.mark.parametrize("name", [name for name in REGISTRY if not Task(name).table])
def test_of_padded_problems_calibration_sees_the_digits_that_training_numbers_fill(name: str) -> None:
    task = Task(name)
    sampler = Sampler(task, regime="padded")
    cut, whole = sampler.calibration_batch(0, 200), sampler.calibration_batch(0, 200, padding=True)
    tokens = cut.layout.target_length
    assert tokens == min(task.training_width, whole.layout.target_length)
    assert torch.equal(cut.source, whole.source) and torch.equal(cut.target, whole.target[:, : tokens + 1])
    assert cut.layout.filled == task.training_width and whole.layout.filled is None
    if task.pads:
        for operand in cut.layout.operands:
            assert not cut.source[:, operand.columns[cut.layout.filled :].tolist()].any(), "zeros in front"
    if task.grows:
        assert not whole.target[:, tokens + 1 : -1].any(), "zeros, and the end"
    tight = Sampler(task)
    assert same(tight.calibration_batch(0, 20), tight.calibration_batch(0, 20, padding=True)), "of tight ones all"


# ---- test sets --------------------------------------------------------------------------------------


@given(
    st.sampled_from(["successor", "addition", "parity", "listops-sm"]),
    BASES,
    st.sampled_from([1, 2, 3, 6, 7, 8, 20, 60]),
    st.sampled_from([30, 2_000]),
)
def test_test_numbers_are_distinct_and_have_exactly_so_many_digits(
    name: str, base: int, length: int, samples: int
) -> None:
    """Parity's have so many decimal digits; a list may end in a zero. All are taken where there are fewer."""
    task = Task(name, 2 if name == "parity" else base)
    written = 10 if name == "parity" else base
    low, high = 0 if name == "listops-sm" else written ** (length - 1), written**length
    for digits in drawn_for_test(task, length, samples):
        numbers = integers(digits, task.base)
        assert len(numbers) == len(set(numbers)) == min(high - low, samples)
        assert all(low <= number < high for number in numbers)


@given(st.integers(1, 60), st.integers(2, 16))
def test_nested_lists_have_so_many_elements_and_are_one_list(length: int, base: int) -> None:
    task = Task("direct-listops-nested", base)
    (tokens,) = drawn_for_test(task, length, 20)
    for row in tokens.tolist():
        symbols = task.text(row[::-1])
        assert sum(symbol in task.digits for symbol in symbols) == length
        task.read(" ".join(symbols))  # or InputError, if they are not one list
    assert len({tuple(row) for row in tokens.tolist()}) == len(tokens)


# ---- digit arrays -----------------------------------------------------------------------------------


@given(BASES, st.lists(st.integers(0, 10**12), min_size=1, max_size=8), st.integers(0, 10**14), st.data())
def test_numbers_are_compared_and_counted_like_integers(
    base: int, numbers: list[int], bound: int, data: st.DataObject
) -> None:
    bound = data.draw(st.sampled_from([bound, numbers[0], numbers[0] + 1]))  # equality and its neighbour too
    below = writing.is_below(array(numbers, base, 45), bound, base)
    assert below.tolist() == [number < bound for number in numbers]
    for number in (bound, base ** len(numbers) - 1, base ** len(numbers)):
        assert writing.digit_count(number, base) == places_of(number, base)


# ---- what shipped models were trained and tested on


@pytest.mark.parametrize("name", REGISTRY)
def test_what_is_drawn_does_not_change(name: str) -> None:
    """Bit for bit, as the digests say that were made when the shipped models were trained."""
    checksum = hashlib.sha256()
    for regime in get_args(Regime):
        cut = regime == "unpadded" and Task(name).grows
        sampler = Sampler(Task(name), "as-written" if cut else "natural", regime, width_count=3)
        batches = [sampler.training_batch(seed, step, 64) for seed, step in ((0, 0), (0, 7), (3, 1))]
        batches += [*sampler.validation_batches(0, 60), sampler.calibration_batch(0, 20)]
        for batch in (*batches, *(sampler.test_batch(length, 20, 20240701) for length in (1, 3, 6))):
            checksum.update(batch.source.numpy().tobytes() + batch.target.numpy().tobytes())
    assert checksum.hexdigest()[:16] == json.loads(DRAWN.read_text())[name]
