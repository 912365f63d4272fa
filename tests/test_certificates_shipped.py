"""Certificates of shipped models, by the command line and in Python."""

import json
from pathlib import Path

import pytest
from certifying import problems

import abc_nb
from abc_nb import cli
from abc_nb.analysis import certified
from abc_nb.analysis.results import Results
from abc_nb.certificates import files
from abc_nb.certificates.checksum import checksum
from abc_nb.common.errors import InputError
from abc_nb.runs import store
from abc_nb.specs.spec import spec
from abc_nb.training.evaluation import exact_match


@pytest.mark.slow
def test_a_certificate_is_made_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "parity.json"
    assert cli.main(["certify", "parity-abc", "--output", str(path)]) == 0
    assert "certified: Greedy decoding writes every token right" in capsys.readouterr().out
    data = json.loads(path.read_text())
    assert data["certified"] and data["wrong"] == 0 and data["margin"] > 10
    assert data["weights"] == files.shipped()["parity-abc-quick-seed0"]["weights"]


@pytest.mark.slow
def test_a_failing_model_names_the_shortest_problem(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["certify", "successor-window-cyclic"]) == 1
    last = capsys.readouterr().out.splitlines()[-1]
    problem = last.rpartition(" ")[2]
    run = abc_nb.load("successor-window-cyclic")
    assert abc_nb.answer("successor-window-cyclic", problem) != run.spec.task.right_answer(problem)


@pytest.mark.slow
@pytest.mark.parametrize("task", ["successor", "addition", "n-by-1", "parity"])
@pytest.mark.parametrize("model", ["abs", "abc"])
def test_a_certified_model_is_right_with_any_number_of_zeros_in_front(task: str, model: str) -> None:
    """Trained on tight problems, it is asked padded ones of 61 columns: numbers of every length that these can hold."""
    data = files.shipped()[f"{task}-{model}-quick-seed1"]
    assert data["certified"] and data["facts"]["zeros"]
    assert "with any number of zeros in front." in data["statement"]
    assert f"at every width W >= {data['facts']['narrowest']} " in data["statement"]
    run, width = abc_nb.load(f"{task}-{model}", seed=1), 61
    batch = problems(run.spec.sampler, width, 200)
    assert data["facts"]["narrowest"] <= width and exact_match(run.model(), batch).all()


def test_a_file_that_holds_no_certificate_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    for text in ("", "[]", "{}", '{"type": "certificate"}', "[" * 10**5):
        path.write_text(text)
        with pytest.raises(InputError, match="holds no certificate"):
            files.read(path)


def test_every_shipped_certificate_is_of_shipped_weights() -> None:
    for own in files.shipped().values():
        assert own["certified"] == (own["wrong"] == 0) == (own["margin"] > 0)
        run = store.find(spec(own["experiment"], own["profile"]), own["seed"], ("shipped",))
        assert run is not None and run.weights is not None
        assert checksum({name: tensor.numpy() for name, tensor in run.weights().items()}) == own["weights"]


def test_a_statement_is_given_only_where_it_is_proved() -> None:
    found = Results("quick", "shipped", [4])
    said = certified.statement(found, "addition-abc")
    assert said.startswith("Greedy decoding writes every token right for every problem of Addition")
    assert certified.statement(found, "addition-vanilla").startswith("No run of addition-vanilla is")
