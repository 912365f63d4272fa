"""Certifying a model of `transformers`, and training one until it is certified.

Contexts are those of `certificates.spans`, so a certificate holds for numbers of any lengths, and for any text around
them, since answers see none of it. Each is tried against the whole vocabulary. What rounding can change is not bounded
here, as it is for this package's own layers: the narrowest contexts are computed again in float64, and the certificate
says how far float32 is from that.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from tqdm.auto import tqdm

from abc_nb.bias.base import CLOSED
from abc_nb.common.errors import InputError
from abc_nb.hf.attach import attached
from abc_nb.hf.contexts import Answers, Contexts, every_context, joined
from abc_nb.hf.rows import Rows
from abc_nb.hf.sequences import SequenceBias, leveled
from abc_nb.hf.text import Reader
from abc_nb.hf.training import one_cycle
from abc_nb.language.mixture import draw
from abc_nb.model.eight_bits import round_weights
from abc_nb.problems.sampling import TEST, TRAIN, generator
from abc_nb.problems.spans import END
from abc_nb.problems.tasks import TRAINED
from abc_nb.training.evaluation import evaluating

if TYPE_CHECKING:
    from transformers import PreTrainedModel

NARROW = 64  # contexts that are computed again in float64
SMALL = 1.0  # a margin below it is practised, too
RATE, BETAS, BATCH = 1e-3, (0.9, 0.98), 512  # learning rate at its highest, AdamW's; contexts of a step
OTHERS = 2048  # tokens of the vocabulary, drawn anew for each step, that the right one is compared with


@dataclass(frozen=True)
class Certificate:
    """What trying every context of a pattern gave."""

    form: str
    contexts: int
    wrong: int
    margin: float  # the smallest: the right token's logit minus that of the best other token of the vocabulary
    rounding: float  # how far float32 is from float64 at most, in the narrowest contexts
    problem: str  # the shortest that is wrong, if one is

    @property
    def certified(self) -> bool:
        """Whether every context is right."""
        return self.wrong == 0

    def __str__(self) -> str:
        if not self.certified:
            wrong = f"{self.wrong:,} of {self.contexts:,} contexts are wrong"
            return f"{self.form} is not certified: {wrong}: {self.problem}"
        return (
            f"{self.form} for numbers of any lengths, in any text: in each of {self.contexts:,} contexts the right "
            f"token leads by a margin of {self.margin:.2f} or more. Where margins are smallest, float32 and float64 "
            f"differ by {self.rounding:.0e}; elsewhere rounding is not bounded."
        )


@dataclass(frozen=True, eq=False)
class OfContexts(SequenceBias):
    """The bias of a sequence of contexts, all at one place."""

    added: Tensor  # (head, token, token)
    place: int

    def rows(self, layer: int, like: Tensor, first: int, last: int) -> Tensor:
        return leveled(self.added).to(like)

    def same_as(self, layer: int) -> int:
        return 0

    def positions(self, count: int) -> Tensor | None:
        return torch.full((count,), self.place)


class Attending(Answers):
    """A model under a bias of text, of which a problem's tokens see their problem alone."""

    def __init__(self, model: PreTrainedModel) -> None:
        """InputError for a model without such a bias, and for one whose answers depend on where problems stand."""
        handle = attached(model)
        reader = None if handle is None else handle.setting.reader
        if handle is None or reader is None or handle.bias.period != 1:
            raise InputError("no certificate: attach a bias of text first, under which a problem takes one position")
        super().__init__(handle.bias, len(handle.layers), reader.tokenizer)
        self.model: Any = model
        self.vocabulary = model.get_input_embeddings().num_embeddings
        self.to(model.device)
        with evaluating(self):
            check_place(self, reader)

    def forward(self, contexts: Contexts, tokens: Tensor | None = None, place: int = 0) -> Tensor:
        """The same, of problems at any one position."""
        where, added = contexts.sequence(len(self.characters))
        rows = Rows((OfContexts(added, place),), None, 0, len(where))
        handle = attached(self.model)
        assert handle is not None
        with handle.lent(rows=rows):
            found: Tensor = self.model(self.tokens[where][None], use_cache=False).logits[0, len(self.characters) :]
        return found if tokens is None else found[:, tokens]


def check_place(answers: Attending, reader: Reader) -> None:
    """InputError unless an answer's tokens depend on their contexts alone: in texts, and at far positions.

    By the bias they see nothing else. What is left is how a model counts positions, and what it does beside attention.
    """
    model, rng = answers.model, generator(0, TEST)
    far = int(getattr(model.config.get_text_config(), "max_position_embeddings", None) or 1024) - 1
    for pattern in answers.bias.patterns:
        lengths = tuple(pattern.task.factor if few else 3 for few in pattern.few)
        operands = draw(pattern, lengths, rng)
        problem, answer = pattern.problem(operands), pattern.answer(operands)
        contexts = answers.contexts(pattern, lengths, problem + answer, 0, len(answer) + 1)
        wanted = answers(contexts)
        found = [answers(contexts, place=far)]
        for before in ("", "So it is, and so it was: "):
            tokens = reader.tokenizer.encode(before + problem + answer, return_tensors="pt").to(model.device)
            found.append(model(tokens, use_cache=False).logits[0, -len(wanted) :])
        most = max(float((own - wanted).abs().max()) for own in found)
        if not most <= torch.finfo(wanted.dtype).eps ** 0.5 * float(wanted.abs().max()):
            raise InputError(
                f"no certificate for {type(model).__name__}: the same answer's token has other logits at another place "
                "in a text, as with learned positions; take a model with rotary positions or none"
            )


def certify(model: PreTrainedModel) -> list[Certificate]:
    """A certificate of each pattern of the bias of text that is on a model: the answers it writes, in any text.

    InputError for a model whose answers depend on anything but their problems.
    """
    return certify_all(Attending(model))


def certify_all(answers: Answers, practice: list[Contexts] | None = None) -> list[Certificate]:
    """A certificate of each pattern; contexts that are wrong or nearly so go into `practice`."""
    found = []
    with evaluating(answers):
        for pattern in answers.bias.patterns:
            count, wrong, problem, narrow = 0, 0, "", list[tuple[float, Contexts]]()
            every = every_context(answers.bias, pattern)
            for contexts, problem_of in tqdm(every, delay=3, leave=False, unit="block"):
                margin = leads(answers, contexts)
                poor, bad = (~(margin > SMALL)).nonzero()[:, 0], (~(margin > 0)).nonzero()[:, 0]
                count, wrong = count + len(margin), wrong + len(bad)
                problem = min(filter(None, [problem, *map(problem_of, bad[:8].tolist())]), key=len, default="")
                if practice is not None and len(poor):
                    practice.append(contexts.part(poor))
                narrow.append((float(margin.min()), contexts.part(margin.argmin()[None])))
            margins, narrowest = zip(*sorted(narrow, key=lambda each: each[0])[:NARROW], strict=True)
            exact = leads(copy.deepcopy(answers).double(), joined(narrowest))
            off = float((exact - torch.tensor(margins)).abs().max())
            found.append(Certificate(pattern.form, count, wrong, margins[0], off, problem))
    return found


def leads(answers: Answers, contexts: Contexts) -> Tensor:
    """By how much the right token of each context leads, (N,)."""
    logits, right = answers(contexts), answers.tokens[contexts.right][:, None]
    return (logits.gather(1, right) - logits.scatter(1, right, CLOSED).amax(1, keepdim=True))[:, 0].cpu()


# ---- training until every context is right: random problems first, then those contexts that are wrong


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
        first, count = sum(map(len, found.losses)), steps // 3 if number else steps
        own = range(first, first + count)
        found.losses.append(train(answers, own, seed, rate / 5 if number else rate, practice))
        round_weights(answers)
        found.certificates.append(tuple(certify_all(answers, practice)))
        if all(each.certified for each in found.certificates[-1]):
            break
    return found


def train(answers: Answers, steps: range, seed: int, rate: float, practice: Sequence[Contexts]) -> list[float]:
    """AdamW under a one-cycle learning rate; the loss of each step.

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
    return one_cycle(optimizer, tqdm(steps, delay=3, leave=False, unit="step"), loss, clip=1.0)


def drawn(answers: Answers, rng: np.random.Generator, count: int) -> Contexts:
    """The contexts of at least so many answers' tokens of random problems."""
    parts = list[Contexts]()
    while sum(len(part.right) for part in parts) < count:
        pattern = answers.bias.patterns[int(rng.integers(len(answers.bias.patterns)))]
        lengths = tuple(pattern.task.factor if few else int(rng.integers(1, TRAINED + 1)) for few in pattern.few)
        operands = draw(pattern, lengths, rng)
        answer = pattern.answer(operands)
        ended = answer + END * (len(answer) < pattern.answer_places(lengths))
        parts.append(answers.contexts(pattern, lengths, pattern.problem(operands) + ended, 0, len(ended)))
    return joined(parts)
