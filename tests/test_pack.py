"""The pack of shipped runs: it gives back what went in, file by file, checked, and survives being killed."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from conftest import Folders
from helpers import correct_pack, deleted, emptied, renamed, truncated, weights
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from abc_nb import api
from abc_nb.bias.lines import Line, Lines
from abc_nb.bias.window import Window
from abc_nb.certificates.shortest import Shortest
from abc_nb.common import paths
from abc_nb.common.errors import InputError
from abc_nb.experiments import experiment, names
from abc_nb.experiments.experiment import Experiment
from abc_nb.experiments.names import Name
from abc_nb.model.positions import NoPosition
from abc_nb.problems.sampling import Sampler
from abc_nb.problems.tasks import Task
from abc_nb.runs import pack, packing, store
from abc_nb.runs.run import Outcome, Run

Names = list[str]


@dataclass(frozen=True)
class Given:
    """A run whose parts are given, instead of being read."""

    rows: tuple[Outcome, ...] = (Outcome(3, 5, 5, 2),)
    validations: tuple[tuple[int, float, float, float], ...] = ((2, 0.5, 1.25, 0.75),)
    tried: tuple[tuple[float, int, float, float], ...] = ()
    lines: tuple[Line, ...] | None = None
    floor: float | None = None
    checksum: str | None = None
    has_weights: bool = False
    wrong: Shortest | None = None
    folder: Path = Path()

    def weights_path(self) -> Path:
        raise AssertionError("it has none")

    def tests(self) -> list[Outcome]:
        return [*self.rows]

    def history(self) -> pd.DataFrame:
        return pd.DataFrame(self.validations, columns=["step", "seconds", "loss", "accuracy"])

    def thresholds(self) -> pd.DataFrame | None:
        if self.lines is None:
            return None
        found = pd.DataFrame(self.tried, columns=["share", "lines", "skill", "validation"])
        return found.drop(columns="validation") if found.validation.isna().all() else found

    def bias(self, heads: int) -> Lines | None:
        return None if self.lines is None else Lines(heads, self.lines, self.floor, "closed")

    def shortest_wrong(self) -> Shortest | None:
        return self.wrong


FACTS = {
    "steps": 4,
    "seconds": {"training": 0.1, "evaluation": 0.25},
    "device": 'a "CPU", 2 cores',
    "threads": 1,
    "versions": {"python": "3.11", "torch": "2.10", "numpy": "2", "pandas": "3.1.1", "safetensors": "0.8.0"},
    "date": "2026-11-24",
    "shipped": False,
}


def made_up(chosen: Experiment, seed: int = 0, **parts: Any) -> Run:
    return Run(chosen, seed, Given(**parts), FACTS)


def shipped(chosen: Experiment, seed: int = 0) -> Run:
    """The run, which has to come from the pack."""
    found = store.find(chosen, seed, ("shipped",))
    assert found is not None
    return found


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# ---- what goes in comes out -------------------------------------------------------------------------


@pytest.mark.parametrize("fixture", ["run", "calibrated"])
def test_a_shipped_run_gives_what_the_run_made_here_gives(fixture: str, request: pytest.FixtureRequest) -> None:
    run: Run = request.getfixturevalue(fixture)
    store.ship(run, weights=True)
    found, tried = shipped(run.experiment), run.thresholds()
    pd.testing.assert_frame_equal(found.evaluation(), run.evaluation(), check_exact=True)
    pd.testing.assert_frame_equal(found.history(), run.history(), check_exact=True)
    assert (tried is None) == (fixture == "run")
    if tried is None:
        assert found.thresholds() is None
    else:
        pd.testing.assert_frame_equal(found.thresholds(), tried, check_exact=True)
    assert found.bias() == run.bias()
    assert found.shortest_wrong() == run.shortest_wrong()
    assert (found.problems(), found.reached(0.0)) == (run.problems(), run.reached(0.0))
    assert (found.key, found.checksum, found.has_weights) == (run.key, run.checksum, True)
    torch.testing.assert_close(dict(found.model().state_dict()), weights(run.folder), rtol=0, atol=0)
    assert found.manifest == {name: run.manifest[name] for name in found.manifest} | {"shipped": True}
    assert run.manifest.keys() - found.manifest.keys() == {"files", "checksum"}


numbers = st.floats(allow_nan=False, allow_infinity=False)
validations = st.lists(st.tuples(st.integers(0, 10**6), numbers, numbers, numbers), min_size=1, max_size=4)
tests = st.lists(st.builds(Outcome, st.integers(1, 10**4), *[st.integers(1, 10**4)] * 3), max_size=4)
lines = st.builds(
    Line,
    st.sampled_from(["self", "cross"]),
    st.integers(0, 5),
    st.integers(0, 1),
    st.sampled_from(["diagonal", "antidiagonal", "vertical"]),
    st.sampled_from(["operand 1", "output", "$", "&", ",", "NA", '"', "whole"]),
    st.integers(-50, 50),
    st.floats(allow_nan=False, max_value=100),
)
texts = st.text("0123456789+*?", max_size=9)
wrong = st.none() | st.builds(Shortest, texts, texts, texts)
tried = st.lists(st.tuples(numbers, st.integers(0, 99), numbers, numbers | st.just(math.nan)), min_size=1, max_size=3)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=tests,
    history=validations,
    bias=st.lists(lines, max_size=5),
    thresholds=tried,
    floor=st.none() | numbers,
    shortest=wrong,
)
def test_numbers_come_back_to_the_last_bit(
    rows: list[Outcome],
    history: list[Any],
    bias: list[Line],
    thresholds: list[Any],
    floor: float | None,
    shortest: Shortest | None,
    child: Experiment,
    tmp_path: Path,
) -> None:
    shutil.rmtree(tmp_path, ignore_errors=True)
    parts = {"rows": (*rows,), "validations": (*history,), "tried": (*thresholds,), "lines": (*bias,), "floor": floor}
    parts["wrong"] = shortest
    run = made_up(child, **parts)
    packing.add(tmp_path, [run], set())
    read = pack.open_pack(tmp_path)
    assert read is not None
    found = read.run(child, 0)
    assert found is not None
    assert found.source.tests() == run.source.tests()
    pd.testing.assert_frame_equal(found.history(), run.history(), check_exact=True)
    pd.testing.assert_frame_equal(found.thresholds(), run.thresholds(), check_exact=True)
    assert found.bias() == run.bias()
    assert found.shortest_wrong() == shortest


def test_what_a_search_found_outlives_the_weights_and_later_runs(
    run: store.Run, tiny: Experiment, folders: Folders
) -> None:
    wanted = run.shortest_wrong()
    assert wanted is not None and wanted.problem and wanted.right == str(int(wanted.problem) + 1) != wanted.answer
    store.ship(run, weights=False)
    packing.add(
        folders.shipped, [made_up(renamed(tiny, "nope")), made_up(renamed(tiny, "rope"), wrong=Shortest())], set()
    )
    assert not shipped(tiny).has_weights and shipped(tiny).shortest_wrong() == wanted
    assert shipped(renamed(tiny, "nope")).shortest_wrong() is None  # never searched
    assert shipped(renamed(tiny, "rope")).shortest_wrong() == ("", "", "")  # searched, and none was found
    packing.add(folders.shipped, [shipped(tiny)], set())
    assert shipped(tiny).shortest_wrong() == wanted


def test_only_the_first_seed_of_the_papers_tasks_is_searched(tiny: Experiment, tmp_path: Path) -> None:
    lists = replace(tiny, identity=Name("listops-sm", "vanilla"), sampler=Sampler(Task("listops-sm")))
    runs = [
        made_up(chosen, seed, wrong=Shortest("9", "0", "10")) for chosen, seed in ((tiny, 1), (lists, 0), (tiny, 0))
    ]
    packing.add(tmp_path, runs, set())
    assert pd.read_csv(tmp_path / "shortest.csv", dtype=str).values.tolist() == [
        [pack.short(tiny.key(0)), "9", "0", "10"]
    ]


def test_a_model_that_can_be_certified_is_not_searched(
    tiny: Experiment, run: store.Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that looks at nothing but the token before: it is wrong on nearly everything."""
    near = replace(tiny.model, position=NoPosition(), bias=Window(0))
    monkeypatch.setattr(Run, "model", lambda self: replace(tiny, model=near).build(0).eval())
    assert run.shortest_wrong() is None


# ---- the order of rows ------------------------------------------------------------------------------


def several(tiny: Experiment) -> list[Run]:
    """Three runs of two tasks."""
    other = replace(tiny, identity=replace(tiny.identity, task="addition"))
    return [made_up(tiny, 3), made_up(other, 1), made_up(tiny, 0, rows=(Outcome(1, 2, 2, 1), Outcome(2, 2, 2, 0)))]


def test_files_do_not_depend_on_the_order_in_which_runs_were_shipped(tiny: Experiment, tmp_path: Path) -> None:
    runs = several(tiny)
    packing.add(tmp_path / "all", runs, set())
    for run in reversed(runs):
        packing.add(tmp_path / "each", [run], set())
    assert contents(tmp_path / "all") == contents(tmp_path / "each")


def test_one_more_run_changes_no_line_of_the_others(tiny: Experiment, tmp_path: Path) -> None:
    first, other, more = several(tiny)
    packing.add(tmp_path, [first, other], set())
    before = contents(tmp_path)
    packing.add(tmp_path, [more], set())
    after = contents(tmp_path)
    for name in ("runs.csv", "evaluation.csv", "history.csv"):
        kept, now = before[name].splitlines(), after[name].splitlines()
        assert [line for line in now if line in kept] == kept
        assert len(now) == len(kept) + (2 if name.startswith("evaluation") else 1)


def test_a_run_takes_the_place_of_one_that_was_trained_otherwise(tiny: Experiment, folders: Folders) -> None:
    other = replace(tiny, training=replace(tiny.training, clip=3.0))
    for each in (tiny, other):
        packing.add(folders.shipped, [made_up(each)], set())
    assert store.find(tiny, 0) is None
    assert shipped(other).evaluation().correct.to_list() == [2]
    assert len((folders.shipped / "runs.csv").read_text().splitlines()) == 2
    assert len(json.loads((folders.shipped / "experiments.json").read_text())) == 1
    assert store.seeds() == {f"{tiny.name}-smoke": [0]}


# ---- reading ----------------------------------------------------------------------------------------


def test_each_file_is_read_once_and_only_when_it_is_needed(
    tiny: Experiment, folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    packing.add(folders.shipped, several(tiny), set())
    read, sha256 = Names(), pack.sha256
    monkeypatch.setattr(pack, "sha256", lambda path: read.append(path.name) or sha256(path))
    found = [shipped(tiny), shipped(tiny, 3)]
    assert read == ["runs.csv", "experiments.json"]
    for run in found:
        run.evaluation()
    assert read[2:] == ["evaluation.csv"]


FILES = ["runs.csv", "experiments.json", "evaluation.csv", "history.csv", "shortest.csv", "manifest.json"]
CALIBRATED = ["thresholds.csv", "lines.csv"]


def ship_with_another(calibrated: store.Run, other: Experiment, folder: Path) -> None:
    """Ship a run with its weights, and another one, of which there is a wrong problem: so the pack has every file."""
    packing.add(folder, [calibrated, made_up(other, wrong=Shortest("10", "1", "11"))], {calibrated.key})


def changed(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"0", b"1"))


def everything(run: Run) -> None:
    run.evaluation(), run.history(), run.thresholds(), run.bias(), run.shortest_wrong(), run.model()


@pytest.mark.parametrize("name", [*FILES, *CALIBRATED, "weights"])
@pytest.mark.parametrize("damage", [truncated, emptied, changed, deleted])
def test_a_damaged_file_is_named_in_one_sentence_and_left_where_it_is(
    name: str,
    damage: Callable[[Path], None],
    calibrated: store.Run,
    child: Experiment,
    tiny: Experiment,
    folders: Folders,
) -> None:
    ship_with_another(calibrated, tiny, folders.shipped)
    path = folders.shipped / (name if name != "weights" else f"weights/{calibrated.key}.safetensors")
    damage(path)
    left = contents(folders.shipped)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = store.find(child, 0, ("shipped",))
        sentences = [str(each.message) for each in caught]
    if found is not None:
        with pytest.raises(InputError) as error:
            everything(found)
        sentences.append(str(error.value))
    what = "missing" if damage is deleted else "not what was written"
    assert sentences == [f"the shipped results are damaged: {path} is {what}; copy it anew from where they came from"]
    assert contents(folders.shipped) == left


def test_a_pack_with_another_experiment_under_a_key_is_named(tiny: Experiment, folders: Folders) -> None:
    packing.add(folders.shipped, [made_up(tiny)], set())
    path = folders.shipped / "experiments.json"
    path.write_text(path.read_text().replace('"steps": 4', '"steps": 5'))
    correct_pack(folders.shipped)
    with pytest.warns(UserWarning, match="experiments.json holds another experiment than that of successor-vanilla"):
        assert store.find(tiny, 0) is None


@pytest.mark.parametrize("name", [*FILES[:-1], *CALIBRATED])
@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"run,length\n1,2\n", b"[3]", b'key,run,seed\na,b,"c\n'])
def test_a_pack_of_anything_else_is_one_sentence(
    name: str, content: bytes, calibrated: store.Run, child: Experiment, tiny: Experiment, folders: Folders
) -> None:
    """Right checksums, and other content."""
    ship_with_another(calibrated, tiny, folders.shipped)
    (folders.shipped / name).write_bytes(content)
    correct_pack(folders.shipped)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = store.find(child, 0, ("shipped",))
    if found is not None:
        with pytest.raises(InputError, match=r"damaged|does not hold"):
            everything(found)


# ---- writing ----------------------------------------------------------------------------------------


class Killed(BaseException):
    """The process ends here."""


STEPS = [(packing, "write_bytes"), (shutil, "copyfile"), (packing, "write_json"), (os, "replace"), (Path, "unlink")]


def killed_at(step: int, monkeypatch: pytest.MonkeyPatch, write: Callable[[], None]) -> bool:
    """Whether writing was stopped before its file operation of this number."""
    left = [step]

    def stopped(original: Callable[..., Any]) -> Callable[..., Any]:
        def count(*arguments: Any, **named: Any) -> Any:
            left[0] -= 1
            if left[0] < 0:
                raise Killed
            return original(*arguments, **named)

        return count

    with monkeypatch.context() as patched:
        for owner, name in STEPS:
            patched.setattr(owner, name, stopped(getattr(owner, name)))
        try:
            write()
        except Killed:
            return True
    return False


@pytest.mark.slow
def test_whoever_is_killed_while_writing_leaves_the_old_pack_or_the_new_one(
    run: store.Run, tiny: Experiment, folders: Folders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = made_up(replace(tiny, identity=replace(tiny.identity, model="nope")), rows=(Outcome(1, 9, 9, 7),))
    better = replace(run, source=made_up(tiny, rows=(Outcome(3, 5, 5, 4),)).source)
    packing.add(folders.shipped, [run], {run.key})
    packing.add(folders.shipped, [better, more], set())
    new, seen = contents(folders.shipped), set()
    for step in range(200):
        shutil.rmtree(folders.shipped)
        packing.add(folders.shipped, [run], {run.key})
        stopped = killed_at(step, monkeypatch, lambda: packing.add(folders.shipped, [better, more], set()))
        pack.read_pack.cache_clear()
        found = shipped(tiny)
        is_new = store.find(more.experiment, 0, ("shipped",)) is not None
        assert found.has_weights is not is_new
        wanted = better if is_new else run
        assert (found.source.tests(), found.history().to_dict()) == (wanted.source.tests(), wanted.history().to_dict())
        if found.has_weights:
            found.model()
        seen.add((is_new, stopped))
        packing.add(folders.shipped, [better, more], set())
        left = contents(folders.shipped)
        assert {name: left[name] for name in new} == new
        if not stopped:
            break
    assert seen == {(False, True), (True, True), (True, False)}
    assert left == new


# ---- where it is ------------------------------------------------------------------------------------


def test_the_environment_names_the_folder_of_shipped_results(tmp_path: Path) -> None:
    show = "from abc_nb.common import paths; print(paths.SHIPPED)"
    for value, wanted in {str(tmp_path): tmp_path, "": paths.ROOT / "results"}.items():
        environment = os.environ | {"ABC_NB_RESULTS": value}
        found = subprocess.run(
            [sys.executable, "-c", show], env=environment, capture_output=True, text=True, check=True
        )
        assert found.stdout.strip() == str(wanted)


def test_where_no_results_are_shipped_one_sentence_says_how_to_name_them(folders: Folders, tiny: Experiment) -> None:
    says = rf"first, or set ABC_NB_RESULTS to the folder results of a checkout, for {folders.shipped} holds no shipped"
    with pytest.raises(InputError, match=says):
        api.load("addition-vanilla")
    packing.add(folders.shipped, [made_up(tiny)], set())
    with pytest.raises(InputError, match=r"first$"):
        api.load("addition-vanilla")


def test_the_projects_own_pack_is_whole_and_holds_runs_of_its_studies() -> None:
    found = pack.open_pack(paths.SHIPPED)
    assert found is not None
    assert {found.path(name).relative_to(found.folder).as_posix() for name in found.files} == found.files.keys()
    places = (path.relative_to(found.folder) for path in found.folder.rglob("*") if path.is_file())
    there = {path.as_posix() for path in places if path.parts[0] != "certificates"}
    assert there == {*found.files, "manifest.json"}
    assert len(there) < 150
    known = {*map(str, names("quick"))}
    for row in found.runs.values():
        name = row["key"].split("-quick-seed")[0]
        assert name in known
        assert row["key"] == experiment(name).key(row["seed"])


def test_the_facts_of_a_run_come_in_the_order_in_which_tables_show_them() -> None:
    row = {name: "1" for name in reversed(pack.FACTS)}
    assert list(pack.manifest_of(row)["versions"]) == ["python", "torch", "numpy", "pandas", "safetensors"]
