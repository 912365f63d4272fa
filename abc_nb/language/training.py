"""Training a language model: on a mixture of text and problems, and then on contexts until none is wrong."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy
from functools import cached_property

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from abc_nb.certificates.contexts import Block, Shape
from abc_nb.certificates.practice import AllContexts, ContextsByShape, PracticeResult, loss_of_contexts, until_certified
from abc_nb.certificates.text import SpanContexts
from abc_nb.common.errors import InputError
from abc_nb.language.mixture import Mixture, TextBatch
from abc_nb.model.transformer import Transformer
from abc_nb.problems.sampling import AGAIN, VALIDATION, generator
from abc_nb.problems.text import ProblemSpan, spans_in, text_of, text_tokens
from abc_nb.training.evaluation import evaluating
from abc_nb.training.fit import LossOfStep, Progress, Report, Training
from abc_nb.training.recipe import TrainingConfig, Validation
from abc_nb.training.writer import logits_of_texts, spans_of_rows

TEXTS = 64  # rows of held-out text
MISSED = 256  # problems that are kept to be met again


def token_losses(model: Transformer, batch: TextBatch) -> tuple[Tensor, Tensor]:
    """The cross-entropy of every token but the first, (rows, tokens - 1), in nats, and whether it was the likeliest."""
    logits = logits_of_texts(model, batch.tokens[:, :-1], spans_of_rows(model, [text[:-1] for text in batch.texts]))
    targets = batch.tokens[:, 1:]
    losses = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
    return losses.view(targets.shape), logits.argmax(-1) == targets


class TextLosses:
    """The loss of every character of a mixture's rows, and its validation; problems missed lately are met again."""

    def __init__(self, model: Transformer, mixture: Mixture, recipe: TrainingConfig, seed: int) -> None:
        self.model, self.mixture, self.recipe, self.seed = model, mixture, recipe, seed
        self.missed: list[np.ndarray] = []  # tokens of problems with their answers

    def losses(self, step: int, rows: int) -> Iterator[Tensor]:
        """The mean loss of so many rows, in which half of the problems are those missed lately."""
        again = [text_of(tokens.tolist()) for tokens in self.missed] if self.recipe.again else []
        batch = self.mixture.training_batch(self.seed, step, rows, again).to(self.model.head.weight.device)
        losses, correct = token_losses(self.model, batch)
        yield losses.mean()
        self.remember(batch, correct)

    def remember(self, batch: TextBatch, correct: Tensor) -> None:
        """Keep the last problems that had a wrong token; `correct` is (rows, tokens - 1)."""
        for text, span, answer_correct in self.answers(batch, correct):
            if not answer_correct.all():
                self.missed.append(np.array(text_tokens(text[span.start : span.end + 1])))
        self.missed[:] = self.missed[-MISSED:]

    def answers(self, batch: TextBatch, correct: Tensor) -> Iterator[tuple[str, ProblemSpan, Tensor]]:
        """Each row's problems whose answers are written with their ends, and which tokens of these are correct."""
        for text, row in zip(batch.texts, correct.cpu(), strict=True):
            for span in spans_in(text, self.mixture.patterns):
                if span.answer_length and span.end < len(text):
                    yield text, span, row[span.equals : span.end]

    @cached_property
    def held_out(self) -> list[TextBatch]:
        """Rows of held-out text with problems."""
        return self.mixture.validation_batches(self.seed, self.recipe.validation)

    def validate(self) -> Validation:
        """The share of problems answered right, and the loss on held-out text without problems."""
        right = list[bool]()
        for batch in self.held_out:
            with evaluating(self.model) as device:
                _, correct = token_losses(self.model, batch.to(device))
            right += [bool(answer_correct.all()) for _, _, answer_correct in self.answers(batch, correct)]
        return {"accuracy": sum(right) / max(1, len(right)), "text": text_loss(self.model)}


def training_on_text(model: Transformer, mixture: Mixture, recipe: TrainingConfig, seed: int) -> Training:
    """The training of a language model on a mixture, before its first step."""
    rows = TextLosses(model, mixture, recipe, seed)
    return Training(model, rows.losses, recipe, seed, rows.validate, rows.missed)


def text_loss(model: Transformer, rows: int = TEXTS) -> float:
    """Nats per character of held-out text without problems."""
    mixture, rng = Mixture(()), generator(0, VALIDATION, 1)
    with evaluating(model) as device:
        parts = [token_losses(model, mixture.rows(rng, 32, held_out=True).to(device))[0] for _ in range(-(-rows // 32))]
    return torch.cat(parts).mean().item()


# ---- practice: training goes on with contexts, until none is wrong
#
# A step shows two thousand contexts alone, without a problem around them, where a batch of text has a few dozen. All
# come up, so that what is right stays right, and those that were wrong come more often. Text is not learned any
# further, which would overfit it: outside of answers the model is held to what it predicted before practice.

SHAPES, CONTEXTS_OF_SHAPE = 8, 256  # shapes of which a step shows contexts alone, and contexts of each


def contexts_of_text(model: Transformer) -> list[SpanContexts]:
    """The contexts of each pattern's answers; InputError for a model whose answers can look everywhere."""
    if not model.config.bias.patterns:
        raise InputError("no certificate: the answers of this model look at all text before them; choose language-abs")
    return [SpanContexts.of(model, pattern) for pattern in model.config.bias.patterns]


def practise_language(
    model: Transformer, mixture: Mixture, recipe: TrainingConfig, seed: int, rounds: int, report: Report | None = None
) -> PracticeResult:
    """Train a model on until every pattern is certified, at most twice so many rounds; `recipe` is that of one round.

    The second half is at a fifth of the rate, since at the whole rate the last wrong contexts come and go.
    """
    rows, recipes = TextLosses(model, mixture, recipe, seed), [recipe] * rounds + [recipe.slower()] * rounds
    return until_certified(model, TextPractice(model, mixture, seed), recipes, seed, Progress(), report, rows.validate)


class TextPractice(AllContexts):
    """Practice of contexts alone; a loss keeps predictions in text near those before practice."""

    def __init__(self, model: Transformer, mixture: Mixture, seed: int) -> None:
        super().__init__(model, contexts_of_text(model))
        self.mixture, self.seed = mixture, seed
        self.original = deepcopy(model).requires_grad_(False).eval()
        self.blocks = {shape: concatenated([*kind.blocks(shape)]) for kind in self.kinds for shape in kind.shapes}
        self.all_poor: ContextsByShape = {}  # in any search
        self.weights: dict[Shape, dict[bytes, float]] = {}  # of these: a search counts twice the one before

    def losses_of_round(self) -> LossOfStep:
        for shape, poor in self.poor.items():
            self.all_poor.setdefault(shape, {}).update(poor)
        for shape, contexts in self.all_poor.items():
            weights, poor = self.weights.setdefault(shape, {}), self.poor.get(shape, {})
            for tokens in contexts:
                weights[tokens] = weights.get(tokens, 0.0) / 2 + (tokens in poor)
        return self.losses

    def losses(self, step: int, rows: int) -> Iterator[Tensor]:
        yield self.divergence(self.mixture.training_batch(self.seed, step, rows).to(self.model.head.weight.device))
        rng = generator(self.seed, AGAIN, step)
        for shape in self.shapes(rng):
            yield loss_of_contexts(self.model, shape, self.sample(shape, rng)) / SHAPES

    def shapes(self, rng: np.random.Generator) -> list[Shape]:
        """Shapes for a step: half of them by the weights of poor contexts, if there are any, and the rest from all.

        Shapes of few contexts come up, too.
        """
        shapes, sizes = [*self.blocks], np.sqrt([len(block) for block in self.blocks.values()])
        count = SHAPES // 2 if self.weights else 0
        weights = np.array([sum(self.weights.get(shape, {}).values()) for shape in shapes])
        chosen = [*rng.choice(len(shapes), count, p=weights / weights.sum())] if count else []
        chosen += [*rng.choice(len(shapes), SHAPES - count, p=sizes / sizes.sum())]
        return [shapes[index] for index in chosen]

    def sample(self, shape: Shape, rng: np.random.Generator) -> Block:
        """Random contexts of one shape; half of them are poor ones, by their weights, if it has any."""
        sample = self.blocks[shape].part(rng.integers(len(self.blocks[shape]), size=CONTEXTS_OF_SHAPE))
        if shape in self.all_poor:
            poor, half = Block.of(self.all_poor[shape].values()), CONTEXTS_OF_SHAPE // 2
            weights = np.array([*self.weights[shape].values()])
            indices = rng.choice(len(poor), half, p=weights / weights.sum())
            sample.values[:half], sample.right[:half] = poor.values[indices], poor.right[indices]
        return sample

    def divergence(self, batch: TextBatch) -> Tensor:
        """How far predictions are from those before practice (Kullback-Leibler), the mean over text outside answers."""
        inputs, rows = batch.tokens[:, :-1], spans_of_rows(self.model, [text[:-1] for text in batch.texts])
        now, before = (logits_of_texts(model, inputs, rows).log_softmax(-1) for model in (self.model, self.original))
        outside = torch.ones_like(inputs, dtype=torch.bool)
        for row, text in zip(outside, batch.texts, strict=True):
            for span in self.model.config.bias.spans(text):
                row[span.equals : span.end] = False
        return F.kl_div(now, before, reduction="none", log_target=True).sum(-1)[outside].mean()


def concatenated(blocks: Sequence[Block]) -> Block:
    return Block(np.concatenate([block.values for block in blocks]), np.concatenate([block.right for block in blocks]))
