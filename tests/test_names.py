"""Names of experiments: what is printed is parsed back; bases, second names, and what is no name."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from abc_nb.common.errors import InputError
from abc_nb.experiments import BASES, CLASSIFIER, catalogue, names
from abc_nb.experiments.experiment import experiment
from abc_nb.experiments.names import ALIASES, TASKS, Name, parse
from abc_nb.problems.tasks import REGISTRY

MODELS = st.sampled_from([*catalogue.MODELS])
BASE = st.integers(2, 16)


def usual(task: str) -> int:
    bases = REGISTRY[task].bases
    return 10 if 10 in bases else bases[0]


# ---- printed and parsed -----------------------------------------------------------------------------


@given(st.sampled_from(TASKS), MODELS, BASE)
def test_a_printed_name_is_parsed_back(task: str, model: str, base: int) -> None:
    assume(base in REGISTRY[task].bases)
    name = Name(task, model, base)
    assert parse(str(name)) == name
    assert str(name) == f"{task}-{model}" + (f"-base{base}" if base != usual(task) else "")
    assert parse(f"{task}-{model}-base{base}") == name, "the usual base may be written, too"


@given(st.sampled_from(TASKS), MODELS, BASE)
def test_a_base_is_given_or_part_of_the_text_or_both(task: str, model: str, base: int) -> None:
    assume(base in REGISTRY[task].bases)
    assert parse(f"{task}-{model}", base) == parse(f"{task}-{model}-base{base}", base) == Name(task, model, base)


@given(st.sampled_from(TASKS), MODELS)
def test_without_a_base_it_is_the_tasks_usual_one(task: str, model: str) -> None:
    assert parse(f"{task}-{model}") == Name(task, model, usual(task))


def test_the_classifier_is_the_plain_model_of_another_task() -> None:
    classifier = Name("parity-classification", "vanilla", 2)
    assert parse(CLASSIFIER) == parse(CLASSIFIER, 2) == classifier
    assert str(classifier) == CLASSIFIER == "parity-classifier"
    assert parse("parity-vanilla") == Name("parity", "vanilla", 2)


def test_every_name_that_there_is_is_parsed_back() -> None:
    for name in {*names("quick"), *names("paper")}:
        assert parse(str(name)) == parse(name) == name
        assert parse(name, name.base) == name


def test_a_name_keeps_its_base() -> None:
    with pytest.raises(InputError):
        parse(Name("addition", "abc"), 4)


# ---- second names -----------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["", "-base4"])
@pytest.mark.parametrize("task", ["addition", "n-by-1"])
def test_abs_is_the_cyclic_window(task: str, suffix: str) -> None:
    assert str(parse(f"{task}-abs{suffix}")) == f"{task}-window-cyclic{suffix}"
    assert experiment(f"{task}-abs{suffix}") == experiment(f"{task}-window-cyclic{suffix}")


def test_second_names_are_those_of_models_and_hide_none() -> None:
    assert {*ALIASES.values()} <= catalogue.MODELS.keys()
    assert not ALIASES.keys() & catalogue.MODELS.keys()


# ---- errors -----------------------------------------------------------------------------------------


def test_a_base_is_given_or_part_of_the_name() -> None:
    for base in BASES:
        named, given_base = experiment(f"addition-abc-base{base}"), experiment("addition-abc", base=base)
        assert named == given_base == experiment(named.name)
        assert (named.task.base, named.parent and named.parent.name) == (base, f"addition-vanilla-base{base}")
    assert experiment("addition-abc-base10") == experiment("addition-abc")
    assert experiment("parity-abc-base2") == experiment("parity-abc")
    with pytest.raises(InputError, match="'addition-abc-base4' has base 4, not 8: leave one of the two out"):
        experiment("addition-abc-base4", base=8)


@pytest.mark.parametrize("suffix", ["base", "base0", "base1", "base04", "base17", "base4x", "basex"])
def test_a_base_that_is_none_is_no_name(suffix: str) -> None:
    with pytest.raises(InputError, match=f"unknown experiment 'addition-abc-{suffix}'"):
        experiment(f"addition-abc-{suffix}")


@pytest.mark.parametrize("base", [10, 4])
@pytest.mark.parametrize("name", ["parity-vanilla", "parity-abc", CLASSIFIER])
def test_another_base_of_parity_is_one_sentence_even_if_it_is_ten(name: str, base: int) -> None:
    title = REGISTRY["parity-classification" if name == CLASSIFIER else "parity"].title
    with pytest.raises(InputError) as caught:
        experiment(name, base=base)
    assert str(caught.value) == f"base {base} is not possible: {title} is written in base 2"


def test_another_base_is_in_the_name() -> None:
    assert experiment("addition-vanilla", base=7).name == "addition-vanilla-base7"
    assert experiment("addition-vanilla", base=2).name == "addition-vanilla-base2"
    assert experiment("addition-vanilla").name == "addition-vanilla"
    assert experiment("parity-vanilla").name == "parity-vanilla"


@pytest.mark.parametrize("text", ["", "zzz", "vanilla", "vanilla-addition", "addition", "parity-classification"])
def test_text_without_a_task_in_front_is_no_name(text: str) -> None:
    if text == "parity-classification":  # read as a model of Parity, which there is none of
        assert parse(text) == Name("parity", "classification", 2)
        assert "classification" not in catalogue.MODELS
    else:
        assert parse(text) is None
    with pytest.raises(InputError, match=f"unknown experiment '{text}': .*`abc-nb list` shows all"):
        experiment(text)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("addition-vanila",), "unknown experiment 'addition-vanila': did you mean addition-vanilla"),
        (("",), "unknown experiment ''"),
        (("zzz",), "unknown experiment 'zzz': `abc-nb list` shows all"),
        (("addition-vanilla", "huge"), "unknown profile 'huge': choose one of smoke, quick, paper"),
        (("addition-vanilla", "quick", 1), "base 1 is not supported: choose a base from 2 to 16"),
        (("addition-vanilla", "quick", 0), "base 0 is not supported: choose a base from 2 to 16"),
        (("addition-vanilla", "quick", "4"), "base 4 is not supported: choose a base from 2 to 16"),
        ((7,), "7 is no experiment: give a name, as in 'addition-vanilla'"),
        ((None,), "None is no experiment: give a name, as in 'addition-vanilla'"),
    ],
)
def test_what_does_not_exist_is_named_with_what_does(arguments: tuple[Any, ...], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        experiment(*arguments)


@pytest.mark.parametrize(("task", "base"), [("division", 10), ("addition", 1), ("addition", 17), ("parity", 10)])
def test_a_name_has_a_task_and_a_base_that_exist(task: str, base: int) -> None:
    with pytest.raises(InputError):
        Name(task, "vanilla", base)
