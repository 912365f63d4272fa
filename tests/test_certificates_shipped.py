"""Certificates of shipped models: by the command line, in long problems, and each against the oracle's computation."""

import json
from pathlib import Path
from typing import Any

import pytest
from certifying import problems
from oracle.check import check

import abc_nb
from abc_nb import cli
from abc_nb.certificates.certify import weights_of
from abc_nb.certificates.checksum import checksum
from abc_nb.common.config import to_data
from abc_nb.problems.catalogue import REGISTRY
from abc_nb.problems.tasks import Task
from abc_nb.runs import store
from abc_nb.runs.store import Run
from abc_nb.specs.experiment import Name
from abc_nb.specs.spec import spec
from abc_nb.training.evaluation import exact_match

FEW, MANY = 50_000, 3_000_000  # contexts: a second of checking, and a minute
RECORDS = store.records("shipped", '"certificates"')
CHECKED = {  # tables and language models are not known to the oracle
    record["key"]: record
    for record in RECORDS
    if record["task"] in REGISTRY and not Task(record["task"]).table and record["certificates"][0]["contexts"] <= MANY
}
FIRST = {  # of each experiment the one that is checked in every run
    (record["task"], record["model"], record["base"]): key
    for key, record in reversed(CHECKED.items())
    if record["certificates"][0]["contexts"] <= FEW
}.values()
SHIPPED = [pytest.param(key, marks=[pytest.mark.long] * (key not in FIRST)) for key in CHECKED]


def run_of(record: dict[str, Any]) -> Run:
    name = Name(record["task"], record["model"], record["base"])
    run = store.find(spec(name, record["profile"]), record["seed"], ("shipped",))
    assert run is not None
    return run


@pytest.mark.slow
@pytest.mark.parametrize("key", SHIPPED)
def test_a_shipped_certificate_is_what_the_oracle_computes(key: str) -> None:
    model = run_of(CHECKED[key]).model()
    assert check(CHECKED[key]["certificates"][0], weights_of(model), to_data(model.config)).agrees


def test_every_shipped_certificate_is_of_the_weights_that_are_shipped() -> None:
    """Of language models some weights are not shipped."""
    assert len(RECORDS) > 300
    for record in RECORDS:
        run = run_of(record)
        assert run.weights is not None or record["task"] not in REGISTRY
        weights = None if run.weights is None else checksum({name: each.numpy() for name, each in run.state().items()})
        for certificate in run.certificates:
            assert certificate["certified"] == (certificate["wrong"] == 0 and certificate["rounding"]["left"] > 0)
            assert (certificate["wrong"] == 0) == (certificate["margin"] > 0)
            assert weights is None or certificate["weights"] == weights


@pytest.mark.slow
@pytest.mark.parametrize("task", ["successor", "addition", "n-by-1", "parity"])
@pytest.mark.parametrize("model", ["abs", "abc"])
def test_a_certified_model_is_right_with_any_number_of_zeros_in_front(task: str, model: str) -> None:
    """Trained on tight problems, it is asked padded ones of 61 columns: numbers of every length that these can hold."""
    run = abc_nb.load(f"{task}-{model}", seed=1)
    (data,) = run.certificates
    assert data["certified"] and data["facts"]["narrowest"] <= 61
    assert f"at every width W >= {data['facts']['narrowest']} " in data["statement"]
    assert "with any number of zeros in front." in data["statement"]
    assert exact_match(run.model(), problems(run.spec.sampler, 61, 200)).all()


@pytest.mark.slow
@pytest.mark.parametrize(("name", "forms"), [("parity-abc", 0), ("language-abs", 2)])
def test_certificates_are_made_and_written_by_the_command(
    name: str, forms: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a language model those of the last forms, with few contexts; the others take a minute."""
    run, path = abc_nb.load(name), tmp_path / "certificates.json"
    if forms:
        every = run.spec.contexts
        monkeypatch.setattr(type(run.spec), "contexts", lambda _, model: every(model)[forms:])
    assert cli.main(["certify", name, "--output", str(path)]) == 0
    assert "certified: Greedy decoding writes every token right" in capsys.readouterr().out or forms
    data = json.loads(path.read_text())
    assert (data["experiment"], data["profile"], data["seed"]) == (name, "quick", 0)
    for made, shipped in zip(data["certificates"], run.certificates[forms:], strict=True):
        statements = [certificate["statement"].partition(" This holds")[0] for certificate in (made, shipped)]
        assert made["certified"] and statements[0] == statements[1]
        for field in ("task", "contexts", "wrong", "weights"):
            assert made[field] == shipped[field]
        assert made["margin"] == pytest.approx(shipped["margin"], abs=1e-3)


@pytest.mark.slow
def test_a_model_without_a_certificate_says_so_and_a_failing_one_names_the_shortest_problem(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["certify", "addition-vanilla"]) == 2
    assert "no certificate" in capsys.readouterr().err
    assert cli.main(["certify", "successor-window-cyclic"]) == 1
    *_, last = capsys.readouterr().out.splitlines()
    problem = last.rpartition(" ")[2]
    run = abc_nb.load("successor-window-cyclic")
    assert abc_nb.answer("successor-window-cyclic", problem) != run.spec.task.right_answer(problem)
