"""Practice of a language model: training goes on with problems that hold wrong contexts, until none is wrong."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from abc_nb.certificates.certify import Certificate, tried_and_certified
from abc_nb.certificates.practice import EXAMPLES, SMALL
from abc_nb.certificates.spans import SpanContexts
from abc_nb.certificates.tried import Tried
from abc_nb.common.errors import InputError
from abc_nb.language.mixture import Mixture, solved
from abc_nb.language.training import LanguageTrainer, patterns_of
from abc_nb.model.eight_bits import round_weights
from abc_nb.model.transformer import Transformer
from abc_nb.training.progress import Progress, TrainingConfig
from abc_nb.training.trainer import Report


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

    `config` is the training of one round. The problems to practise are those of all rounds so far.
    """
    start, again, progress = time.perf_counter(), list[str](), Progress()
    round_weights(model)
    found = certify_language(model)
    certificates = [tuple(each for _, _, each in found)]
    while len(certificates) <= rounds and not all(each.certified for each in certificates[-1]):
        for contexts, results, _ in found:
            again += problems(contexts, results)
        trainer = LanguageTrainer(model, mixture, config, seed + 2**20 * len(certificates), again)
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


def problems(contexts: SpanContexts, results: Sequence[Tried]) -> list[str]:
    """A problem, solved, for each context that is wrong or nearly so; the shortest that holds it."""
    found = list[str]()
    for each in results:
        nearly = [context for margin, context in each.narrow if 0 < margin < SMALL] if each.margin < SMALL else []
        for context in [*each.examples[:EXAMPLES], *nearly]:
            own = (contexts.problem(each.shape, context, site) for site in each.where)
            operands = next((operands for operands in own if operands is not None), None)
            if operands is not None:
                found.append(solved(contexts.pattern, contexts.written(operands)))
    return found
