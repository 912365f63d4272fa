"""Training answers until every context is right: random problems first, then those contexts that are wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from tqdm.auto import tqdm

from abc_nb.hf.certify import Attending, Certificate, certify_all
from abc_nb.hf.contexts import Answers, Contexts, joined
from abc_nb.hf.training import one_cycle
from abc_nb.language.mixture import draw
from abc_nb.model.eight_bits import round_weights
from abc_nb.problems.sampling import TRAIN, generator
from abc_nb.problems.spans import END
from abc_nb.problems.tasks import TRAINED

if TYPE_CHECKING:
    from transformers import PreTrainedModel

RATE, BETAS, BATCH = 1e-3, (0.9, 0.98), 512  # learning rate at its highest, AdamW's; contexts of a step
OTHERS = 2048  # tokens of the vocabulary, drawn anew for each step, that the right one is compared with


@dataclass(frozen=True)
class Trained:
    """What a training did, in steps of its first part and of each round of practice."""

    losses: list[list[float]] = field(default_factory=list)
    certificates: list[tuple[Certificate, ...]] = field(default_factory=list)  # before practice and after each round


def train_until_certified(
    model: Answers | PreTrainedModel, steps: int, seed: int = 0, rounds: int = 9, rate: float = RATE
) -> Trained:
    """Train on contexts alone; round the weights to 8 bits, try every context, and practise wrong or narrow ones.

    `model` is one of `transformers` under a bias of text, or a path. A round of practice has a third of the steps and a
    fifth of the learning rate, and there are at most so many `rounds`.
    """
    answers = model if isinstance(model, Answers) else Attending(model)
    found, practice = Trained(), list[Contexts]()
    for number in range(rounds + 1):
        count, own = (steps // 3, rate / 5) if number else (steps, rate)
        found.losses.append(train(answers, count, seed, sum(map(len, found.losses)), own, practice))
        round_weights(answers)
        found.certificates.append(tuple(certify_all(answers, practice)))
        if all(each.certified for each in found.certificates[-1]):
            break
    return found


def train(
    answers: Answers, count: int, seed: int, first: int, rate: float, practice: Sequence[Contexts]
) -> list[float]:
    """AdamW under a one-cycle learning rate; the loss of each step, which are so many from the `first` on.

    Every second step has as many contexts to practise beside those of random problems, if there are any.
    """
    again = joined(practice) if practice else None
    vocabulary, tokens = answers.vocabulary, answers.tokens

    def loss(step: int) -> Tensor:
        rng = generator(seed, TRAIN, step)
        contexts = drawn(answers, rng, BATCH)
        if again is not None and step % 2:
            rows = rng.choice(len(again.right), min(BATCH, len(again.right)), replace=False)
            contexts = joined([contexts, again.part(torch.from_numpy(rows))])
        others = torch.from_numpy(rng.choice(vocabulary, min(OTHERS, vocabulary), replace=False)).to(tokens.device)
        some = torch.cat([tokens, others[~torch.isin(others, tokens)]])
        return F.cross_entropy(answers(contexts, some), contexts.right.to(tokens.device))

    optimizer = torch.optim.AdamW(answers.parameters(), rate, BETAS, weight_decay=0.0)
    return one_cycle(optimizer, tqdm(range(first, first + count), delay=3, leave=False, unit="step"), loss, clip=1.0)


def drawn(answers: Answers, rng: np.random.Generator, count: int) -> Contexts:
    """The contexts of at least so many answers' tokens of random problems."""
    parts, found = list[Contexts](), 0
    while found < count:
        pattern = answers.bias.patterns[int(rng.integers(len(answers.bias.patterns)))]
        lengths = tuple(pattern.task.factor if few else int(rng.integers(1, TRAINED + 1)) for few in pattern.few)
        operands = draw(pattern, lengths, rng)
        answer = pattern.answer(operands)
        ended = answer + END * (len(answer) < pattern.answer_places(lengths))
        parts.append(answers.contexts(pattern, lengths, pattern.problem(operands) + ended, 0, len(ended)))
        found += len(ended)
    return joined(parts)
