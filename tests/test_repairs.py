"""Tables of repair: seeds before and after, and accuracy computed beside what was sampled."""

from __future__ import annotations

import pytest

from abc_nb.analysis import certified, repairs
from abc_nb.analysis.results import Results
from abc_nb.certificates import files
from abc_nb.common.errors import InputError
from abc_nb.specs.names import Name
from abc_nb.specs.studies import ABLATED, BASES, LISTS

ABS = "successor-window-cyclic"
Known = dict[str, files.Data]  # certificates by name
FOUND = Results("quick", "shipped", [0, 1, 2, 3, 4])


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> Known:
    """Certificates of Successor under ABS alone: seed 0 is not certified, and its repaired model is."""
    shipped = files.shipped()
    known = {name: shipped[name] for name in (f"{ABS}-quick-seed{seed}" for seed in range(5))}
    data = known[f"{ABS}-quick-seed0"]
    known[f"{ABS}-quick-seed0"] = data | {"certified": False, "wrong": 2}
    repaired = {"experiment": f"{ABS}-repaired", "recipe": "repaired", "certified": True, "wrong": 0}
    known[f"{ABS}-repaired-quick-seed0"] = data | repaired | {"counterexamples": []}
    monkeypatch.setattr(files, "shipped", lambda: known)
    return known


def test_a_repaired_model_counts_after_and_not_before(known: Known) -> None:
    made = [data for data in known.values() if data["recipe"] == "plain"]
    count = sum(each["certified"] for each in made)
    (row,) = repairs.before_and_after(FOUND).to_dict("records")
    assert (row["task"], row["model"]) == ("successor", "window-cyclic")
    assert (row["before"], row["after"]) == (f"{count} of {len(made)}", f"{count + 1} of {len(made)}")
    assert set(certified.certificates(FOUND).model) == {"window-cyclic", "window-cyclic-repaired"}
    del known[f"{ABS}-repaired-quick-seed0"]
    (row,) = repairs.before_and_after(FOUND).to_dict("records")
    assert row["after"] == row["before"] and row["steps"] == row["seconds"] == "–"


def test_predicted_shares_stand_beside_samples(known: Known) -> None:
    frame = repairs.predicted(Results("quick", "shipped", [0]))
    assert {60, 200, 10**6} <= {*frame.length} and {*frame.seed} == {0}
    sampled = frame.dropna()
    assert len(sampled) > 10 and sampled.predicted.between(sampled.ci_low, sampled.ci_high).all()
    shown = repairs.side_by_side(frame)
    assert [*shown.columns] == ["task", "model", "seed", *repairs.SHOWN]
    assert shown[60].str.fullmatch(r"99\.\d{4}% \(\d+ of 1000\)").all()
    assert shown[10**6].str.fullmatch(r"99\.\d{4}%").all()


def test_lists_and_bases_have_a_verdict_or_their_contexts(known: Known) -> None:
    """Certificates of Successor in base 10 stand for those in base 2: one that was repaired, and of ABC none."""
    for recipe in ("", "-repaired"):
        data, name = known[f"{ABS}{recipe}-quick-seed0"], f"{ABS}{recipe}-base2"
        known[f"{name}-quick-seed0"] = data | {"experiment": name, "base": 2, "margin": 2.5}
    frame = certified.lists_and_bases(FOUND).set_index(["task", "base", "model"])
    row = frame.loc["successor", 2, "window-cyclic"]
    assert (row.verdict, row.wrong, row.margin) == ("certified after repair", 2, 2.5) and row.problem == "78799"
    others = frame[frame.verdict != "certified after repair"]
    assert len(others) == len(frame) - 1
    counted = {model: own.reset_index() for model, own in frame.groupby("model")}
    assert len(counted["window-cyclic"]) == 3 + 3 * 4
    made = [Name(task, "abc", base) for task, base in zip(counted["abc"].task, counted["abc"].base, strict=True)]
    every = [Name(task, "abc") for task in LISTS] + [Name(task, "abc", base) for task in ABLATED for base in BASES]
    assert made == FOUND.first.there(every)
    assert (others.verdict == "not tried").all() and (others.problem == "").all()
    assert frame.loc["addition", 16, "window-cyclic"].contexts == 1_160_000_512
    assert frame.loc["n-by-2", 4, "by-head"].contexts == 2_268_976
    assert set(certified.certificates(FOUND).seed) == {0, 1, 2, 3, 4}


def test_without_certificates_tables_are_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "shipped", dict)
    assert repairs.before_and_after(FOUND).empty
    assert repairs.side_by_side(repairs.predicted(FOUND)).empty


def test_a_model_whose_accuracy_cannot_be_computed_is_left_out(known: Known, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> dict[int, float]:
        raise InputError("a wrong context depends on digits far from each other")

    assert len(repairs.predicted(FOUND))
    monkeypatch.setattr(repairs, "predicted_accuracy", refused)
    assert repairs.predicted(FOUND).empty
