"""Practice of a language model: training goes on with contexts, until none is wrong.

A step shows two thousand contexts alone, without a problem around them, where a batch of text has a few dozen. All come
up, so that what is right stays right, and those that were wrong come more often. Text is not learned any further,
which would overfit it: outside of answers the model is held to what it predicted before practice.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from abc_nb.certificates.certify import Attempt
from abc_nb.certificates.contexts import Block, Contexts
from abc_nb.certificates.practice import SMALL, Alone, Practised, in_rounds, loss_of_contexts, poor, put
from abc_nb.certificates.shapes import Shape
from abc_nb.certificates.spans import SpanContexts
from abc_nb.common.errors import InputError
from abc_nb.language.mixture import Mixture, TextBatch
from abc_nb.language.training import LanguageTrainer
from abc_nb.model.eight_bits import round_weights
from abc_nb.model.transformer import Transformer
from abc_nb.problems.sampling import AGAIN, generator
from abc_nb.training.progress import TrainingConfig
from abc_nb.training.trainer import Report
from abc_nb.training.writer import logits, rows_of, text_bias

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
        return PractiseTrainer(model, mixture, config, seed + 2**20 * practice.rounds, practice)

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

    def __init__(
        self, model: Transformer, mixture: Mixture, config: TrainingConfig, seed: int, practice: ToPractise
    ) -> None:
        super().__init__(model, mixture, config, seed)
        self.practice = practice

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
