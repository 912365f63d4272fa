"""Specs: names are looked up, recipes come in layers, a changed field is another run, new tasks need no other part."""

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from processes import python

from abc_nb.bias import Window
from abc_nb.bias.lines import Lines
from abc_nb.calibration.calibrate import Calibration
from abc_nb.common import paths
from abc_nb.common.config import classes, from_data, to_data
from abc_nb.common.errors import InputError
from abc_nb.model.positions import PositionEncoding, Sinusoidal
from abc_nb.problems.catalogue import REGISTRY, addition, known_as
from abc_nb.problems.rules import Rule
from abc_nb.problems.tasks import Task
from abc_nb.specs.experiment import LANGUAGE, Name
from abc_nb.specs.language import language_models
from abc_nb.specs.models import model_table, models_of, register_models
from abc_nb.specs.names import every_name, how_to_train, matching, parse, train_command
from abc_nb.specs.recipes import PROFILES, TESTS
from abc_nb.specs.spec import Spec, abc_of, spec
from audit import studies

TYPED = [name for name in every_name() if name.task != LANGUAGE]


@given(st.sampled_from(TYPED), st.integers(2, 16))
def test_a_base_is_part_of_the_name(name: Name, base: int) -> None:
    if base in Task(name.task).bases:
        other = replace(name, base=base)
        assert parse(str(other)) == spec(other).identity == other
    else:
        with pytest.raises(InputError, match=f"base {base} is not (possible|supported)"):
            replace(name, base=base)


NO_NAMES = ["", "addition", "vanilla", "-vanilla", "addition-nothing", "parity-classification-vanilla-base2"]
NO_NAMES += ["addition-abc-base10", "addition-abc-base04", "addition-abc-base17", "parity-classifier-base2"]


@pytest.mark.parametrize("text", NO_NAMES)
def test_what_is_no_name_stands_for_nothing(text: str) -> None:
    assert parse(text) is None


@pytest.fixture
def addition_mod() -> Iterator[str]:
    """A task whose name begins with that of another one."""

    @known_as("addition-mod")
    def rule(base: int) -> Rule:
        return replace(addition(base), name="addition-mod", title="Addition, modulo", grows=0)

    yield "addition-mod"
    del REGISTRY["addition-mod"]


def test_a_task_whose_name_begins_like_another_is_found(addition_mod: str) -> None:
    modulo = spec("addition-mod-vanilla")
    assert isinstance(modulo, Spec) and (modulo.task.name, modulo.identity.model) == (addition_mod, "vanilla")
    assert modulo.task.answer([np.array([[9, 9]]), np.array([[2, 0]])]).tolist() == [[1, 0]], "99 + 2, modulo 100"
    assert parse("addition-mod-abc-base7") == Name(addition_mod, "abc", 7)


@pytest.mark.parametrize("profile", PROFILES)
def test_every_experiment_has_a_spec_and_its_plain_data_say_all(profile: str) -> None:
    digests: dict[str, list[Any]] = {}
    languages = [Name(LANGUAGE, model) for model in language_models()] if profile == "quick" else []
    for name in [*studies.names_of(*studies.studies_of(profile)), *languages]:
        experiment = spec(name, profile)
        assert experiment.tests and json.loads(json.dumps(experiment.data)) == experiment.data
        if isinstance(experiment, Spec):
            assert experiment.task == Task(name.task, name.base) and experiment.sampler.widths
        digests.setdefault(experiment.digest, []).append(experiment)
    for same in digests.values():
        assert all(other == same[0] for other in same), "one digest, one spec"


def test_practice_is_the_last_part_of_abs_and_abc() -> None:
    """Changes are those of the model that is practised with; `practice` is the number of rounds."""
    for name in ("addition-abs", "addition-abc", "addition-decoder-abs", "addition-decoder-abc-twice", "n-by-n-abc"):
        experiment = spec(name, changes=["training.steps=3200", "practice=2"])
        assert isinstance(experiment, Spec) and experiment.parent and experiment.parent.training.steps == 3200
        assert experiment.training.steps == spec(name).training.steps
        assert (experiment.practice, experiment.start, experiment.calibration) == (2, "parent", None)
        assert (experiment.model, experiment.sampler) == (experiment.parent.model, experiment.parent.sampler)


def test_a_plain_model_can_be_calibrated_in_any_base() -> None:
    assert abc_of("addition-vanilla-base4") == spec("addition-abc-unpractised-base4")
    assert abc_of("addition-decoder-vanilla") == spec("addition-decoder-abc-unpractised")
    for name in ("addition-abc", "addition-rope", "vanilla", "language-plain", ""):
        with pytest.raises(InputError, match="cannot be calibrated here: name a plain model such as addition-vanilla"):
            abc_of(name)


def test_a_test_length_that_a_position_does_not_reach_is_left_out() -> None:
    lengths = [length for length, _ in spec("addition-learned").tests]
    assert lengths and max(lengths) < 1024 < max(TESTS["far"])


@pytest.mark.parametrize(
    ("field", "typed", "value"),
    [
        ("training.steps", "3200", 3200),
        ("model.position", '{"type": "Sinusoidal", "period": 5}', Sinusoidal(5)),
        ("parent.model.bias", '{"type": "Window", "w": 2}', Window(2)),
        ("sampler.regime", "padded", "padded"),
        ("accept", "0.5", 0.5),
        ("calibration", '{"type": "Calibration", "share": 0.3}', Calibration(share=0.3)),
        ("parent.training.steps", "99", 99),
    ],
)
def test_any_field_can_be_set_and_gives_another_key(field: str, typed: str, value: Any) -> None:
    change, read = f"{field}={typed}", attrgetter(field)
    usual, changed = (spec("addition-abc-unpractised", changes=changes) for changes in ([], [change]))
    assert read(changed) == value != read(usual)
    assert (changed.training == usual.training) is (field != "training.steps"), "a parent's is its own"
    assert changed.digest != usual.digest and changed.changes == (change,)


@pytest.mark.parametrize("change", ["mixture.longest=3", "training.steps=9", "practice.batch=4", "model.width=64"])
def test_a_field_of_a_language_model_can_be_set_and_gives_another_key(change: str) -> None:
    usual, changed = (spec("language-abs", changes=changes) for changes in ([], [change]))
    assert changed.digest != usual.digest and changed.name == f"language-abs --set {change}"


def test_a_whole_number_is_the_same_value_as_a_fraction() -> None:
    changes = ([], ["model.dropout=0"], ["training.clip=1"])
    assert len({spec("addition-vanilla", "smoke", change).digest for change in changes}) == 1


def test_a_bias_made_by_hand_follows_the_size_that_is_set() -> None:
    experiment = spec("addition-decoder-abs", changes=["model.heads=4", "model.decoder_layers=1"])
    assert isinstance(experiment.model.bias, Lines) and experiment.model.bias.heads == 4
    assert {line.layer for line in experiment.model.bias.lines} == {0}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("training.steps", "give FIELD=VALUE"),
        ("train.steps=3", "has no part 'train'"),
        ("parent.start=new", "has no field 'start'|cannot set"),
        ("training.steps=0", "a training cannot have steps=0: give 1 or more"),
        ("model.position=Rotate", "'Rotate' is not possible as position of a ModelConfig"),
        ("accept=high", "'high' is not possible as accept of a Spec"),
        ("model.heads=7", "7 heads cannot share a width of 64"),
        ("model.width=-64", "-64 is not possible as width of a ModelConfig: give 1 or more"),
        ("model.decoder_layers=0", "0 is not possible as decoder_layers"),
        ("model.dropout=1", "a dropout of 1.0 leaves nothing"),
        ('model.position={"type": "Sinusoidal", "period": -3}', "-3 is not possible as period of a Sinusoidal"),
        ('model.position={"type": "Relative", "clip": -1}', "-1 is not possible as clip"),
        ('parent.model.bias={"type": "Window", "w": -1, "sides": "one"}', "-1 is not possible as w of a Window"),
        ('model.bias={"type": "Window", "w": 1}', "the bias of addition-abc-unpractised is read out of another model"),
        ("parent=null", "addition-abc-unpractised is made from another model"),
        ("calibration=null", "addition-abc-unpractised is made from another model"),
        ("identity=3", "a field is one of"),
        ("practice=3", "is not made from another model in this way"),
        ('parent.model.bias={"type": "Wall"}', "unknown configuration type 'Wall'"),
    ],
)
def test_a_change_that_is_not_possible_is_a_sentence(change: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        spec("addition-abc-unpractised", changes=[change])


def test_changes_that_need_each_other_are_made_together_and_no_practice_is_no_practised_model() -> None:
    assert spec("addition-vanilla", changes=["model.width=63", "model.heads=7"]).model.head_size == 9
    with pytest.raises(InputError, match="0 is not possible as practice of a Spec: give 1 or more"):
        spec("addition-abc", changes=["practice=0"])
    for changes in ("training.steps=3", None, [3]):
        with pytest.raises(InputError, match="changes are a list of texts"):
            spec("addition-vanilla", changes=changes)


def test_a_pattern_matches_names_and_the_name_of_a_study_its_experiments() -> None:
    assert [str(name) for name in matching("addition-window")] == ["addition-window"]
    assert matching("addition-abc-base4") == [Name("addition", "abc", 4)]
    assert {name.task for name in matching("parity")} == {"parity"}
    every = [*map(str, matching("*-abc"))]
    assert all(name.endswith("-abc") for name in every)
    assert {"addition-abc", "n-by-n-decoder-abc", "language-abc"} <= {*every}
    assert studies.of_pattern("proven") == studies.names_of("proven") and len(studies.of_pattern("proven")) == 16
    with pytest.raises(InputError, match="no experiment matches 'proven'"):
        matching("proven")


def test_a_registered_model_is_found_by_name_and_takes_no_other_models_name() -> None:
    model = replace(models_of(Task("addition"))["vanilla"], title="Mine")
    try:
        register_models({"mine": model}, "mine")
        register_models({"mine": model}, "mine")
        assert parse("addition-mine-base4") == Name("addition", "mine", 4)
        assert train_command(Name("addition", "mine")) == "mine train addition-mine"
        for name in ("mine", "vanilla"):
            with pytest.raises(InputError, match=f"'{name}' is the name of another model"):
                register_models({name: replace(model, title="Yours")}, "mine")
    finally:
        del model_table()["mine"]
    assert parse("addition-mine") is None


@pytest.mark.slow
def test_an_experiment_is_advised_with_the_command_that_knows_it(tmp_path: Path) -> None:
    """Of all names that are known here, with the audit's, those that `abc-nb list` shows without it."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    code = f"import sys; sys.path.insert(0, {str(paths.ROOT)!r}); from abc_nb.cli import main; main(['list'])"
    listed = {line.split()[0] for line in python(code, tmp_path, environment).splitlines()[1:]}
    for number, name in enumerate(every_name()):
        program = "abc-nb" if str(name) in listed else "python -m audit"
        assert train_command(name) == f"{program} train {name}"
        if number % 100 == 0:  # of all names there are some thousand specs
            assert how_to_train(spec(name), 1) == f"run `{program} train {name} --seed 1` first"


def test_every_encoding_can_be_named_and_comes_back_from_plain_data() -> None:
    for name, encoding in classes(PositionEncoding).items():
        if encoding.__module__.startswith("abc_nb."):
            position = spec("addition-vanilla", changes=[f"model.position={name}"]).model.position
            assert from_data(to_data(position), [encoding]) == position
