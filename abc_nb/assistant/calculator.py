"""A language model that calculates: while it generates, the answers to problems in its text come from a path.

Nothing of the model changes. Where a text ends in a problem's `=`, or inside of its answer, the next token is the
path's. Everywhere else scores are the model's own, to the last bit.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from abc_nb.assistant.path import Path
from abc_nb.hf.text import token_of
from abc_nb.problems.spans import EQUALS, Pattern

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

SPACES = re.compile(r"(?<=[\d)]) ?([^\w\s]) ?(?=\d|$)")  # around a sign between two numbers, or at the end


class Calculator:
    """For `model.generate(..., logits_processor=[calculator])`: writes the answers of a path's problems.

    The path works its answer out units first, as its draft. It is written as people write numbers.
    No digit follows it. An answer that begins otherwise, since somebody typed it, is left to the model.
    """

    def __init__(self, path: Path, tokenizer: PreTrainedTokenizerBase) -> None:
        self.path, self.tokenizer = path, tokenizer
        digits = sorted({digit for pattern in path.bias.patterns for digit in pattern.task.digits})
        self.digits = {digit: token_of(tokenizer, digit) for digit in digits}
        self.answer = lru_cache(maxsize=64)(self.worked_out)

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Scores (row, vocabulary) of the next token of rows of tokens (row, token)."""
        for row, tokens in enumerate(input_ids):
            digit = self.next_digit(self.tokenizer.decode(tokens, clean_up_tokenization_spaces=False))
            if digit is None:
                continue
            scores = scores.clone()
            if digit:
                scores[row] = -torch.inf
                scores[row, self.digits[digit]] = 0.0
            else:
                scores[row, [*self.digits.values()]] = -torch.inf
        return scores

    def next_digit(self, text: str) -> str | None:
        """The digit of an answer that follows a text; empty behind its last one, and None where no answer is written.

        Spaces around signs are passed over.
        """
        begun, equals, written = SPACES.sub(r"\1", text).rpartition(EQUALS)
        if not equals or (written and not written.isdigit()):
            return None
        spans = self.path.bias.spans(begun + equals)
        if not spans or not spans[-1].finished or spans[-1].end != len(begun) + 1:
            return None
        answer = self.answer(spans[-1].pattern, begun[spans[-1].start :] + equals)
        return answer[len(written) : len(written) + 1] if answer.startswith(written) else None

    def worked_out(self, pattern: Pattern, problem: str) -> str:
        """The whole answer to a problem, as people write it."""
        return pattern.task.said(self.path.answer(pattern, pattern.operands(problem)))
