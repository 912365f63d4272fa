"""Evaluation: one teacher-forced pass tells what greedy decoding would do; intervals are Wilson's; typed problems."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import SAMPLER, TINY, build, half_trained
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest
from torch import Tensor

from abc_nb.bias.alibi import ALiBi
from abc_nb.bias.base import Bias, Causal
from abc_nb.bias.window import Window
from abc_nb.model.positions import NoPosition, PositionEncoding, Rotary, Sinusoidal
from abc_nb.model.transformer import ModelConfig
from abc_nb.problems.drawing import operands_of_length
from abc_nb.problems.layouts import SOS, Arrangement
from abc_nb.problems.sampling import Batch, Sampler
from abc_nb.problems.tasks import Task
from abc_nb.specs.spec import spec
from abc_nb.training.evaluation import correct_tokens, evaluate, exact_match, greedy, wilson

ADDITION = SAMPLER.task
SMALL = ModelConfig(width=16, heads=2, feed_forward=32, decoder_layers=1)


def problems(
    task: Task, arrangement: Arrangement = "natural", length: int = 2, count: int = 24, seed: int = 0
) -> Batch:
    """Short problems, no wider than they need to be; of bits and lists five places."""
    width = 5 if task.name == "parity" else length + task.grows
    rng = np.random.default_rng((seed, 2, length))
    return Sampler(task, arrangement).batch(operands_of_length(task, length, count, width, rng), width)


@pytest.mark.parametrize(
    ("task", "arrangement", "position", "bias"),
    [
        ("addition", "natural", NoPosition(), ALiBi(cross=True)),
        ("addition", "aligned", Sinusoidal(3), Window(1)),
        ("addition", "natural", Rotary(), Causal()),
        ("n-by-1", "natural", Sinusoidal(), Causal()),
        ("parity", "natural", Sinusoidal(), Causal()),
        ("listops-sm", "natural", Sinusoidal(), Causal()),
    ],
    ids=lambda value: f"{value}",
)
def test_exact_match_is_greedy_decoding_without_a_wrong_token(
    task: str, arrangement: Arrangement, position: PositionEncoding, bias: Bias
) -> None:
    """Accuracy by teacher forcing is accuracy by greedy decoding, shown on a model that is half right."""
    chosen = Task(task)
    batch, unseen = (problems(chosen, arrangement, seed=seed) for seed in (0, 1))
    model = half_trained(replace(SMALL, position=position, bias=bias), batch, len(chosen.vocabulary))
    for tested in (batch, unseen):
        decoded = greedy(model, tested.source, tested.layout, chosen.token(SOS)) == tested.target[:, 1:]
        assert exact_match(model, tested).tolist() == decoded.all(dim=1).tolist()
        # Up to the first wrong token both see the same tokens, so they go wrong at the same place.
        assert torch.equal(correct_tokens(model, tested).cumprod(1), decoded.cumprod(1))


@pytest.mark.parametrize("training", [True, False])
def test_measuring_ignores_dropout_and_leaves_the_model_as_it_was(training: bool) -> None:
    batch, model = problems(ADDITION), build(replace(TINY, dropout=0.5)).train(training)
    right, decoded = correct_tokens(model, batch), greedy(model, batch.source, batch.layout, 12)
    assert model.training is training
    plain = build().eval()
    assert right.tolist() == correct_tokens(plain, batch).tolist()
    assert decoded.tolist() == greedy(plain, batch.source, batch.layout, 12).tolist()


@pytest.mark.parametrize("kind", ["encoder-decoder", "decoder-only"])
@torch.no_grad()
def test_greedy_decoding_is_a_loop_without_caches_that_takes_the_likeliest_token(kind: str) -> None:
    batch, model = problems(ADDITION, length=5), build(replace(SMALL, kind=kind)).eval()  # type: ignore[arg-type]
    tokens = batch.target[:, :1]
    for _ in range(batch.layout.target_length):
        tokens = torch.cat([tokens, model(batch.source, tokens, batch.layout)[:, -1:].argmax(-1)], 1)
    assert len(tokens.unique(dim=0)) > 1, "the answers differ"
    assert greedy(model, batch.source, batch.layout, ADDITION.token(SOS)).tolist() == tokens[:, 1:].tolist()


class Fixed(torch.nn.Module):
    """A model that always predicts the tokens it was given, and notes for how many of them it was asked."""

    def __init__(self, batch: Batch, tokens: Tensor) -> None:
        super().__init__()
        self.batch, self.tokens, self.anything = batch, tokens, torch.nn.Parameter(torch.zeros(()))
        self.asked: list[int] = []

    def forward(self, source: Tensor, target: Tensor, *_: object, **__: object) -> Tensor:
        row = int((self.batch.source == source[0]).all(1).nonzero()[0])
        self.asked.append(target.shape[1])
        return torch.nn.functional.one_hot(self.tokens[row : row + len(source), : target.shape[1]], 15).float()


def test_one_wrong_token_makes_a_problem_wrong_and_most_of_what_is_wrong_from_the_start_is_not_computed() -> None:
    """Of problems so long that two are a part, the model errs at the first token, at the last digit, or nowhere."""
    batch = problems(ADDITION, length=2700, count=12)
    end = batch.layout.target_length - 2
    wrong_at = [0, end, 0, 0, 0, 0, end, end, 0, None, None, 0]
    tokens = batch.target[:, 1:].clone()
    for row, place in enumerate(wrong_at):
        if place is not None:
            tokens[row, place] = 12  # no digit
    model = Fixed(batch, tokens)
    assert exact_match(model, batch).tolist() == [place is None for place in wrong_at]  # type: ignore[arg-type]
    whole = end + 2
    assert model.asked == [whole, 40, 40, 40, whole, 40, whole, whole]
    right = [[step != place for step in range(batch.layout.target_length)] for place in wrong_at]
    assert correct_tokens(model, batch).tolist() == right  # type: ignore[arg-type]


@given(st.integers(1, 100_000), st.floats(0, 1))
def test_interval_is_wilsons(samples: int, share: float) -> None:
    correct = round(share * samples)
    expected = binomtest(correct, samples).proportion_ci(method="wilson")
    np.testing.assert_allclose(wilson(correct, samples), (expected.low, expected.high), rtol=0, atol=1e-7)


def test_table_has_a_tidy_row_for_each_length() -> None:
    table = evaluate(build(), SAMPLER, [(1, 20), (4, 20), (12, 5)])
    assert [*table.columns] == ["length", "samples", "correct", "accuracy", "ci_low", "ci_high"]
    for row, samples in zip(table.itertuples(index=False), ((1, 9), (4, 20), (12, 5)), strict=True):
        assert tuple(row)[:2] == samples
        assert tuple(row)[3:] == (row.correct / row.samples, *wilson(row.correct, row.samples))


@pytest.mark.parametrize("name", ["addition-window", "n-by-1-window", "n-by-1-vanilla", "parity-vanilla"])
def test_a_model_is_asked_at_least_at_its_training_width(name: str) -> None:
    chosen = spec(name, "smoke")
    second = {"add": "+1", "n-b": "*1", "par": ""}[name[:3]]
    typed = [chosen.sampler.typed_batch(number + second) for number in ("1", "1" * 50)]
    assert [batch.layout.width for batch in typed] == [chosen.task.training_width, 50 + chosen.task.grows]
