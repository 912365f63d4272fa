"""Training: what is learned, the schedule, what is practised again, cyclic positions, and the optimisers."""

import io
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from helpers import SAMPLER, SHORT, TINY, assert_same_weights, build, integers, new_training, rates_of
from torch import Tensor, nn

from abc_nb.bias.window import Window
from abc_nb.common.errors import InputError
from abc_nb.model.positions import PositionEncoding, Sinusoidal
from abc_nb.model.transformer import ModelConfig
from abc_nb.problems.layouts import SOS
from abc_nb.problems.sampling import Batch, Sampler
from abc_nb.problems.tasks import Task
from abc_nb.training import problems
from abc_nb.training.evaluation import evaluate, greedy
from abc_nb.training.fit import Progress, fit, stream
from abc_nb.training.optimizers import Muon
from abc_nb.training.problems import ProblemLosses, loss_of, losses_in_parts, phases, train
from abc_nb.training.recipe import OneCycle, TrainingConfig
from abc_nb.training.status import LOGGED, Status
from audit.positions.digits import Abacus
from audit.positions.distances import Fire, Randomized


def test_a_small_task_is_learned_at_every_length() -> None:
    """The largest of a list of ternary digits, with a window and cyclic positions, in about a second."""
    sampler = Sampler(Task("listops-max", 3))
    config = ModelConfig(16, 2, 64, decoder_layers=1, position=Sinusoidal(3), bias=Window(1))
    recipe = TrainingConfig(
        steps=300, batch=64, learning_rate=0.01, matrix_learning_rate=0.02, warmup=10, validate_every=30, validation=126
    )
    model = build(config, sampler)
    progress = train(model, sampler, recipe, seed=0)
    assert progress.history[-1]["loss"] < 0.1 * progress.history[0]["loss"]
    assert evaluate(model, sampler, [(6, 100), (40, 100)]).accuracy.min() > 0.95


def test_a_problem_is_wrong_with_its_first_wrong_token() -> None:
    model, batch = build(), SAMPLER.training_batch(0, 0, 12)
    said = greedy(model.eval(), batch.source, batch.layout, SAMPLER.task.token(SOS))
    target = torch.cat([batch.target[:, :1], said], dim=1)
    for row, place in ((2, 1), (5, 3), (5, 4), (9, batch.layout.target_length)):
        target[row, place] = (target[row, place] + 1) % len(SAMPLER.task.vocabulary)
    _, wrong = loss_of(model, Batch(batch.source, target, batch.layout))
    assert wrong.nonzero().flatten().tolist() == [2, 5, 9]


def test_every_seed_and_step_has_a_stream_of_its_own_below_4096_that_of_shipped_results() -> None:
    """A processor takes 32 bits of a seed, in which 0 and 4,096, or 1 and 4,097, were the same."""
    seeds = [0, 1, 2, 4095, *range(4096, 4120), *(n * 4096 for n in range(2, 10)), 2**20, 2**31 - 1]
    pairs = [(seed, step) for seed in seeds for step in (0, 1, 2, 100, 1599)]
    assert len({stream(*pair) % 2**32 for pair in pairs}) == len(pairs)
    assert all(stream(seed, step) == seed * 2**20 + step for seed, step in pairs if seed < 4096)


@pytest.mark.parametrize("position", [Sinusoidal(3), Randomized(), Abacus()])
def test_dropout_positions_and_data_follow_from_the_step_whatever_else_drew_random_numbers(
    position: PositionEncoding,
) -> None:
    model = replace(TINY, dropout=0.1, position=position)
    first, second = new_training(model=model), new_training(model=model)
    for run, disturbance in ((first, 0), (second, 7)):
        for _ in range(3):
            torch.rand(disturbance)
            run.step()
    assert_same_weights(first, second)


@pytest.mark.parametrize(
    ("name", "value", "least"),
    [("steps", 0, "1 or more"), ("again", -1, "0 or more"), ("learning_rate", 0.0, "a positive number")],
)
def test_a_number_that_a_training_cannot_have_is_refused(name: str, value: float, least: str) -> None:
    with pytest.raises(InputError, match=re.escape(f"a training cannot have {name}={value}: give {least}")):
        replace(SHORT, **{name: value})  # type: ignore[arg-type]
    assert replace(SHORT, warmup=0, learned=2).warmup == 0
    with pytest.raises(InputError, match="0 is not possible as steps of a OneCycle: give 1 or more"):
        OneCycle(0, 1, 0.1)


LONG = TrainingConfig(steps=110, warmup=10, hold=70, learned=0.9)


@pytest.mark.parametrize(
    ("accuracies", "fall", "end"),
    [
        ({20: 0.5, 40: 0.899}, 70, 110),
        ({20: 0.5, 40: 1.0, 60: 0.95}, 40, 110),
        ({60: 0.5, 80: 1.0}, 70, 110),
        ({5: 0.5, 8: 1.0}, 8, 80),
    ],
)
def test_rate_falls_once_validation_shows_learning_and_ten_times_as_many_steps_are_enough(
    accuracies: dict[int, float], fall: int, end: int
) -> None:
    history = [{"step": step, "accuracy": accuracy} for step, accuracy in accuracies.items()]
    assert LONG.schedule(history) == (fall, end)


def test_each_optimizer_runs_at_its_own_rate_times_the_schedule() -> None:
    run = new_training(replace(SHORT, learning_rate=0.5, matrix_learning_rate=0.25, warmup=4, hold=5))
    for relative in (0.25, 0.5, 0.75, 1.0, 1.0, 1.0, 2 / 3, 1 / 3):
        run.step()
        assert rates_of(run) == pytest.approx([0.5 * relative, 0.25 * relative])


def test_batches_are_large_as_long_as_the_rate_is_held() -> None:
    recipe = replace(SHORT, batch=4, held_batch=20, hold=3)
    assert [recipe.rows(step, []) for step in range(8)] == [20, 20, 20, 4, 4, 4, 4, 4]


@pytest.mark.parametrize("position", [Sinusoidal(), Sinusoidal(3)])
def test_a_batch_in_parts_gives_the_gradients_of_the_whole(
    position: Sinusoidal, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = build(replace(TINY, position=position))
    batch, phase = SAMPLER.training_batch(0, 0, 7), phases(model, 0, 0, 7)
    whole, wrong = loss_of(model, batch, phase)
    whole.backward()
    expected = [parameter.grad for parameter in model.parameters()]
    tokens = batch.layout.source_length + batch.layout.target_length
    monkeypatch.setattr(problems, "PART", 3 * tokens * TINY.width)  # parts of 3, 3 and 1 problems
    model.zero_grad()
    losses, missed = zip(*losses_in_parts(model, batch, phase), strict=True)
    sum(losses).backward()
    torch.testing.assert_close(sum(losses), whole)
    assert torch.equal(torch.cat(missed), wrong)
    torch.testing.assert_close([parameter.grad for parameter in model.parameters()], expected)


@pytest.mark.parametrize("steps", [1, 5, 20, 301])
def test_the_one_cycle_rate_is_that_of_pytorch(steps: int) -> None:
    recipe, weights = OneCycle(steps, 1, 0.3), torch.nn.Linear(1, 1)
    theirs = torch.optim.AdamW(weights.parameters(), 0.3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(theirs, 0.3, total_steps=steps)
    (ours,) = recipe.optimizers(weights)
    for step in range(steps):
        recipe.set_rates([ours], step, [])
        assert [ours.param_groups[0][name] for name in ("lr", "betas")] == [
            theirs.param_groups[0][name] for name in ("lr", "betas")
        ]
        theirs.step()
        schedule.step()


def test_any_model_is_fitted_to_any_loss_and_random_numbers_go_on_as_before() -> None:
    """Parts of the loss add up; the history has a row a step; dropout of the same step is the same."""
    x = torch.linspace(-1, 1, 8)[:, None]
    models = [torch.nn.Sequential(torch.nn.Linear(1, 1), torch.nn.Dropout(0.1)) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())

    def loss_of_step(step: int, rows: int) -> Iterator[Tensor]:
        return ((model(part) - 3 * part).square().sum() / rows for part in (x[:4], x[4:]))

    for model in models:
        torch.manual_seed(5)
        progress = fit(model, loss_of_step, OneCycle(60, 8, 0.1))
        assert torch.rand(1).item() == torch.rand(1, generator=torch.Generator().manual_seed(5)).item()
    torch.testing.assert_close(models[0].state_dict(), models[1].state_dict(), rtol=0, atol=0)
    assert len(progress.history) == 60 and progress.history[-1]["loss"] < 0.3 * progress.history[0]["loss"]


def test_a_status_says_in_a_log_once_in_half_a_minute_where_a_training_stands() -> None:
    now, stream = [0.0], io.StringIO()
    with Status("addition-abs", stream, clock=lambda: now[0]) as status:
        for step in range(1, 101):
            now[0] += 1
            status(Progress(step, end=100, history=[{"accuracy": 0.5}] if step > 50 else []))
        for tried in range(0, 90_001, 10_000):
            now[0] += 10
            status(Progress(100, end=100, round=2, tried=tried, contexts=100_000))
    lines = stream.getvalue().splitlines()
    assert len(lines) == 3 + int(100 // LOGGED)
    assert lines[0] == "addition-abs: step 30 of 100 at most, about 70 s left"
    assert lines[2] == "addition-abs: step 90 of 100 at most, validation 50.0%, about 10 s left"
    assert lines[-1] == "addition-abs: practice, round 2: 70,000 of 100,000 contexts tried, about 30 s left"


def test_a_finished_training_ends_in_evaluation_mode_and_does_not_go_on() -> None:
    once, twice = new_training(), new_training()
    assert [once.run().step, twice.run().step, twice.run().step] == [SHORT.steps] * 3
    assert not once.model.training
    assert_same_weights(once, twice)


def test_a_model_can_be_trained_after_it_was_evaluated() -> None:
    """Of its length, the causal mask is kept for every model."""
    for length, config in ((1, replace(TINY, bias=Window(1))), (33, TINY)):
        model = build(config)
        evaluate(model, SAMPLER, [(length, 4)])
        loss_of(model, SAMPLER.test_batch(length, 4, seed=0))[0].backward()
        assert all(p.grad is not None for p in model.parameters())


DIGIT = Sampler(Task("n-by-1"), width_count=3)


def problems_of(batch: Batch) -> list[tuple[int, ...]]:
    """The operands of a batch's problems as numbers, read from its source."""
    return as_numbers([batch.source[:, operand.columns].numpy() for operand in batch.layout.operands])


def as_numbers(operands: list[np.ndarray]) -> list[tuple[int, ...]]:
    return [*zip(*(integers(digits, 10) for digits in operands), strict=True)]


@pytest.mark.parametrize("sampler", [SAMPLER, DIGIT, Sampler(Task("successor")), replace(DIGIT, arrangement="aligned")])
def test_the_last_problems_that_were_wrong_are_remembered(sampler: Sampler) -> None:
    learned = ProblemLosses(build(sampler=sampler), sampler, SHORT, 0)
    assert learned.again(0, 8) == []
    expected: list[tuple[int, ...]] = []
    for step in range(4):
        batch = sampler.training_batch(0, step, 8)
        wrong = torch.arange(8) % 3 == step % 3
        learned.remember(batch, wrong)
        numbers = [problem for problem, missed in zip(problems_of(batch), wrong.tolist(), strict=True) if missed]
        digit = sampler.task.rule.short_digits == 1  # a digit that fills every place is one digit still
        expected += [(first, *(second % 10 if digit else second for second in rest)) for first, *rest in numbers]
        assert as_numbers(learned.missed) == expected[-8:]


@pytest.mark.parametrize("sampler", [Sampler(Task("listops-max")), SAMPLER])
def test_nothing_is_remembered_of_lists_and_right_answers(sampler: Sampler) -> None:
    learned = ProblemLosses(build(sampler=sampler), sampler, SHORT, 0)
    learned.remember(sampler.training_batch(0, 0, 8), torch.full((8,), sampler is not SAMPLER))
    assert learned.missed == []


def test_some_of_the_problems_missed_come_again_no_more_than_a_quarter_of_a_batch() -> None:
    learned = ProblemLosses(build(), SAMPLER, replace(SHORT, batch=30, again=5), 0)
    learned.remember(SAMPLER.training_batch(0, 0, 30), torch.ones(30, dtype=torch.bool))
    drawn = [as_numbers(learned.again(step, 30)) for step in range(20)]
    assert all(len({*problems}) == 5 for problems in drawn), "each once"
    assert set().union(*drawn) <= {*as_numbers(learned.missed)}
    assert len({*map(tuple, drawn)}) == 20
    for size, count in ((30, 5), (20, 5), (19, 4), (8, 2), (4, 1), (3, 0)):
        assert [len(digits) for digits in learned.again(0, size)] == [count, count]
    none = ProblemLosses(build(), SAMPLER, replace(SHORT, again=0), 0)
    none.missed[:] = learned.missed
    assert none.again(3, 30) == []


@pytest.mark.parametrize("sampler", [SAMPLER, DIGIT, Sampler(Task("successor"), width_count=3)])
def test_a_batch_holds_the_problems_that_come_again_and_fresh_ones(sampler: Sampler) -> None:
    """At whatever width the batch has."""
    learned = ProblemLosses(build(sampler=sampler), sampler, SHORT, 0)
    learned.remember(sampler.training_batch(7, 0, 3), torch.ones(3, dtype=torch.bool))
    again = learned.missed
    for step in range(6):
        batch = sampler.training_batch(0, step, 10, again)
        assert problems_of(batch)[7:] == as_numbers(again)
        assert len({*problems_of(batch)}) == 10
        target = sampler.task.target(batch.operands(torch.arange(10), sampler.task), batch.layout)
        np.testing.assert_array_equal(batch.target.numpy(), target)


def test_each_sample_has_its_own_phase() -> None:
    model, batch = build(replace(TINY, position=Sinusoidal(3))), SAMPLER.training_batch(0, 0, 4)
    together = model(batch.source, batch.target[:, :-1], batch.layout, phase=torch.tensor([[0], [1], [2], [1]]))
    for part, phase, expected in zip(batch.split(1), (0, 1, 2, 1), together.split(1), strict=True):
        torch.testing.assert_close(model(part.source, part.target[:, :-1], part.layout, phase=phase), expected)


# ---- optimisers


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def trained(kind: type[torch.optim.Optimizer], starts: list[Tensor], **options: Any) -> list[Tensor]:
    """Where matrices are after four steps with the same gradients."""
    parameters = [start.clone().requires_grad_() for start in starts]
    optimizer = kind(parameters, lr=0.1, momentum=0.9, **options)  # type: ignore[call-arg]
    for step in range(4):
        for i, parameter in enumerate(parameters):
            parameter.grad = random(*parameter.shape, seed=100 * step + i)
        optimizer.step()
    return [parameter.detach() for parameter in parameters]


def test_muon_moves_matrices_of_several_shapes_like_pytorchs() -> None:
    shapes = [(16, 16), (8, 24), (16, 16), (24, 8), (24, 8)]
    starts = [random(*shape, seed=50 + i) for i, shape in enumerate(shapes)]
    ours = trained(Muon, starts)
    theirs = trained(torch.optim.Muon, starts, weight_decay=0.0, adjust_lr_fn="match_rms_adamw")
    for start, our, their in zip(starts, ours, theirs, strict=True):
        # Theirs is computed in bfloat16, which keeps eight bits.
        assert (our - their).norm() < 0.02 * (their - start).norm()


@pytest.mark.parametrize("gradient", [None, torch.zeros(4, 4)], ids=["none", "zero"])
def test_a_matrix_without_a_gradient_or_with_zeros_stays(gradient: Tensor | None) -> None:
    still, moving = random(4, 4).requires_grad_(), random(4, 4).requires_grad_()
    still.grad, moving.grad = gradient, random(4, 4, seed=1)
    Muon([still, moving], lr=0.1).step()
    torch.testing.assert_close(still.detach(), random(4, 4), rtol=0, atol=0)
    assert not torch.isclose(moving.detach(), random(4, 4)).all()


def test_muon_takes_the_matrices_of_layers_and_adamw_the_rest() -> None:
    """A matrix of one column is a vector to Muon."""
    model = build(replace(TINY, position=Fire()))
    adamw, muon = SHORT.optimizers(model)
    chosen, rest = ({id(p) for p in optimizer.param_groups[0]["params"]} for optimizer in (muon, adamw))
    named = model.named_parameters()
    assert chosen == {id(p) for name, p in named if "coder." in name and p.ndim == 2 and 1 not in p.shape}
    assert rest == {id(p) for p in model.parameters()} - chosen
    (alone,) = replace(SHORT, optimizer="adamw").optimizers(model)
    assert len(alone.param_groups[0]["params"]) == len([*model.parameters()])


def test_a_training_without_validation_is_held_to_its_end() -> None:
    weight = nn.Linear(1, 1)
    progress = fit(weight, lambda step, rows: iter([weight.weight.square().sum()]), TrainingConfig(steps=60), 0)
    assert progress.step == 60
