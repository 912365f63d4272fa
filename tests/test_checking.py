"""The independent check of certificates: it agrees with those that are right, and with no other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

import numpy as np
import pytest
import torch
from certifying import (
    BIASES,
    POSITIONS,
    TASKS,
    UNNEEDED,
    bias_of,
    lines_of,
    model_of,
    problems,
    sampler_of,
    table_model,
)

from abc_nb import InputError, certify_model
from abc_nb.bias import Window
from abc_nb.bias.lines import Line
from abc_nb.certificates.certify import weights_of
from abc_nb.certificates.checking import check as checking
from abc_nb.certificates.checking import enumerate as enumerating
from abc_nb.certificates.checking.check import check
from abc_nb.certificates.checking.forward import Forward
from abc_nb.certificates.checking.geometry import Facts, Width
from abc_nb.common.config import to_data
from abc_nb.model.positions import NoPosition, PositionEncoding, Sinusoidal
from abc_nb.problems.sampling import Sampler
from abc_nb.problems.tasks import Task

CASES = [  # of every task and bias one position; the other one is long
    pytest.param(task, kind, position, marks=[] if (i + j + k) % 2 == 0 else [pytest.mark.long])
    for i, task in enumerate(TASKS)
    for j, kind in enumerate(BIASES)
    for k, position in enumerate(POSITIONS)
]
CASES += [pytest.param(task, "lines", NoPosition()) for task in ("n-by-2", "subtraction", "cycle-navigation")]
CASES += [
    pytest.param("subtraction", "window", Sinusoidal(3)),
    pytest.param("cycle-navigation", "window", NoPosition()),
]
CASES += [pytest.param(task, "decoder-only", Sinusoidal(3)) for task in ("subtraction", "cycle-navigation")]


@pytest.mark.slow
@pytest.mark.parametrize(("task", "kind", "position"), CASES)
def test_the_check_agrees(task: str, kind: str, position: PositionEncoding) -> None:
    sampler = sampler_of(task, aligned=kind == "window")
    model = model_of(sampler, bias_of(task, kind), position)
    found = certify_model(model, sampler)
    checked = check(asdict(found), weights_of(model), to_data(model.config.bias))
    assert checked.agrees
    assert (checked.contexts, checked.wrong) == (found.contexts, found.wrong)
    assert found.wrong > 0  # weights are random


@pytest.mark.slow
def test_a_check_does_not_accept_other_weights_or_a_swapped_line() -> None:
    sampler = sampler_of("successor")
    model = model_of(sampler, lines_of("successor"))
    data, bias, weights = asdict(certify_model(model, sampler)), to_data(model.config.bias), weights_of(model)
    changed = {name: array.copy() for name, array in weights.items()}
    changed["head.bias"][0] += 1e-3
    with pytest.raises(InputError, match="other weights"):
        check(data, changed, bias)
    lines = [bias["lines"][1], bias["lines"][0], *bias["lines"][2:]]
    with pytest.raises(InputError, match="another bias"):
        check(data, weights, bias | {"lines": lines})
    assert not check(data | {"contexts": data["contexts"] - 1}, weights, bias).agrees
    assert not check(data | {"wrong": 0, "certified": True}, weights, bias).agrees
    with pytest.raises(InputError, match="no certificate"):
        check({"facts": {}}, weights, bias)


def test_a_flipped_digit_of_the_enumeration_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    sampler = sampler_of("successor")
    model = model_of(sampler, lines_of("successor"))
    data, original = asdict(certify_model(model, sampler)), enumerating.contexts

    def flipped(question: enumerating.Question) -> Iterator[tuple[dict, np.ndarray]]:
        for values, right in original(question):
            other = right.copy()
            other[0] = (other[0] + 1) % 3
            yield values, other

    monkeypatch.setattr(checking, "contexts", flipped)
    assert not check(data, weights_of(model), to_data(model.config.bias)).agrees


def test_the_check_has_its_own_logits_right() -> None:
    """Every output of a whole problem, computed from its tree alone, against the model's pass in float64."""
    sampler = sampler_of("addition", aligned=True)
    model = model_of(sampler, Window(1), Sinusoidal(3)).double()
    batch = problems(sampler, 16, 5)
    with torch.inference_mode():
        logits = model(batch.source, batch.target[:, :-1], batch.layout)
    own = {"layers": 2, "norm": "pre", "kind": "encoder-decoder"}
    facts = Facts("addition", 3, "aligned", "right", 3, True, 2, zeros=True, narrowest=8, **own)  # type: ignore[arg-type]
    width, forward = Width(facts, to_data(Window(1)), 16, 3), Forward(weights_of(model), facts)
    for step in range(17):
        tree, values = width.tree(2, step), {}
        for atom in enumerating.atoms(tree):
            kind, _, place = atom
            column = batch.target[:, place + 1] if kind == "output" else batch.source[:, width.columns.index(atom)]
            values[atom] = column.numpy()
        np.testing.assert_allclose(forward.logits(tree, values, 5), logits[:, step].numpy(), atol=1e-5)


@pytest.mark.parametrize(
    ("base", "kind", "more"),
    [(2, "encoder-decoder", UNNEEDED), (2, "decoder-only", UNNEEDED), (3, "decoder-only", UNNEEDED[:2])],
)
def test_the_check_of_tables_agrees(base: int, kind: str, more: tuple[Line, ...]) -> None:
    sampler = Sampler(Task("n-by-n", base))
    model = table_model(sampler.task, more, kind)
    data, bias, weights = asdict(certify_model(model, sampler)), to_data(model.config.bias), weights_of(model)
    checked = check(data, weights, bias)
    assert checked.agrees and checked.wrong == data["wrong"] > 0
    assert not check(data | {"contexts": data["contexts"] - 1}, weights, bias).agrees
    with pytest.raises(InputError, match="another bias"):
        check(data, weights, bias | {"lines": bias["lines"][1:]})
    with pytest.raises(InputError, match="knows no task 'sorting'"):
        check(data | {"facts": data["facts"] | {"task": "sorting"}}, weights, bias)
