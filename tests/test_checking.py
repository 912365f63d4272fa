"""The oracle, which computes certificates a second time: it agrees with those that are right, and with no other."""

from dataclasses import asdict
from itertools import product

import pytest
from certifying import CASES, bias_of, lines_of, model_of, sampler_of
from oracle.check import check

from abc_nb import certify_model
from abc_nb.certificates.certify import weights_of
from abc_nb.common.config import to_data
from abc_nb.model.positions import PositionEncoding, Sinusoidal

MORE = [*product(("subtraction", "cycle-navigation"), ("lines", "window", "decoder-only"), [Sinusoidal(3)])]
MORE += [("successor", "cross", Sinusoidal(3))]  # no keys in self-attention


@pytest.mark.slow
@pytest.mark.parametrize(("task", "kind", "position"), [*CASES, *MORE])
def test_the_check_agrees(task: str, kind: str, position: PositionEncoding) -> None:
    sampler = sampler_of(task, aligned=kind == "window")
    model = model_of(sampler, bias_of(task, kind), position)
    found = certify_model(model, sampler)
    checked = check(asdict(found), weights_of(model), to_data(model.config))
    assert checked.agrees
    assert (checked.contexts, checked.wrong) == (found.contexts, found.wrong)
    assert 0 < checked.margin - checked.left < 0.1
    assert found.wrong > 0  # weights are random


@pytest.mark.slow
def test_a_check_does_not_accept_another_certificate_or_model() -> None:
    sampler = sampler_of("successor")
    model = model_of(sampler, lines_of("successor"))
    data, config, weights = asdict(certify_model(model, sampler)), to_data(model.config), weights_of(model)
    assert not check(data | {"contexts": data["contexts"] - 1}, weights, config).agrees
    assert not check(data | {"wrong": 0, "certified": True}, weights, config).agrees
    first, second, *others = config["bias"]["lines"]
    swapped = config | {"bias": config["bias"] | {"lines": [second, first, *others]}}
    with pytest.raises(AssertionError, match="of other weights"):
        check(data, weights | {"head.bias": weights["head.bias"] + 1e-3}, config)
    with pytest.raises(AssertionError, match="of another bias"):
        check(data, weights, swapped)
