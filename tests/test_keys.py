"""The key of a run: its digest changes with all that training depends on, at any depth, and with nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abc_nb import experiments
from abc_nb.bias import Causal, Window
from abc_nb.calibration.calibrate import Calibration
from abc_nb.common.errors import InputError
from abc_nb.experiments import profiles
from abc_nb.experiments.experiment import Experiment, experiment
from abc_nb.experiments.names import Name
from abc_nb.model import positions
from abc_nb.model.transformer import ModelConfig
from abc_nb.problems.sampling import Sampler
from abc_nb.problems.tasks import Task
from abc_nb.training.progress import TrainingConfig

NAMES, PROFILES = st.sampled_from(experiments.names()), st.sampled_from([*profiles.PROFILES])
VARIED = ["addition-window-cyclic", "successor-rpe", "n-by-1-alibi-cross", "addition-lora"]
VARIED += ["addition-abc", "addition-abc-mod3-warm", "n-by-3-abc-from-4"]
IN_PLACE_OF_NONE = {"calibration": Calibration(), "parent": experiment("successor-nope")}
LABELS = {"identity", "profile", "tests"}  # what training does not depend on


@dataclass(frozen=True)
class OtherPosition(positions.PositionEncoding):
    pass


def digest(one: Experiment, seed: int = 0) -> str:
    """The end of the key, which names what training depends on."""
    return one.key(seed).rpartition("-")[2]


def changed(value: Any) -> Any:
    """Another value of the same kind."""
    match value:
        case bool():
            return not value
        case None:
            return 1
        case int() | float():
            return value + 1
        case str():
            return value + "x"
        case _:
            return (*value, value[0])


def variations(value: Any) -> Iterator[tuple[str, Any]]:
    """The value with one setting changed, for each setting at any depth, and the setting's path."""
    for field in fields(value):
        inner = getattr(value, field.name)
        if is_dataclass(inner):
            yield from ((f"{field.name}.{path}", replace(value, **{field.name: v})) for path, v in variations(inner))
        else:
            other = IN_PLACE_OF_NONE[field.name] if field.name in IN_PLACE_OF_NONE else changed(inner)
            yield field.name, replace(value, **{field.name: other})


def is_label(path: str) -> bool:
    """Whether a setting's path leads to what names an experiment or its parent, or to what it is tested on."""
    return path.removeprefix("parent.").split(".")[0] in LABELS


# ---- settings ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", VARIED)
def test_the_digest_changes_with_every_setting_but_labels_and_tests(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    original = experiment(name)
    for kind in (Name, Task, ModelConfig, TrainingConfig, Calibration, Window):
        monkeypatch.setattr(kind, "__post_init__", lambda self: None)  # any value will do here
    others = dict(variations(original))
    expected = {"identity.task", "identity.model", "identity.base", "profile", "tests", "warm", "accept", "rank"}
    expected |= {"sampler.task.name", "sampler.task.base", "sampler.regime", "training.steps", "model.width"}
    if "-abc" in name:
        expected |= {"parent.training.steps", "parent.model.width", "parent.sampler.regime"}
        expected |= {"parent.identity.model", "parent.profile", "parent.tests"}
        expected |= {"calibration.share", "calibration.keep", "calibration.directions", "calibration.kappa"}
    if "window" in name:
        expected |= {"model.bias.w", "model.bias.sides"}
    assert expected < others.keys()
    same = {path for path, other in others.items() if digest(other) == digest(original)}
    assert same == {path for path in others if is_label(path)}
    different = [digest(other) for path, other in others.items() if path not in same]
    assert len(set(different)) == len(different)


def test_the_key_begins_with_what_people_call_the_run() -> None:
    one = experiment("addition-vanilla-base4", "smoke")
    assert one.key(7) == f"addition-vanilla-base4-smoke-seed7-{digest(one, 7)}"
    assert digest(one, 7).isalnum()


def test_the_digest_changes_with_the_kind_of_a_part() -> None:
    original = experiment("addition-nope")
    other = replace(original, model=replace(original.model, position=OtherPosition()))
    assert digest(other) != digest(original)


REVISED = [
    (Window, ["addition-window", "addition-grid-w1-tx"], ["addition-vanilla", "addition-abc", "addition-lora"]),
    (positions.Sinusoidal, ["addition-vanilla", "addition-abc", "addition-window-cyclic"], ["addition-nope"]),
    (Causal, ["addition-vanilla", "addition-abc"], ["addition-window", "addition-alibi"]),
    (Calibration, ["addition-abc", "n-by-3-abc-anew"], ["addition-vanilla", "addition-lora", "addition-window"]),
    (Sampler, ["addition-vanilla", "addition-abc"], []),
    (TrainingConfig, ["addition-vanilla", "addition-abc"], []),
    (ModelConfig, ["addition-vanilla", "addition-abc"], []),
    (Task, ["addition-vanilla", "addition-abc"], []),
    (Experiment, ["addition-vanilla", "addition-abc"], []),
]


@pytest.mark.parametrize(("kind", "with_it", "without"), REVISED, ids=lambda value: getattr(value, "__name__", ""))
def test_the_digest_changes_with_the_revision_of_a_class_that_the_experiment_or_its_parent_holds(
    kind: type, with_it: list[str], without: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [*with_it, *without]
    before = {name: digest(experiment(name)) for name in names}
    for revision in (0, 1, 2):
        monkeypatch.setattr(kind, "REVISION", revision, raising=False)
        after = {name: digest(experiment(name)) for name in names}
        assert {name for name in names if after[name] != before[name]} == ({*with_it} if revision else set())
    other = {name: after[name] for name in with_it}
    monkeypatch.setattr(kind, "REVISION", 3)
    assert not {*other.items()} & {(name, digest(experiment(name))) for name in with_it}


# ---- seeds ------------------------------------------------------------------------------------------


@given(NAMES, PROFILES, st.integers(0, 100), st.integers(0, 100))
def test_a_key_changes_with_the_seed_and_with_nothing_else(name: str, profile: str, first: int, second: int) -> None:
    keys = experiment(name, profile).key(first), experiment(name, profile).key(second)
    assert (keys[0] == keys[1]) == (first == second)
    assert all(key.startswith(f"{name}-{profile}-seed") for key in keys)
    ends = [key.rpartition("-")[2] for key in keys]
    assert (ends[0] == ends[1]) == (first == second)


@pytest.mark.parametrize("seed", [-1, "0", 1.0, None])
def test_a_seed_that_is_none_is_one_sentence(seed: Any) -> None:
    with pytest.raises(InputError, match="is not possible: give a whole number from 0 on"):
        experiment("addition-vanilla").key(seed)


# ---- all experiments --------------------------------------------------------------------------------


@pytest.mark.slow
def test_every_experiment_has_a_key_of_its_own() -> None:
    every = [experiment(name, profile) for profile in profiles.PROFILES for name in experiments.names(profile)]
    every += [experiment(f"{task}-vanilla", base=base) for task in ("addition", "successor") for base in (3, 5, 15)]
    assert len({one.key(0) for one in every}) == len(every)


@pytest.mark.slow
def test_in_the_profile_quick_no_two_names_stand_for_the_same_training() -> None:
    """In the others some do, where a model's size or its training is the profile's."""
    counted = Counter(digest(experiment(name)) for name in experiments.names())
    assert max(counted.values()) == 1
