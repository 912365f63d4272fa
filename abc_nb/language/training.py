"""Training a language model: on a mixture, by the project's trainer, and then on contexts until none is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from abc_nb.certificates.certify import Attempt
from abc_nb.certificates.contexts import Block, Contexts, Shape
from abc_nb.certificates.practice import SMALL, Alone, Practised, in_rounds, loss_of_contexts, poor, put
from abc_nb.certificates.spans import SpanContexts
from abc_nb.common.errors import InputError
from abc_nb.language.mixture import Mixture, TextBatch
from abc_nb.model.eight_bits import round_weights
from abc_nb.model.transformer import Transformer
from abc_nb.problems.sampling import AGAIN, VALIDATION, generator
from abc_nb.problems.spans import Pattern, ProblemSpan, spans_in, text_of, tokens_of
from abc_nb.training.evaluation import evaluating
from abc_nb.training.progress import TrainingConfig
from abc_nb.training.trainer import Batches, Report, Trainer
from abc_nb.training.writer import logits, rows_of, text_bias

TEXTS = 64  # rows of held-out text
MISSED = 256  # problems that are kept to be met again


def losses(model: Transformer, batch: TextBatch) -> tuple[Tensor, Tensor]:
    """The cross-entropy of every token but the first, (rows, tokens - 1), in nats, and whether it was the likeliest."""
    inputs = [text[:-1] for text in batch.texts]
    found = logits(model, batch.tokens[:, :-1], rows_of(model, inputs))
    wanted = batch.tokens[:, 1:]
    loss = F.cross_entropy(found.flatten(0, 1), wanted.flatten(), reduction="none")
    return loss.view(wanted.shape), found.argmax(-1) == wanted


class RowBatches(Batches):
    """Rows of text in which half of the problems are those missed lately, kept as tokens with their answers."""

    sampler: Mixture  # type: ignore[assignment]

    def again(self, step: int, size: int) -> list[str]:  # type: ignore[override]
        return [text_of(tokens.tolist()) for tokens in self.missed] if self.config.again else []

    def remember(self, batch: TextBatch, wrong: Tensor) -> None:  # type: ignore[override]
        """Keep the problems that had a wrong token, the last ones of `MISSED`; `wrong` is (rows, tokens - 1)."""
        for text, own in zip(batch.texts, wrong.cpu(), strict=True):
            for span in written_out(self.sampler.patterns, text):
                if own[span.equals : span.end].any():
                    self.missed.append(np.array(tokens_of(text[span.start : span.end + 1])))
        self.missed = self.missed[-MISSED:]


class LanguageTrainer(Trainer):
    """The loss is that of every character; validation is on held-out text with problems."""

    sampler: Mixture  # type: ignore[assignment]

    def __init__(self, model: Transformer, mixture: Mixture, config: TrainingConfig, seed: int) -> None:
        super().__init__(model, mixture, config, seed, RowBatches(mixture, config, seed))  # type: ignore[arg-type]

    def gradients(self, batch: TextBatch, phase: Tensor | int) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        self.model.zero_grad()
        loss, right = losses(self.model, batch)
        loss.mean().backward()
        return loss.detach().mean(), ~right

    def validate(self, batches: list[TextBatch], loss: Tensor) -> None:  # type: ignore[override]
        """Add a row to the history: the share of problems answered right, and the loss on held-out text."""
        right = list[bool]()
        for batch in batches:
            with evaluating(self.model) as device:
                _, tokens = losses(self.model, batch.to(device))
            for text, own in zip(batch.texts, tokens.cpu(), strict=True):
                right += [bool(own[s.equals : s.end].all()) for s in written_out(self.sampler.patterns, text)]
        row = {"step": self.progress.step, "seconds": self.progress.seconds, "loss": loss.item()}
        share = sum(right) / max(1, len(right))
        self.progress.history.append(row | {"accuracy": share, "text": text_loss(self.model)})


def written_out(patterns: tuple[Pattern, ...], text: str) -> list[ProblemSpan]:
    """The problems of a row whose answers are written with their ends."""
    return [span for span in spans_in(text, patterns) if span.answer and span.end < len(text)]


def text_loss(model: Transformer, rows: int = TEXTS) -> float:
    """Nats per character of held-out text without problems."""
    mixture, rng = Mixture(()), generator(0, VALIDATION, 1)
    with evaluating(model) as device:
        parts = [losses(model, mixture.rows(rng, 32, held_out=True).to(device))[0] for _ in range(-(-rows // 32))]
    return torch.cat(parts).mean().item()


# ---- practice: training goes on with contexts, until none is wrong
#
# A step shows two thousand contexts alone, without a problem around them, where a batch of text has a few dozen. All
# come up, so that what is right stays right, and those that were wrong come more often. Text is not learned any
# further, which would overfit it: outside of answers the model is held to what it predicted before practice.

SHAPES, AT_ONCE = 8, 256  # shapes of which a step shows contexts alone, and contexts of each


def contexts_of_text(model: Transformer) -> list[SpanContexts]:
    """The contexts of each pattern's answers; InputError for a model whose answers can look everywhere."""
    if not text_bias(model).patterns:
        raise InputError("no certificate: the answers of this model look at all text before them; choose language-abs")
    return [SpanContexts.of(model, pattern) for pattern in text_bias(model).patterns]


def practise_language(
    model: Transformer,
    mixture: Mixture,
    config: TrainingConfig,
    seed: int,
    rounds: int,
    report: Report | None = None,
) -> Practised:
    """Round the weights to 8 bits, certify, and train a round more, at most so many, until every pattern is certified.

    `config` is the training of one round. The contexts to practise are those of all rounds so far.
    """
    contexts = contexts_of_text(model)
    practice = ToPractise(contexts, deepcopy(model))
    round_weights(model)

    def trainer(attempts: Sequence[Attempt], step: int) -> PractiseTrainer:
        practice.add(attempts)
        found = PractiseTrainer(model, mixture, config, seed + 2**20 * practice.rounds)
        found.practice = practice
        return found

    return in_rounds(model, contexts, rounds, trainer, report)


class ToPractise:
    """All contexts of a model, and those that were wrong in a round so far; and the model before practice."""

    def __init__(self, contexts: Sequence[Contexts], before: Transformer) -> None:
        self.before, self.rounds, self.alone = before.requires_grad_(False).eval(), 0, Alone()
        self.wrong = list[Shape]()  # those with wrong contexts in the last round
        self.every = {shape: together([*own.blocks(shape)]) for own in contexts for shape in own.shapes}

    def add(self, attempts: Sequence[Attempt]) -> None:
        """Add what is wrong or nearly so, for one round more."""
        self.rounds += 1
        results = [each for own in attempts for each in own.results]
        self.wrong = [each.shape for each in results if each.wrong]
        for each in (each for each in results if each.margin < SMALL):
            put(self.alone, each.shape, poor(each))

    def some(self, rng: np.random.Generator) -> list[tuple[Shape, Block]]:
        """Contexts of some shapes: of half of them from those with wrong ones, and of the rest from all.

        Shapes of few contexts come up, too.
        """
        shapes, sizes = [*self.every], np.sqrt([len(every) for every in self.every.values()])
        few = SHAPES // 2 if self.wrong else 0
        chosen = [self.wrong[number] for number in rng.integers(max(1, len(self.wrong)), size=few)]
        chosen += [shapes[number] for number in rng.choice(len(shapes), SHAPES - few, p=sizes / sizes.sum())]
        return [(shape, self.contexts(shape, rng)) for shape in chosen]

    def contexts(self, shape: Shape, rng: np.random.Generator) -> Block:
        """Some contexts of one shape; half of them were wrong where such are known."""
        wrong = [*self.alone.get(shape, {}).values()]
        found = self.every[shape].part(rng.integers(len(self.every[shape]), size=AT_ONCE))
        for row in range(AT_ONCE // 2 if wrong else 0):
            found.values[row], found.right[row] = wrong[int(rng.integers(len(wrong)))]
        return found


def together(blocks: Sequence[Block]) -> Block:
    return Block(np.concatenate([each.values for each in blocks]), np.concatenate([each.right for each in blocks]))


class PractiseTrainer(LanguageTrainer):
    """Trains one round: the loss of contexts alone, and how far predictions in text are from those before practice."""

    practice: ToPractise

    def gradients(self, batch: TextBatch, phase: Tensor | int) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        self.model.zero_grad()
        loss = self.change(batch)
        loss.backward()
        for shape, block in self.practice.some(generator(self.seed, AGAIN, self.progress.step)):
            (loss_of_contexts(self.model, shape, block.values, block.right) / SHAPES).backward()
        return loss.detach(), torch.zeros_like(batch.tokens[:, 1:], dtype=torch.bool)

    def change(self, batch: TextBatch) -> Tensor:
        """The Kullback-Leibler divergence from predictions before practice to those now, a token outside of answers."""
        inputs, rows = batch.tokens[:, :-1], rows_of(self.model, [text[:-1] for text in batch.texts])
        now, then = (logits(model, inputs, rows).log_softmax(-1) for model in (self.model, self.practice.before))
        outside = torch.ones_like(inputs, dtype=torch.bool)
        for own, text in zip(outside, batch.texts, strict=True):
            for span in text_bias(self.model).spans(text):
                own[span.equals : span.end] = False
        return F.kl_div(now, then, reduction="none", log_target=True).sum(-1)[outside].mean()
