"""The independent check of certificates: it agrees with those that are right, and with no other."""

from dataclasses import asdict
from itertools import product

import pytest
from certifying import CASES, bias_of, lines_of, model_of, sampler_of, table_model
from oracle.check import check

from abc_nb import InputError, certify_model
from abc_nb.certificates import files
from abc_nb.certificates.certify import weights_of
from abc_nb.common.config import to_data
from abc_nb.model.positions import PositionEncoding, Sinusoidal
from abc_nb.problems.sampling import Sampler
from abc_nb.problems.tables import Tables
from abc_nb.problems.tasks import Task
from abc_nb.runs import store
from abc_nb.specs.spec import spec

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
    assert 0 < checked.margin - checked.left < 0.1 and str(sampler.task.base) in checked.statement
    assert found.wrong > 0  # weights are random


@pytest.mark.slow
def test_a_check_does_not_accept_other_weights_or_a_swapped_line() -> None:
    sampler = sampler_of("successor")
    model = model_of(sampler, lines_of("successor"))
    data, config, weights = asdict(certify_model(model, sampler)), to_data(model.config), weights_of(model)
    bias = config["bias"]
    changed = {name: array.copy() for name, array in weights.items()}
    changed["head.bias"][0] += 1e-3
    with pytest.raises(InputError, match="other weights"):
        check(data, changed, config)
    lines = [bias["lines"][1], bias["lines"][0], *bias["lines"][2:]]
    with pytest.raises(InputError, match="another bias"):
        check(data, weights, config | {"bias": bias | {"lines": lines}})
    assert not check(data | {"contexts": data["contexts"] - 1}, weights, config).agrees
    assert not check(data | {"wrong": 0, "certified": True}, weights, config).agrees
    never = config | {"position": {"type": "Sinusoidal", "period": None}}
    with pytest.raises(InputError, match="positions"):
        check(data, weights, never)
    with pytest.raises(InputError, match="no certificate"):
        check({"facts": {}}, weights, config)
    bare = {name: array for name, array in weights.items() if not name.startswith("decoder_norm")}
    with pytest.raises(InputError, match="knows no model whose LayerNorms come after"):
        check(data, bare, config)


def test_a_task_that_the_check_does_not_know_is_refused() -> None:
    sampler = Sampler(Task("n-by-n", 2))
    model = table_model(sampler.task)
    with pytest.raises(InputError, match="knows no task 'n-by-n'"):
        check(asdict(certify_model(model, sampler)), weights_of(model), to_data(model.config))


FEW, MANY = 50_000, 3_000_000  # contexts: a second of checking, and a minute
CHECKED = {
    name: data
    for name, data in files.shipped().items()
    if data["contexts"] <= MANY and not isinstance(Task(data["task"]), Tables)
}
FIRST = {data["experiment"]: name for name, data in reversed(CHECKED.items()) if data["contexts"] <= FEW}.values()
SHIPPED = [pytest.param(name, marks=[pytest.mark.long] * (name not in FIRST)) for name in CHECKED]


@pytest.mark.slow
@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_certificates_hold(name: str) -> None:
    """Those with few contexts, the first seed's in every run; those of tables are not known to the oracle."""
    data = CHECKED[name]
    run = store.find(spec(data["experiment"], data["profile"]), data["seed"], ("shipped",))
    assert run is not None
    model = run.model()
    assert check(data, weights_of(model), to_data(model.config)).agrees
