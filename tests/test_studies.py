"""Studies: every experiment that one names exists, patterns find them, and each profile has its part."""

from __future__ import annotations

import itertools

import pytest

from abc_nb import experiments
from abc_nb.common.errors import InputError
from abc_nb.experiments import catalogue, profiles
from abc_nb.experiments.experiment import experiment
from abc_nb.experiments.names import Name, parse
from abc_nb.experiments.studies import STUDIES, Study, corner, names_of
from abc_nb.problems.tasks import Task

TABLES = ("successor", "addition", "parity", "n-by-1")


# ---- what there is ----------------------------------------------------------------------------------


@pytest.mark.parametrize("study", STUDIES)
def test_every_experiment_of_a_study_exists_in_its_profiles(study: str) -> None:
    chosen = STUDIES[study]
    assert all({*chosen.models} <= catalogue.models_of(Task(task)).keys() for task in chosen.tasks)
    assert (
        len(chosen.names) == len({*chosen.names}) == len(chosen.tasks) * len(chosen.models) * max(1, len(chosen.bases))
    )
    for name in chosen.names[:: max(1, len(chosen.names) // 8)]:
        for profile in chosen.profiles:
            found = experiment(name, profile)
            assert found.identity == name
            assert found.task == Task(name.task, name.base)


@pytest.mark.parametrize("profile", profiles.PROFILES)
def test_names_are_those_of_the_profiles_studies_each_once(profile: str) -> None:
    names = experiments.names(profile)
    assert len(set(names)) == len(names)
    shown = [study for study, each in STUDIES.items() if profile in each.profiles]
    assert {*names} == {name for study in shown for name in STUDIES[study].names}


def test_names_are_the_papers_tasks_with_its_models_and_more() -> None:
    names = {*map(str, experiments.names())}
    for task, model in itertools.product(
        TABLES, ("vanilla", "nope", "rope", "alibi", "rpe", "window", "window-cyclic", "nope-window", "abc", "lora")
    ):
        assert f"{task}-{model}" in names
        assert parse(f"{task}-{model}") == Name(task, model, 2 if task == "parity" else 10)
        assert experiment(f"{task}-{model}").task.name == task
    others = {"n-by-1-window-cyclic-both", "listops-max-window-both", "parity-classifier", "addition-abc-mod3-warm"}
    others |= {"addition-algorithm-1-none-new", "addition-window-both-t4", "addition-window-both-width-32"}
    assert others < names


@pytest.mark.parametrize("task", experiments.ARITHMETIC)
def test_abc_and_algorithm_1_are_there_in_all_readings(task: str) -> None:
    names = {*map(str, experiments.names())}
    for index, weights in itertools.product(("none", "plain", "mod3"), ("new", "warm")):
        assert (f"{task}-algorithm-1-{index}-{weights}" in names) == (index != "mod3")
        assert (f"{task}-abc-{index}-{weights}" in names) == ((index, weights) != ("none", "new"))


def test_a_model_that_is_in_no_study_of_a_task_is_no_name_of_it() -> None:
    names = {*map(str, experiments.names())}
    assert not {"successor-abc-from-4", "listops-max-nope-window", "addition-grid-w2-t5", "direct-n-by-n-abc"} & names
    assert "n-by-3-abc-from-4" in names


# ---- order and corners ------------------------------------------------------------------------------


def test_a_study_is_a_product_base_by_base_and_model_by_model() -> None:
    found = Study(("addition", "parity"), ("vanilla", "abc")).names
    assert [str(name) for name in found] == ["addition-vanilla", "parity-vanilla", "addition-abc", "parity-abc"]
    based = Study(("addition",), ("vanilla", "abc"), (2, 4)).names
    wanted = [("vanilla", 2), ("abc", 2), ("vanilla", 4), ("abc", 4)]
    assert based == [Name("addition", model, base) for model, base in wanted]


def test_names_of_several_studies_are_each_there_once_in_order() -> None:
    both = names_of("scaffolds", "lists", "sizes")
    parts = [name for study in ("scaffolds", "lists", "sizes") for name in STUDIES[study].names]
    assert both == [*dict.fromkeys(parts)]


@pytest.mark.parametrize("study", STUDIES)
def test_smoke_takes_a_corner_of_a_study_and_the_others_all_of_it(study: str) -> None:
    whole = STUDIES[study]
    small = corner(whole, "smoke")
    assert {*small.names} <= {*whole.names} and small.names
    if whole.corner is None:
        assert small == whole
    else:
        assert (small.tasks, small.models, small.bases) == (
            whole.tasks[:1],
            whole.models[: whole.corner],
            whole.bases[:1],
        )
    assert corner(whole, "quick") == corner(whole, "paper") == whole


# ---- patterns ---------------------------------------------------------------------------------------


def test_a_pattern_finds_what_has_a_name() -> None:
    assert experiments.matching("n-by-2-*-base4") == [
        Name("n-by-2", model, 4) for model in ("vanilla", "by-head", "abc-mod3-warm", "abc-anew")
    ]
    grid = {Name("addition", f"grid-w1-t{t}") for t in ("x", *"2345678")}
    assert {*experiments.matching("addition-grid-w1-*")} == grid
    assert experiments.matching("*-text-rate", "paper")
    with pytest.raises(InputError, match="no experiment matches"):
        experiments.matching("*-text-rate", "quick")
    assert experiment("addition-vanilla-text-rate", "quick").training.learning_rate == 1e-5


def test_of_the_map_of_windows_and_periods_a_cross_is_trained() -> None:
    """w=1 with every period, T=3 and no period with every window; the other cells can be trained by their names."""
    windows, periods = ("x", *"0123"), ("x", *"2345678")
    trained = {(w, t) for w in windows for t in periods if w == "1" or t in ("3", "x")}
    assert {*experiments.matching("parity-grid-*")} == {Name("parity", f"grid-w{w}-t{t}") for w, t in trained}
    for w, t in itertools.product(windows, periods):
        assert experiment(f"parity-grid-w{w}-t{t}").name == f"parity-grid-w{w}-t{t}"


# ---- what is trained --------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", profiles.PROFILES)
def test_needed_experiments_are_distinct_and_start_with_the_paper_tasks(profile: str) -> None:
    needed = experiments.needed(profile)
    assert len({one.key(0) for one in needed}) == len(needed)
    assert [one.name for one in needed[:2]] == ["successor-vanilla", "addition-vanilla"]
    tasks = {one.task.name for one in needed}
    assert tasks >= ({"successor", "addition"} if profile == "smoke" else {*experiments.ARITHMETIC})


def test_smoke_trains_a_corner_of_each_study_and_all_of_the_story() -> None:
    needed = {one.identity for one in experiments.needed("smoke")}
    corners = [corner(study, "smoke") for study in STUDIES.values() if "smoke" in study.profiles]
    assert needed == {name for study in corners for name in study.names}
    assert {*STUDIES["story"].names} < needed
    assert len(needed) < len(experiments.names("smoke")) / 2


@pytest.mark.parametrize("profile", ["quick", "paper"])
def test_all_that_a_profile_has_can_be_trained_at_once(profile: str) -> None:
    everything = [found.identity for found in experiments.needed(profile, everything=True)]
    assert everything == experiments.names(profile)


def test_quick_trains_the_story_alone() -> None:
    trained = [one.name for one in experiments.needed("quick")]
    models = ("vanilla", "window", "window-cyclic", "abc")
    assert trained == [f"{task}-{model}" for model in models for task in experiments.ARITHMETIC]


@pytest.mark.parametrize("profile", profiles.PROFILES)
def test_what_lasts_is_trained_and_has_a_model_that_is_meant_to(profile: str) -> None:
    found = experiments.lasting(profile)
    needed = {one.identity for one in experiments.needed(profile, everything=True)}
    assert {*found} <= needed
    assert {Name("addition", model) for model in ("window-cyclic", "abc")} <= {*found}
    assert {name.model for name in found} <= {*catalogue.LASTING}


SHOWN = [["vanilla", *catalogue.SCAFFOLDS], ["vanilla", "abc", "abc-plain-warm", "algorithm-1-plain-warm"]]


@pytest.mark.parametrize("profile", profiles.PROFILES)
@pytest.mark.parametrize("models", SHOWN)
def test_what_notebooks_show_of_padded_problems_is_trained_in_every_profile(profile: str, models: list[str]) -> None:
    names = experiments.padded_names(models, profile)
    assert names and {*names} <= {each.identity for each in experiments.needed(profile, everything=True)}
    assert {experiment(name, profile).sampler.regime for name in names} == {"padded"}
    titles = {catalogue.title(name.model) for name in names}
    wanted = {catalogue.MODELS[model].title for model in models}
    assert titles <= wanted if profile == "smoke" else titles == wanted
    assert profile == "smoke" or len(names) == len(models) * len(experiments.ABLATED)
