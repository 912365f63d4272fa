"""Which certificates belong to results: those made here, those shipped, or either; and what tables say of them."""

import pandas as pd
import pytest
from conftest import Folders

from abc_nb.analysis import certified
from abc_nb.problems.tasks import Task
from abc_nb.runs import store
from abc_nb.runs.store import Run
from audit import certified as audited
from audit import frames
from audit.results import Results

FOUND = Results("quick", "shipped", [0, 1, 2, 3, 4])
NAME, OTHER = "successor-abs", "parity-abs"


@pytest.fixture(scope="module")
def runs() -> list[Run]:
    return FOUND.first.runs([NAME, OTHER])


def saying(run: Run, *contexts: int) -> Run:
    """The same run with one certificate of so many contexts, or none."""
    record = dict(run.record) | {"certificates": [run.certificates[0] | {"contexts": count} for count in contexts]}
    return Run(run.spec, run.seed, record, run.folder)


def contexts(origin: str, profile: str = "quick") -> dict[str, int]:
    rows = certified.certificates_table(Results(profile, origin, [0]))
    return dict(zip(rows.experiment, rows.contexts, strict=True))


def test_a_run_made_here_has_the_certificate_made_here_and_no_shipped_one(runs: list[Run], folders: Folders) -> None:
    for run in runs:
        store.ship(saying(run, 1), weights=False)
    here = folders.runs / runs[0].key
    store.write_run(saying(runs[0]).record, {}, here)
    assert (contexts("any"), contexts("runs")) == ({OTHER: 1}, {})
    store.write_run(saying(runs[0], 2).record, {}, here)
    assert (contexts("any"), contexts("runs")) == ({OTHER: 1, NAME: 2}, {NAME: 2})
    assert contexts("shipped") == {OTHER: 1, NAME: 1}
    assert contexts("any", "smoke") == {}


def test_of_a_run_that_is_shipped_again_the_last_certificate_counts(runs: list[Run], folders: Folders) -> None:
    for count, shown in (([3], {NAME: 3}), ([4], {NAME: 4}), ([], {})):
        store.ship(saying(runs[0], *count), weights=False)
        assert contexts("shipped") == shown


def test_practice_is_counted_before_and_after_as_records_say() -> None:
    """Rows and their summary, against the records themselves; none of a model that was not practised."""
    records = [each for each in store.records("shipped") if "practice" in each["facts"]]
    usual = [each for each in records if each["base"] == Task(each["task"]).base and each["profile"] == "quick"]
    known = {(each["task"], each["model"], each["seed"]): each for each in usual}
    rows = certified.practice(FOUND)
    assert len(rows) >= 80 and not rows.duplicated(["task", "model", "seed"]).any()
    for row in rows.itertuples():
        record = known[row.task, row.model, row.seed]
        proven = any(each["certified"] for each in record.get("certificates", []))
        assert (row.after, row.before) == (proven, proven and record["facts"]["practice"]["rounds"] == 0)
    for (task, model), shown in certified.practice_summary(FOUND).iterrows():
        own = rows[(rows.task == task) & (rows.model == model)]
        assert shown["certified after"] == f"{own.after.sum()} of {len(own)}"
        assert shown["certified before"] == f"{own.before.sum()} of {len(own)}"


def test_without_certificates_tables_are_empty() -> None:
    nothing = Results("smoke", "shipped", [0])
    tables = (certified.rows, certified.practice_summary, audited.by_seeds, audited.resisting)
    assert all(table(nothing).empty for table in tables), "nothing of this profile is shipped"


# ---- wrong problems ----


@pytest.mark.slow
def test_the_table_has_the_models_without_a_certificate_whose_weights_are_there() -> None:
    frame = audited.searched(Results("quick", "shipped", [0, 1]), tasks=["parity"])
    assert {*frame.model} >= {"vanilla", "decoder-vanilla"} and not {"abc", "window-cyclic"} & {*frame.model}
    assert {*frame.seed} == {0} and not frame.duplicated(["task", "model"]).any()
    for row in frame.itertuples():
        assert not row.problem or (row.right == str(row.problem.count("1") % 2) and row.answer != row.right)


def test_the_shortest_wrong_problem_of_a_model_is_shown_or_that_a_search_found_none() -> None:
    """Of all seeds; of searched models the plain ones, and no decoder-only ones."""
    found = [
        *(("n-by-1", "window-cyclic", seed, f"{n}*9", "certificate") for seed, n in ((2, 59984), (3, 9110), (4, 1234))),
        *(("n-by-1", model, 0, "1006066*1", "search") for model in ("vanilla", "fire")),
        ("n-by-1", "decoder-abs", 4, "6614*7", "certificate"),
        ("parity", "nope", 0, "", "search"),
        ("addition", "nope", 0, "44+70", "search"),
    ]
    shown = frames.shortest_wrong(pd.DataFrame(found, columns=["task", "model", "seed", "problem", "found by"]))
    assert shown.to_dict("index") == {
        ("Window, index modulo 3", "certificate"): {"Successor": "", "Addition": "", "N x 1": "9110*9", "Parity": ""},
        ("Vanilla", "search"): {"Successor": "", "Addition": "", "N x 1": "1006066*1", "Parity": ""},
        ("NoPE", "search"): {"Successor": "", "Addition": "44+70", "N x 1": "", "Parity": "none"},
    }
