"""Tables of repair: seeds before and after, and accuracy computed beside what was sampled."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from abc_nb.analysis import certified, repairs
from abc_nb.analysis.results import Results
from abc_nb.common import paths
from abc_nb.common.errors import InputError
from abc_nb.specs.names import Name
from abc_nb.specs.studies import ABLATED, BASES, LISTS

FOUND = Results("quick", "shipped", [0, 1, 2, 3, 4])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Certificates of Successor under ABS alone: seed 0 is not certified, and its repaired model is."""
    for path in paths.certificates().glob("successor-window-cyclic-quick-seed[0-4].json"):
        shutil.copy(path, tmp_path)
    path = tmp_path / "successor-window-cyclic-quick-seed0.json"
    data = json.loads(path.read_text())
    path.write_text(json.dumps(data | {"certified": False, "wrong": 2}))
    name = "successor-window-cyclic-repaired"
    repaired = data | {"experiment": name, "recipe": "repaired", "certified": True, "wrong": 0, "counterexamples": []}
    (tmp_path / f"{name}-quick-seed0.json").write_text(json.dumps(repaired))
    monkeypatch.setattr(paths, "certificates", lambda: tmp_path)
    return tmp_path


def test_a_repaired_model_counts_after_and_not_before(folder: Path) -> None:
    made = [json.loads(path.read_text()) for path in folder.glob("*cyclic-quick*.json")]
    count = sum(each["certified"] for each in made)
    (row,) = repairs.before_and_after(FOUND).to_dict("records")
    assert (row["task"], row["model"]) == ("successor", "window-cyclic")
    assert (row["before"], row["after"]) == (f"{count} of {len(made)}", f"{count + 1} of {len(made)}")
    assert set(certified.certificates(FOUND).model) == {"window-cyclic", "window-cyclic-repaired"}
    (folder / "successor-window-cyclic-repaired-quick-seed0.json").unlink()
    (row,) = repairs.before_and_after(FOUND).to_dict("records")
    assert row["after"] == row["before"] and row["steps"] == row["seconds"] == "–"


def test_predicted_shares_stand_beside_samples(folder: Path) -> None:
    frame = repairs.predicted(Results("quick", "shipped", [0]))
    assert {60, 200, 10**6} <= {*frame.length} and {*frame.seed} == {0}
    sampled = frame.dropna()
    assert len(sampled) > 10 and sampled.predicted.between(sampled.ci_low, sampled.ci_high).all()
    shown = repairs.side_by_side(frame)
    assert [*shown.columns] == ["task", "model", "seed", *repairs.SHOWN]
    assert shown[60].str.fullmatch(r"99\.\d{4}% \(\d+ of 1000\)").all()
    assert shown[10**6].str.fullmatch(r"99\.\d{4}%").all()


def test_lists_and_bases_have_a_verdict_or_their_contexts(folder: Path) -> None:
    """Certificates of Successor in base 10 stand for those in base 2: one that was repaired, and of ABC none."""
    for recipe in ("", "-repaired"):
        path = folder / f"successor-window-cyclic{recipe}-quick-seed0.json"
        data = json.loads(path.read_text())
        data |= {"experiment": f"{data['experiment']}-base2", "base": 2, "margin": 2.5}
        (folder / f"successor-window-cyclic{recipe}-base2-quick-seed0.json").write_text(json.dumps(data))
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


def test_without_certificates_tables_are_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "certificates", lambda: tmp_path)
    assert repairs.before_and_after(FOUND).empty
    assert repairs.side_by_side(repairs.predicted(FOUND)).empty


def test_a_model_whose_accuracy_cannot_be_computed_is_left_out(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> dict[int, float]:
        raise InputError("a wrong context depends on digits far from each other")

    assert len(repairs.predicted(FOUND))
    monkeypatch.setattr(repairs, "predicted_accuracy", refused)
    assert repairs.predicted(FOUND).empty
