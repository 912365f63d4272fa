"""Practice of a language model: training goes on with contexts, until none is wrong.

A step shows two thousand contexts alone, without a problem around them, where a batch of text has a few dozen. All come
up, so that what is right stays right, and those that were wrong come more often. Text is not learned any further,
which would overfit it: outside of answers the model is held to what it predicted before practice.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from abc_nb.certificates.certify import Certificate, tried_and_certified
from abc_nb.certificates.contexts import Block
from abc_nb.certificates.practice import SMALL, Alone, loss_of_contexts, poor
from abc_nb.certificates.shapes import Shape
from abc_nb.certificates.spans import SpanContexts
from abc_nb.certificates.tried import Tried
from abc_nb.common.errors import InputError
from abc_nb.language.mixture import Mixture, TextBatch
from abc_nb.language.training import LanguageTrainer, patterns_of, rows_of
from abc_nb.model.eight_bits import round_weights
from abc_nb.model.rows import logits
from abc_nb.model.transformer import Transformer
from abc_nb.problems.sampling import AGAIN, generator
from abc_nb.training.progress import Progress, TrainingConfig
from abc_nb.training.trainer import Report
from abc_nb.training.writer import text_bias

SHAPES, AT_ONCE = 8, 256  # shapes of which a step shows contexts alone, and contexts of each
OFTEN = 4  # times as often as others, and once more, come shapes that have wrong contexts


@dataclass(frozen=True)
class Practised:
    """What practice did to a model."""

    certificates: tuple[tuple[Certificate, ...], ...]  # of each pattern, before practice and after each round
    progress: Progress  # of all rounds
    seconds: float  # with those of certificates

    @property
    def wrong(self) -> list[list[int]]:
        """How many contexts of each pattern were wrong, before practice and after each round."""
        return [[each.wrong for each in certificates] for certificates in self.certificates]


def certify_language(model: Transformer) -> list[tuple[SpanContexts, list[Tried], Certificate]]:
    """Every context of every pattern tried; InputError for a model whose answers can look everywhere."""
    if not patterns_of(model):
        raise InputError("no certificate: the answers of this model look at all text before them; choose language-abs")
    contexts = [SpanContexts(model, pattern) for pattern in patterns_of(model)]
    return [(own, *tried_and_certified(own)) for own in contexts]


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
    start, alone, progress, before = time.perf_counter(), Alone(), Progress(), deepcopy(model)
    round_weights(model)
    found = certify_language(model)
    certificates = [tuple(each for _, _, each in found)]
    while len(certificates) <= rounds and not all(each.certified for each in certificates[-1]):
        for _, results, _ in found:
            for each in (each for each in results if each.margin < SMALL):
                known = alone.setdefault(each.shape, {})
                known |= {context[0].tobytes(): context for context in poor(each)}
        own = seed + 2**20 * len(certificates)
        trainer = PractiseTrainer(model, mixture, config, own, before, alone, [contexts for contexts, _, _ in found])
        trainer.run(report=report)
        add(progress, trainer.progress)
        round_weights(model)
        found = certify_language(model)
        certificates.append(tuple(each for _, _, each in found))
    return Practised(tuple(certificates), progress, time.perf_counter() - start)


def add(progress: Progress, own: Progress) -> None:
    """Add a round's steps to those before."""
    progress.history += [row | {"step": progress.step + row["step"]} for row in own.history]
    progress.step += own.step
    progress.seconds += own.seconds


class PractiseTrainer(LanguageTrainer):
    """Trains one round: the loss of contexts alone, and how far predictions in text are from those before practice."""

    def __init__(
        self,
        model: Transformer,
        mixture: Mixture,
        config: TrainingConfig,
        seed: int,
        before: Transformer,
        alone: Alone,
        contexts: Sequence[SpanContexts],
    ) -> None:
        """`alone` are the contexts that were wrong in this round or an earlier one, by shape."""
        super().__init__(model, mixture, config, seed)
        self.before = before.requires_grad_(False).eval()
        self.every = {shape: whole(own.blocks(shape)) for own in contexts for shape in own.shapes}
        self.alone, self.shapes = alone, [*self.every]
        counts = [len(self.every[shape].right) for shape in self.shapes]
        # Shapes of few contexts come up, too, and those with wrong ones more often.
        sizes = np.sqrt(counts) * [1 + OFTEN * (shape in alone) for shape in self.shapes]
        self.chances = sizes / sizes.sum()

    def gradients(self, batch: TextBatch, phase: Tensor | int) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        for parameter in self.parameters:
            parameter.grad = None
        loss = self.change(batch)
        loss.backward()
        rng = generator(self.seed, AGAIN, self.progress.step)
        for number in rng.choice(len(self.shapes), SHAPES, p=self.chances):
            (self.loss(self.shapes[number], rng) / SHAPES).backward()
        return loss.detach(), torch.zeros_like(batch.tokens[:, 1:], dtype=torch.bool)

    def change(self, batch: TextBatch) -> Tensor:
        """The Kullback-Leibler divergence from predictions before practice to those now, a token outside of answers."""
        inputs, rows = batch.tokens[:, :-1], rows_of(self.model, [text[:-1] for text in batch.texts])
        now, then = (logits(model, inputs, rows).log_softmax(-1) for model in (self.model, self.before))
        outside = torch.ones_like(inputs, dtype=torch.bool)
        for own, text in zip(outside, batch.texts, strict=True):
            for span in text_bias(self.model).spans(text):
                own[span.equals : span.end] = False
        return F.kl_div(now, then, reduction="none", log_target=True).sum(-1)[outside].mean()

    def loss(self, shape: Shape, rng: np.random.Generator) -> Tensor:
        """Cross-entropy of the right tokens of some contexts of one shape, from the model's own layers."""
        wrong, every = [*self.alone.get(shape, {}).values()], self.every[shape]
        some = rng.integers(len(every.right), size=AT_ONCE)
        chosen, labels = every.values[some], every.right[some]
        for row in range(len(some) // 2 if wrong else 0):
            chosen[row], labels[row] = wrong[int(rng.integers(len(wrong)))]
        return loss_of_contexts(self.model, shape, chosen, labels)


def whole(blocks: Iterable[Block]) -> Block:
    """All contexts of a shape together."""
    parts = [*blocks]
    return Block(np.concatenate([part.values for part in parts]), np.concatenate([part.right for part in parts]))
