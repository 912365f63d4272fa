"""What models get wrong: what they must under their lines, lists of contexts, and the shortest wrong problem."""

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from helpers import build, integers, places_of

import abc_nb
from abc_nb.bias.base import Bias, Causal
from abc_nb.bias.lines import Line, Lines
from abc_nb.model.eight_bits import round_weights
from abc_nb.model.layers import ModelConfig
from abc_nb.model.positions import NoPosition
from abc_nb.problems.layouts import Arrangement
from abc_nb.problems.sampling import Sampler
from abc_nb.problems.tasks import Task
from abc_nb.runs import store
from abc_nb.specs.spec import spec
from abc_nb.training.evaluation import answers
from audit import unlearnable, wrong_contexts
from audit.results import Results
from audit.shortest import hard_operands, shortest_wrong

SIZE = ModelConfig(width=8, heads=2, feed_forward=16, position=NoPosition())
UNITS = Line("cross", 0, 0, "antidiagonal", "operand 1", 0, 0.0)
LAST = Line("self", 1, 1, "diagonal", "output", 0, -0.5)
HALVES = replace(LAST, value=0.5, layer=0), replace(LAST, offset=-1, layer=0)
CASES: list[tuple[str, Bias, int]] = [
    ("addition", Causal(), 0),
    ("addition", Lines(2, (UNITS, LAST)), 0),
    ("addition", Lines(2, (replace(UNITS, offset=1), *HALVES)), 1),
    ("n-by-1", Lines(2, (UNITS, replace(UNITS, layer=1, head=1, direction="vertical", span="*"))), 0),
]


@pytest.mark.parametrize(("task", "bias", "encoder"), CASES)
def test_a_step_sees_the_same_in_two_problems_exactly_if_any_weights_give_the_same_logits(
    task: str, bias: Bias, encoder: int
) -> None:
    sampler = Sampler(Task(task))
    batch = unlearnable.smallest_problems(sampler, 150)
    config = replace(SIZE, bias=bias, encoder_layers=encoder)
    seen = unlearnable.fingerprints(config, bias, batch)
    model = build(config, sampler).double().eval()
    with torch.no_grad():
        for weights in model.parameters():
            weights *= 2
        logits = model(batch.source, batch.target[:, :-1], batch.layout).numpy()
    for step in range(seen.shape[1]):
        apart = np.abs(logits[:, None, step] - logits[None, :, step]).max(-1)
        same = seen[:, None, step] == seen[None, :, step]
        assert apart[same].max() < 1e-12 and (same.all() or apart[~same].min() > 1e-7)


def test_of_problems_that_look_the_same_the_most_frequent_token_can_be_right() -> None:
    seen = np.array([[1, 1], [1, 2], [1, 3], [2, 4]], np.uint64)
    assert unlearnable.must_be_wrong(seen, np.array([[5, 5], [5, 6], [6, 5], [6, 6]])) == 0.25
    assert unlearnable.must_be_wrong(seen, np.array([[5, 5], [5, 5], [5, 5], [6, 5]])) == 0.0


def test_without_lines_sums_are_bags_of_digits_and_abcs_lines_tell_them_apart() -> None:
    results = Results("quick", "shipped", [0])
    models = ("algorithm-1-none-new", "abc-unpractised", "algorithm-1-plain-new")
    runs = [results.first_run(f"addition-{model}") for model in models]
    bags, told_apart, with_positions = (unlearnable.least_wrong(run.spec, run.bias()) for run in runs)
    assert bags > 0.4 and told_apart == 0 and np.isnan(with_positions)


# ---- contexts


def test_the_list_of_a_shipped_model_is_complete_and_its_problems_are_answered_so() -> None:
    """As many as practice found; the model answers each problem as the list says, and Python otherwise."""
    name = "n-by-1-abs"
    run, practised = store.with_weights(spec(f"{name}-unpractised"), 0), store.find(spec(name), 0)
    assert run is not None and practised is not None
    with torch.inference_mode():
        wrong = pd.DataFrame(wrong_contexts.wrong(run))
    listed = pd.read_csv(wrong_contexts.FILE, dtype=str).query(
        "task == 'n-by-1' and positions == 'none' and seed == '0'"
    )
    assert len(wrong) == len(listed) == practised.facts["practice"]["wrong_before"]
    assert sorted(wrong.context) == sorted(listed.context) and (wrong.margin < 0).all()
    model = run.model()
    round_weights(model)
    rows = wrong[["problem", "answer", "right"]].to_numpy().tolist()
    for (problem, answer, right), said in zip(rows, answers(model, run.spec.sampler, wrong.problem), strict=True):
        first, second = map(int, problem.split("*"))
        assert said == answer != right == str(first * second)


# ---- the shortest wrong problem


@pytest.mark.slow
@pytest.mark.parametrize("task", ["successor", "n-by-1"])
def test_what_is_found_is_wrong_and_has_the_fewest_places_of_those_tried(task: str) -> None:
    run = abc_nb.load(f"{task}-vanilla")
    shortest = shortest_wrong(run.model(), run.spec.sampler, samples=50)
    first, *factor = map(int, shortest.problem.split("*"))
    assert int(shortest.right) == (first * factor[0] if factor else first + 1)
    assert abc_nb.answer(f"{task}-vanilla", shortest.problem) == shortest.answer != shortest.right
    fewer = len(str(first)) - 1
    none = ("", "", "")
    assert fewer and shortest_wrong(run.model(), run.spec.sampler, samples=50, longest=fewer) == none


@pytest.mark.parametrize(
    ("arrangement", "regime"), [("natural", "tight"), ("natural", "padded-20"), ("as-written", "unpadded")]
)
def test_an_untrained_model_is_wrong_at_one_place_however_problems_are_written(
    arrangement: Arrangement, regime: str
) -> None:
    sampler = Sampler(Task("addition"), arrangement, regime)
    model = build(sampler=sampler).eval()
    shortest = shortest_wrong(model, sampler, samples=20)
    assert re.fullmatch(r"\d\+\d", shortest.problem)
    assert int(shortest.right) == sum(map(int, shortest.problem.split("+")))
    assert [shortest.answer] == list(answers(model, sampler, [shortest.problem]))


@pytest.mark.parametrize("name", ["addition", "n-by-1", "parity"])
def test_problems_have_so_many_places(name: str) -> None:
    task = Task(name)
    for places in (1, 2, 9):
        first, *second = hard_operands(task, places, 400, np.random.default_rng(places))
        assert {places_of(number, task.base) for number in integers(first, task.base)} == {places}
        if name == "addition":
            assert {places_of(number, 10) for number in integers(second[0], 10)} == {*range(1, places + 1)}
    assert sum(len({*row[:-1]}) <= 2 for row in first.tolist()) >= 200
