"""Which certificates belong to results: those made here, those shipped, or either."""

import json
from types import SimpleNamespace

import pandas as pd
import pytest
from conftest import Folders

from abc_nb import commands
from abc_nb.analysis import certified
from abc_nb.certificates import files
from abc_nb.certificates.certify import weights_of
from abc_nb.certificates.checksum import checksum
from abc_nb.certificates.counterexamples import Shortest
from abc_nb.cli import main
from abc_nb.common.files import write_text
from abc_nb.runs import runner, store
from abc_nb.specs.spec import Spec, spec
from audit import certified as audited
from audit import frames
from audit.results import Results

FOUND = Results("quick", "shipped", [0, 1, 2, 3, 4])
NAME = "successor-abc"  # which the run below stands for
OTHER = "parity-abc"  # of which no run is there


def certificate(name: str, contexts: int) -> files.Data:
    """Of seed 0, told apart by its number of contexts."""
    data = {"type": "certificate", "experiment": name, "profile": "smoke", "seed": 0, "base": 10}
    return data | {"contexts": contexts, "rounding": {"left": 0.1, "bits": 32}}


def write_here(data: files.Data) -> None:
    write_text(files.path_of(f"{data['experiment']}-smoke-seed0"), json.dumps(data))


def contexts(origin: str) -> dict[str, int]:
    rows = certified.table(Results("smoke", origin, [0]))
    return dict(zip(rows.experiment, rows.contexts, strict=True))


@pytest.fixture
def run(tiny: Spec, folders: Folders, monkeypatch: pytest.MonkeyPatch) -> store.Run:
    """A run made here under the name of a shipped certificate."""
    for name in (NAME, OTHER):
        files.ship(f"{name}-smoke-seed0", certificate(name, contexts=1))
    found = runner.ensure(tiny, 0)
    monkeypatch.setattr(certified.store, "find", lambda experiment, *_: found if experiment.name == NAME else None)
    return found


def test_a_run_made_here_has_the_certificate_made_here_and_no_shipped_one(run: store.Run) -> None:
    assert contexts("any") == {OTHER: 1}
    assert contexts("runs") == {}
    write_here(certificate(NAME, contexts=2))
    assert contexts("any") == {OTHER: 1, NAME: 2}
    assert contexts("runs") == {NAME: 2}
    assert contexts("shipped") == {OTHER: 1, NAME: 1}


def test_a_shipped_run_brings_the_certificate_of_its_weights_and_no_other(
    tiny: Spec, folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "spec", lambda *_: tiny)
    run, name = runner.ensure(tiny, 0), f"{tiny.name}-smoke-seed0"
    own = certificate(tiny.name, contexts=3) | {"weights": checksum(weights_of(run.model()))}
    write_here(own | {"weights": "of another model"})
    assert main(["ship", tiny.name, "--weights"]) == 0 and files.shipped() == {}
    write_here(own)
    assert main(["ship", tiny.name, "--weights"]) == 0 and files.shipped() == {name: own}
    assert main(["ship", tiny.name]) == 0 and files.shipped() == {}


# ---- practice ----


def test_practice_is_counted_before_and_after(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of Successor under ABS; of models that are certified before practice no certificate of then is shipped."""
    shipped = files.shipped()
    before = 5 - sum(f"successor-window-cyclic-quick-seed{seed}" in shipped for seed in range(5))
    after = sum(shipped[f"successor-abs-quick-seed{seed}"]["certified"] for seed in range(5))
    assert before < 5 == after
    for lost in (0, 1):
        row = certified.practice_summary(FOUND, ["abs"], ["successor"]).loc["successor", "abs"]
        assert (row["certified before"], row["certified after"]) == (f"{before} of 5", f"{after - lost} of 5")
        shipped["successor-abs-quick-seed0"] |= {"certified": False}
        monkeypatch.setattr(files, "shipped", lambda: shipped)


def test_a_run_says_what_its_certificates_say() -> None:
    rows = certified.practice(FOUND)
    shipped = files.shipped()
    assert len(rows) >= 40
    for row in rows[rows["wrong after"].notna()].itertuples():
        data = shipped[f"{row.task}-{row.model}-quick-seed{row.seed}"]
        assert (data["wrong"], data["certified"]) == (row[8], row.after)


def test_without_certificates_tables_are_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "shipped", dict)
    assert certified.rows(FOUND).empty
    nothing = Results("smoke", "shipped", [0])
    tables_of = (certified.practice_summary, audited.by_seeds, audited.resisting)
    assert all(table(nothing).empty for table in tables_of), "nothing of this profile is shipped"


# ---- wrong problems ----


@pytest.mark.slow
def test_the_table_has_the_models_without_a_certificate_whose_weights_are_there() -> None:
    frame = audited.searched(Results("quick", "shipped", [0, 1]), tasks=["parity"])
    assert {*frame.model} >= {"vanilla", "decoder-vanilla"} and not {"abc", "window-cyclic"} & {*frame.model}
    assert {*frame.seed} == {0} and not frame.duplicated(["task", "model"]).any()
    for row in frame.itertuples():
        assert not row.problem or (row.right == str(row.problem.count("1") % 2) and row.answer != row.right)


def test_a_search_that_found_none_is_told_apart_from_none_that_was_made(monkeypatch: pytest.MonkeyPatch) -> None:
    searched = {"parity-nope": Shortest(), "addition-nope": Shortest("44+70", "84", "114"), "parity-rope": None}
    monkeypatch.setattr(
        Results,
        "existing",
        lambda found, names: [
            SimpleNamespace(spec=spec(name), seed=0, shortest_wrong=lambda kept=kept: kept)
            for name, kept in searched.items()
            if name in [*map(str, names)]
        ],
    )
    examples = {"model": ["decoder-abs", "abs"], "task": "n-by-1", "seed": 4, "problem": ["6614*7", "9110*9"]}
    monkeypatch.setattr(audited, "counterexamples", lambda found: pd.DataFrame(examples))
    frame = audited.shortest_wrong(Results("quick", "shipped", [0]))
    assert frame[["task", "model", "problem", "found by"]].values.tolist() == [
        ["n-by-1", "decoder-abs", "6614*7", "certificate"],
        ["n-by-1", "abs", "9110*9", "certificate"],
        ["parity", "nope", "", "search"],
        ["addition", "nope", "44+70", "search"],
    ]
    shown = frames.shortest_wrong(frame)
    assert shown.columns.to_list() == ["Successor", "Addition", "N x 1", "Parity"]
    assert shown.loc[("NoPE", "search")].to_list() == ["", "44+70", "", "none"]
    assert shown.loc[("ABS", "certificate")].to_list() == ["", "", "9110*9", ""], "decoder-only models are not shown"


def test_of_a_models_seeds_the_shortest_wrong_problem_is_shown_and_of_searched_models_the_plain_ones() -> None:
    found = [("window-cyclic", 2, "5998400*5", "certificate"), ("window-cyclic", 3, "9110*9", "certificate")]
    found += [("window-cyclic", 4, "1234*9", "certificate"), ("vanilla", 0, "1006066*1", "search")]
    frame = pd.DataFrame([*found, ("fire", 0, "4000400*6", "search")], columns=["model", "seed", "problem", "found by"])
    shown = frames.shortest_wrong(frame.assign(task="n-by-1"))
    assert shown["N x 1"].to_dict() == {
        ("ABS, before practice", "certificate"): "9110*9",
        ("Vanilla", "search"): "1006066*1",
    }
