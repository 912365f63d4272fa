"""Certifying a model of `transformers`.

Contexts are those of `certificates.spans`, so a certificate holds for numbers of any lengths, and for any text around
them, since answers see none of it. Each is tried against the whole vocabulary. What rounding can change is not bounded
here, as it is for this package's own layers: the narrowest contexts are computed again in float64, and the certificate
says how far float32 is from that.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from tqdm.auto import tqdm

from abc_nb.bias.base import CLOSED
from abc_nb.common.errors import InputError
from abc_nb.hf.attach import attached
from abc_nb.hf.contexts import Answers, Contexts, every_context, joined
from abc_nb.hf.rows import Rows
from abc_nb.hf.sequences import SequenceBias, leveled
from abc_nb.hf.text import Reader
from abc_nb.language.mixture import draw
from abc_nb.problems.sampling import TEST, generator
from abc_nb.training.evaluation import evaluating

if TYPE_CHECKING:
    from transformers import PreTrainedModel

NARROW = 64  # contexts that are computed again in float64


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
        lengths = tuple(pattern.task.rule.factor if few else 3 for few in pattern.few)
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


def certify_all(answers: Answers) -> list[Certificate]:
    """A certificate of each pattern."""
    found = []
    with evaluating(answers):
        for pattern in answers.bias.patterns:
            count, wrong, problem, narrow = 0, 0, "", list[tuple[float, Contexts]]()
            every = every_context(answers.bias, pattern)
            for contexts, problem_of in tqdm(every, delay=3, leave=False, unit="block"):
                margin = leads(answers, contexts)
                bad = (~(margin > 0)).nonzero()[:, 0]
                count, wrong = count + len(margin), wrong + len(bad)
                problem = min(filter(None, [problem, *map(problem_of, bad[:8].tolist())]), key=len, default="")
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
