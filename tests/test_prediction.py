"""Accuracy from wrong contexts, against counting all numbers and against what was sampled."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from certifying import model_of, rows, sampler_of

import abc_nb
from abc_nb import InputError
from abc_nb.bias import Window
from abc_nb.certificates import files
from abc_nb.certificates.places import PlaceContexts
from abc_nb.certificates.prediction import Chain, predicted_accuracy, wrong_contexts
from abc_nb.certificates.reach import period
from abc_nb.certificates.tried import Tried, try_all
from abc_nb.model.positions import Sinusoidal
from abc_nb.model.transformer import Transformer
from abc_nb.problems.digits import to_digits
from abc_nb.problems.sampling import Sampler
from abc_nb.problems.tasks import Task

NUMBER_TASKS = ("successor", "addition", "n-by-1")
LONGEST = {"successor": 7, "addition": 4, "n-by-1": 6}


def made_up(task: str, seed: int, wrong: int) -> tuple[Transformer, Sampler, list[Tried]]:
    """A model with two residues whose wrong contexts are drawn: so many shapes, one to three contexts each."""
    sampler, rng = sampler_of(task, aligned=True), np.random.default_rng(seed)
    model = model_of(sampler, Window(1), Sinusoidal(2))
    contexts = PlaceContexts(model, sampler)
    results = [Tried(shape, where) for shape, where in contexts.shapes.items()]
    for number in rng.choice(len(results), min(wrong, len(results)), replace=False):
        blocks = contexts.blocks(results[number].shape)
        every = [(v, int(r)) for block in blocks for v, r in zip(block.values, block.right, strict=True)]
        chosen = rng.choice(len(every), min(len(every), int(rng.integers(1, 4))), replace=False)
        results[number].examples += [every[row] for row in chosen]
        results[number].wrong = len(chosen)
    return model, sampler, results


def counted(model: Transformer, sampler: Sampler, results: list[Tried], length: int) -> float:
    """The share of all problems of so many digits none of whose steps stands in a wrong context."""
    task, width = sampler.task, sampler.task.width(length, "tight")
    low, high = task.base ** (length - 1), task.base**length
    seconds = {"successor": [0], "addition": range(low, high), "n-by-1": range(task.base)}[task.name]
    pairs = np.array([*product(range(low, high), seconds)])
    sizes = task.operand_places(width)
    operands = [to_digits(pairs[:, number], task.base, places) for number, places in enumerate(sizes)]
    batch, contexts = sampler.batch(operands, width), PlaceContexts(model, sampler)
    bad = {each.shape: {(*values.tolist(), right) for values, right in each.examples} for each in results}
    wrong = np.zeros(len(pairs), bool)
    for step in range(width + 1):
        shape, block = contexts.seen(batch, step)
        wrong |= [row in bad[shape] for row in rows(block)]
    return 1 - float(wrong.mean())


@pytest.mark.parametrize("task", NUMBER_TASKS)
@pytest.mark.parametrize("seed", range(3))
def test_the_chain_counts_as_all_numbers_of_few_digits_do(
    task: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Task, "training_width", 2)  # or all short numbers would have one width
    model, sampler, results = made_up(task, seed, 8)
    lengths = range(1, LONGEST[task] + 1)
    found = predicted_accuracy(model, sampler, results, lengths)
    wanted = [counted(model, sampler, results, length) for length in lengths]
    np.testing.assert_allclose([found[length] for length in lengths], wanted, atol=1e-12)
    assert min(wanted) < 1


@pytest.mark.parametrize("task", [*NUMBER_TASKS, "listops-max"])
def test_a_period_in_the_middle_can_be_left_out(task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of long numbers, place by place, the same as with powers of a period."""
    model, sampler, results = made_up(task, 0, 3)
    lengths = (70, 71, 80)
    found = predicted_accuracy(model, sampler, results, lengths)
    original = Chain.__init__

    def whole(chain: Chain, *arguments: object) -> None:
        original(chain, *arguments)  # type: ignore[arg-type]
        assert 2 * chain.middle + 2 * chain.period < 70
        chain.middle = 1000

    monkeypatch.setattr(Chain, "__init__", whole)
    direct = predicted_accuracy(model, sampler, results, lengths)
    assert found == pytest.approx(direct, abs=1e-12)
    assert all(0 <= share < 1 for share in direct.values())


def test_nothing_wrong_is_right_at_every_length() -> None:
    model, sampler, results = made_up("addition", 0, 0)
    assert predicted_accuracy(model, sampler, results, [1, 60, 10**6]) == {1: 1.0, 60: 1.0, 10**6: 1.0}


def test_what_is_not_computed_is_said() -> None:
    model, sampler, results = made_up("successor", 0, 3)
    many = [replace(each, wrong=each.wrong * 2) for each in results]
    with pytest.raises(InputError, match="so many wrong contexts"):
        predicted_accuracy(model, sampler, many, [6])
    with pytest.raises(InputError, match="decimal"):
        predicted_accuracy(model, Sampler(Task("parity")), [], [6])


FAILING = [("successor", 0), ("successor", 4), ("n-by-1", 2), ("n-by-1", 3)]


@pytest.mark.slow
@pytest.mark.parametrize(("task", "seed"), FAILING)
def test_what_is_predicted_of_shipped_models_was_sampled(task: str, seed: int) -> None:
    name = f"{task}-window-cyclic"
    run, data = abc_nb.load(name, seed), files.shipped()[f"{name}-quick-seed{seed}"]
    if data["certified"]:
        pytest.skip("this model is certified today")
    rows = run.evaluation()
    found = wrong_contexts(run.model(), run.spec.sampler, data)
    shares = predicted_accuracy(run.model(), run.spec.sampler, found, [*rows.length, 10**6])
    predicted = rows.length.map(shares)
    assert predicted.between(rows.ci_low, rows.ci_high).all()
    assert 0 < shares[10**6] <= max(predicted) and min(predicted) < 1
    assert period(run.model()) == 3


@pytest.mark.slow
@pytest.mark.parametrize(("task", "seed"), FAILING[1:3])
def test_contexts_read_back_from_a_certificate_are_those_that_are_wrong(task: str, seed: int) -> None:
    name = f"{task}-window-cyclic"
    run, data = abc_nb.load(name, seed), files.shipped()[f"{name}-quick-seed{seed}"]
    model, sampler = run.model(), run.spec.sampler
    data["counterexamples"] *= 2
    back = {each.shape: each.examples for each in wrong_contexts(model, sampler, data)}
    tried = {each.shape: each.examples for each in try_all(PlaceContexts(model, sampler)) if each.wrong}
    assert back.keys() == tried.keys()
    for shape, examples in tried.items():
        assert {(*v.tolist(), r) for v, r in back[shape]} == {(*v.tolist(), r) for v, r in examples}
