"""Practice: what is wrong is practised with problems of training alone, until a certificate finds nothing wrong."""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from certifying import table_model
from helpers import integers

import abc_nb
from abc_nb.certificates import practice, tables
from abc_nb.certificates.certify import (
    NARROW_MARGIN,
    Margins,
    SampledContexts,
    certify_model,
    contexts_of,
    results_of,
    weights_of,
)
from abc_nb.certificates.checksum import checksum
from abc_nb.certificates.contexts import Block
from abc_nb.certificates.counterexamples import Candidate
from abc_nb.certificates.practice import (
    AllContexts,
    ContextsByShape,
    ProblemPractice,
    loss_of_contexts,
    practise,
    until_certified,
)
from abc_nb.certificates.rounding import Unbounded
from abc_nb.model.eight_bits import round_weights
from abc_nb.model.transformer import Transformer
from abc_nb.problems.sampling import Batch, Sampler
from abc_nb.problems.tasks import Task
from abc_nb.training.evaluation import evaluating
from abc_nb.training.fit import LossOfStep, Progress
from abc_nb.training.recipe import OneCycle, TrainingConfig

CONFIG = TrainingConfig(
    steps=10, batch=32, held_batch=32, warmup=2, hold=3, learned=2.0, validate_every=5, validation=30
)
ROUNDS = 3
NOTHING = 1e-30  # a rate at which weights stay as they are


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[Batch]:
    """Every batch that is trained on."""
    seen, original = list[Batch](), practice.losses_in_parts
    monkeypatch.setattr(
        practice, "losses_in_parts", lambda model, batch, *rest: seen.append(batch) or original(model, batch, *rest)
    )
    return seen


def damaged(name: str = "parity-window-cyclic", noise: float = 0.5) -> tuple[Transformer, Sampler]:
    """A shipped model that is certified, after noise on its weights: it is not any more."""
    run = abc_nb.load(name)
    model = run.model()
    torch.manual_seed(0)
    with torch.no_grad():
        for weights in model.parameters():
            weights.add_(noise * torch.randn_like(weights) * weights.std(correction=0))
    return model, run.spec.sampler


def test_a_model_made_wrong_is_certified_after_practice_with_numbers_of_training_alone(seen: list[Batch]) -> None:
    model, sampler = damaged()
    before = certify_model(model, sampler)
    practised = practise(model, sampler, CONFIG, 0, ROUNDS)
    after = certify_model(model, sampler)
    assert before.wrong > 0 == after.wrong and after.certified and practised.certificates[0].certified
    facts = practised.facts
    assert (facts["wrong_before"], facts["wrong_after"], facts["alone"]) == (before.wrong, 0, 0)
    assert 1 <= facts["rounds"] <= ROUNDS
    assert practised.progress.step == len(seen) == CONFIG.steps * facts["rounds"]
    assert [row["step"] for row in practised.progress.history] == [*range(0, practised.progress.step + 1, 5)]
    digits_seen = [batch.operands(torch.arange(len(batch.source)), sampler.task)[0] for batch in seen]
    assert 0 < max(max(integers(digits, 2)) for digits in digits_seen) <= 2**20


def test_a_certified_model_is_rounded_to_8_bits_and_left_as_it_is() -> None:
    run = abc_nb.load("parity-window-cyclic")
    model, rounded = run.model(), run.model()
    round_weights(rounded)
    before = checksum(weights_of(rounded))
    practised = practise(model, run.spec.sampler, CONFIG, 0, ROUNDS)
    assert practised.progress.step == practised.facts["rounds"] == 0 and practised.certificates[0].certified
    assert len(practised.progress.history) == 1 and checksum(weights_of(model)) == before


class Signs:
    """The contexts of a linear model: points of a grid, of which it is to say whether their sum is positive."""

    def __init__(self, model: torch.nn.Linear) -> None:
        side = torch.arange(-3, 4).float()
        points = torch.cartesian_prod(side, side)
        self.model, self.points, self.proofs = model, points[points.sum(1) != 0], 0

    def margins(self, points: torch.Tensor) -> torch.Tensor:
        return points.sum(1).sign() * self.model(points)[:, 0]

    def search(self, enough: float, count: Callable[[int, int], None]) -> int:
        count(len(self.points), len(self.points))
        return int((self.margins(self.points) <= 0).sum())

    def certificates(self) -> tuple[Any, ...]:
        self.proofs += 1
        return (SimpleNamespace(certified=bool((self.margins(self.points) > 0.1).all())),)

    def losses_of_round(self) -> LossOfStep:
        return self.losses

    def losses(self, step: int, rows: int) -> Iterator[torch.Tensor]:
        yield torch.relu(1 - self.margins(self.points)).mean()


@pytest.mark.parametrize(("rate", "certified"), [(0.1, True), (NOTHING, False)])
def test_any_model_is_practised_in_rounds_and_proven_in_one_progress(rate: float, certified: bool) -> None:
    torch.manual_seed(1)
    model, recipe = torch.nn.Linear(2, 1, bias=False), OneCycle(20, 1, rate, weight_decay=0.0)
    trial, states = Signs(model), list[tuple[int, int]]()
    practised = until_certified(
        model,
        trial,
        [recipe] * 5,
        0,
        Progress(7, history=[{"step": 7}]),
        lambda progress: states.append((progress.round, progress.step)),
    )
    assert practised.certificates[0].certified == certified and trial.proofs == 1
    assert practised.wrong[0] > 0 and (practised.wrong[-1] == 0) == certified
    assert practised.rounds == 5 or certified
    assert [row["step"] for row in practised.progress.history] == [*range(7, 8 + 20 * practised.rounds)]
    assert states[0] == (0, 7) and {*states} >= {(number, 7 + 20 * number) for number in range(1, practised.rounds + 1)}


def test_small_changes_add_up_over_rounds_though_a_search_is_at_rounded_weights(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = torch.nn.Linear(1, 1, bias=False)
    model.weight.data.fill_(1.0)  # the next number of 8 bits is 1 + 2**-6

    def certificates() -> tuple[Any, ...]:
        return (SimpleNamespace(certified=True),)

    def train(model: torch.nn.Linear, *_: object) -> None:
        model.weight.data += 2**-9

    monkeypatch.setattr(practice, "fit", train)
    trial = SimpleNamespace(search=lambda enough, count: int(model.weight.item() == 1.0), certificates=certificates)
    trial.losses_of_round = lambda: None
    practised = until_certified(model, trial, [CONFIG] * 9, 0, Progress())
    assert practised.wrong == [1, 1, 1, 1, 1, 0] and model.weight.item() == 1 + 2**-6


def test_later_rounds_are_slower(monkeypatch: pytest.MonkeyPatch) -> None:
    model, sampler = damaged()
    rates = list[float]()

    def nothing(model: Transformer, losses: object, recipe: TrainingConfig, *_: object, **__: object) -> None:
        rates.append(recipe.learning_rate / CONFIG.learning_rate)

    monkeypatch.setattr(practice, "fit", nothing)
    practised = practise(model, sampler, CONFIG, 0, 6)
    assert rates == [1, 1, 1, 1, 0.2, 0.2] and not practised.certificates[0].certified
    assert practised.facts["wrong_before"] == practised.facts["wrong_after"] > 0


def test_a_search_counts_what_a_certificate_counts_and_ends_early_where_enough_is_known() -> None:
    """All that it keeps are wrong or narrow, and one that went through all contexts is the certificate."""
    model, sampler = damaged()
    contexts = contexts_of(model, sampler)
    whole, trial, counted = certify_model(model, sampler), AllContexts(model, [contexts]), list[int]()
    assert trial.search(math.inf, lambda tried, total: counted.append(tried)) == whole.wrong
    assert counted[-1] == sum(contexts.counts.values())
    (certificate,) = trial.certificates()
    assert replace(certificate, seconds=0.0) == replace(whole, seconds=0.0)
    results = {result.shape: result for result in results_of(model, contexts) if result.margin < NARROW_MARGIN}
    assert {*trial.poor} == {*results}
    for shape, poor in trial.poor.items():
        with evaluating(model):
            margins, _ = Margins(Unbounded(model), contexts)(shape, Block.of(poor.values()))
        assert (margins < NARROW_MARGIN).all() and (margins <= 0).sum() == results[shape].wrong
    counted.clear()
    assert 0 < trial.search(1, lambda tried, total: counted.append(tried)) < whole.wrong
    assert counted[-1] < sum(contexts.counts.values()), "not all contexts are tried"


@pytest.mark.slow
def test_each_problem_that_is_practised_is_answered_wrong_in_training() -> None:
    """At its width, with the index started somewhere."""
    model, sampler = damaged("successor-window-cyclic", 0.1)
    contexts = contexts_of(model, sampler)
    trial = AllContexts(model, [contexts])
    trial.search(math.inf, lambda *_: None)
    candidates = problems_of(model, contexts, trial.poor)
    assert candidates
    for candidate in candidates[:: max(1, len(candidates) // 50)]:
        assert candidate.width in sampler.widths and max(integers(candidate.operands[0], 10)) <= 2**20
        batch, wrong = sampler.batch(candidate.operands, candidate.width), False
        for phase in range(3):
            with torch.inference_mode():
                logits = model(batch.source, batch.target[:, :-1], batch.layout, phase=phase)
            wrong |= bool((logits.argmax(-1) != batch.target[:, 1:]).any())
        assert wrong


def problems_of(model: Transformer, contexts: SampledContexts, poor: ContextsByShape) -> list[Candidate]:
    practice = ProblemPractice(model, contexts, CONFIG, 0)
    practice.add(poor)
    return practice.problems


def test_contexts_that_no_training_number_shows_are_practised_alone(
    seen: list[Batch], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches are as in training, and the loss of the wrong contexts' own tokens is added."""
    model, sampler = damaged()
    monkeypatch.setattr(practice, "possible_in_training", lambda *_: False)
    practised = practise(model, sampler, CONFIG, 0, ROUNDS)
    assert practised.alone > 0 and practised.wrong[0] > 0 and practised.certificates[0].certified
    usual = [sampler.training_batch(0, step, 32).source for step in range(len(seen))]
    assert all(torch.equal(batch.source, source) for batch, source in zip(seen, usual, strict=True))


def test_the_loss_of_a_context_is_that_of_its_token_in_a_problem() -> None:
    """Its own layers give the logits that a pass over a whole problem gives."""
    run = abc_nb.load("parity-window-cyclic")
    model, sampler = run.model(), run.spec.sampler
    contexts, batch = contexts_of(model, sampler), sampler.training_batch(0, 0, 16)
    shape, block = contexts.contexts_at(batch, 3)
    with torch.inference_mode():
        logits = model(batch.source, batch.target[:, :-1], batch.layout)[:, 3]
    wanted = torch.nn.functional.cross_entropy(logits, batch.target[:, 4])
    torch.testing.assert_close(loss_of_contexts(model, shape, block), wanted, rtol=1e-4, atol=1e-5)


def test_practice_of_tables_trains_on_contexts_alone(seen: list[Batch], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(practice, "EXAMPLES", 3)  # of an untrained model, which is wrong on most contexts
    monkeypatch.setattr(tables, "DRAWN", 100)
    task = Task("n-by-n", 2)
    sampler = Sampler(task, width_count=3)
    config = TrainingConfig(steps=4, batch=8, held_batch=8, warmup=1, hold=2, learned=2.0, validate_every=4)
    practised = practise(table_model(task), sampler, config, 0, 2)
    assert practised.facts["wrong_before"] > 0 and practised.progress.step == 8 and practised.alone > 0
    sizes = np.array([[operand.places for operand in batch.layout.operands] for batch in seen])
    assert (sizes <= np.array(sampler.widest)).all()
