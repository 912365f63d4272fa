"""What the tokens of answers see: of given problems, and all that there can be.

Shapes: N contexts, K keys, H heads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from abc_nb.bias.base import CLOSED, Bias, OpenKeys
from abc_nb.bias.lines import Lines
from abc_nb.certificates.contexts import Block, Node, Shape, Token
from abc_nb.certificates.spans import SpanContexts
from abc_nb.common.errors import InputError
from abc_nb.hf.text import token_of
from abc_nb.problems.layouts import Layout
from abc_nb.problems.spans import END, EQUALS, VOCABULARY, Pattern

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

ROWS = 1024  # contexts of a block


@dataclass(frozen=True)
class Contexts:
    """What answers' tokens see, as numbers of characters in an alphabet."""

    before: Tensor  # (N,): the character of the answer, or the `=`, that each follows
    keys: Tensor  # (N, K): characters of the problem
    bias: Tensor  # (H, N, K), minus infinity where a key is closed
    right: Tensor  # (N,): the character that is right after each, as far as it is known

    def part(self, rows: Tensor) -> Contexts:
        return Contexts(self.before[rows], self.keys[rows], self.bias[:, rows], self.right[rows])

    def sequence(self, characters: int) -> tuple[Tensor, Tensor]:
        """One sequence with every character once, and after them the contexts, which see those that they open.

        What stands at each token (T,), and what is added to attention logits (H, T, T); each token sees itself.
        """
        heads, rows = self.bias.shape[:2]
        weights = torch.zeros(heads, rows, characters)
        weights.scatter_add_(2, self.keys.expand(heads, -1, -1), self.bias.exp())
        added = torch.full((heads, characters + rows, characters + rows), CLOSED)
        added[:, characters:, :characters] = weights.log()
        added.diagonal(dim1=1, dim2=2).zero_()
        return torch.cat([torch.arange(characters), self.before]), added


class Answers(nn.Module):
    """What gives the tokens of answers from their contexts: a model under a bias, or layers of its own for problems."""

    tokens: Tensor  # of the characters, in the model's vocabulary
    vocabulary: int

    def __init__(self, bias: Bias, layers: int, tokenizer: PreTrainedTokenizerBase) -> None:
        """InputError for a bias under which a second layer shows an answer's token more than the first does."""
        super().__init__()
        self.bias, self.characters = bias, alphabet(bias.patterns)
        for own in map(bias.lines_of, bias.patterns):
            itself = [line for line in own.lines if line.attention != "cross"]
            every = {(line.attention, line.layer, line.head) for line in itself}
            plain = all((line.direction, line.offset, line.value) == ("diagonal", 0, 0.0) for line in itself)
            if not plain or len(every) < 2 * layers * own.heads or any(bias.same_as(layer) for layer in range(layers)):
                raise InputError(
                    "contexts are of a bias whose lines go from answers to their problem and, in every head, from each "
                    "token to itself, the same in every layer"
                )
        tokens = [token_of(tokenizer, character) for character in self.characters]
        self.register_buffer("tokens", torch.tensor(tokens), persistent=False)

    def forward(self, contexts: Contexts, tokens: Tensor | None = None) -> Tensor:
        """Logits (N, V) of the token after each context, or of some `tokens` alone."""
        raise NotImplementedError

    def contexts(self, pattern: Pattern, lengths: tuple[int, ...], text: str, first: int, last: int) -> Contexts:
        """Those of the steps `first` to `last` - 1 of a problem with numbers of these lengths.

        `text` is the problem with its answer, up to the token before the last step or to the last step's own.
        """
        layout = pattern.layout(lengths)
        keys, start = opened(self.bias.lines_of(pattern), layout), layout.source_length
        characters = torch.tensor([self.characters.index(character) for character in text])
        before, right = characters[start + first : start + last], characters[start + first + 1 : start + last + 1]
        return Contexts(before, characters[keys.index[first:last]], keys.value[:, first:last], right)


@lru_cache(maxsize=256)
@torch.inference_mode(False)  # used in training, too
def opened(lines: Lines, layout: Layout) -> OpenKeys:
    """The keys of each token of an answer, in time and memory linear in the length."""
    keys = lines.open_keys(layout, "cross", 0)
    if keys is None:
        raise InputError("the lines of a pattern leave every key open to a head: close heads without a line")
    return keys


def joined(parts: Sequence[Contexts]) -> Contexts:
    """Contexts one after the other; those with fewer keys get closed ones."""
    most = max(part.keys.shape[1] for part in parts)
    more = [(0, most - part.keys.shape[1]) for part in parts]
    keys = [pad(part.keys, own) for part, own in zip(parts, more, strict=True)]
    bias = [pad(part.bias, own, value=CLOSED) for part, own in zip(parts, more, strict=True)]
    before, right = (torch.cat([getattr(part, name) for part in parts]) for name in ("before", "right"))
    return Contexts(before, torch.cat(keys), torch.cat(bias, 1), right)


def alphabet(patterns: Sequence[Pattern]) -> list[str]:
    """Every character that a problem or an answer has, digits first, and last the end of an answer."""
    signs = {character for pattern in patterns for literal in pattern.literals for character in literal}
    digits = {digit for pattern in patterns for digit in pattern.task.digits}
    return [*sorted(digits), *sorted((signs | {EQUALS}) - digits), END]


def every_context(bias: Bias, pattern: Pattern) -> Iterator[tuple[Contexts, Callable[[int], str]]]:
    """All contexts of a pattern's answers, for numbers of any lengths, some at a time.

    Beside them stands what gives the shortest problem that holds one of them. Tokens of a problem see themselves alone,
    so a second layer shows an answer's token nothing more than the first.
    """
    known = SpanContexts(bias.lines_of(pattern), 1, pattern)
    characters = {character: number for number, character in enumerate(alphabet(bias.patterns))}
    numbers = np.array([characters.get(character, -1) for character in VOCABULARY])
    for shape in known.shapes:
        root = shape.root
        of_keys = torch.tensor(np.stack([np.frombuffer(own, np.float32) for own, _ in root.cross], 1))  # (H, K)
        blocks = (block.part(slice(i, i + ROWS)) for block in known.blocks(shape) for i in range(0, len(block), ROWS))
        for block in blocks:
            before, *keys = (
                torch.from_numpy(numbers[tokens_at(key, shape, block.values)])
                for key in (root.before, *(key for _, key in root.cross))
            )
            right = torch.from_numpy(numbers[block.right])
            contexts = Contexts(before, torch.stack(keys, 1), of_keys[:, None].expand(-1, len(block), -1), right)
            yield contexts, partial(problem_of, known, shape, block)


def problem_of(known: SpanContexts, shape: Shape, block: Block, row: int) -> str:
    """The shortest problem that holds a context; empty where none is found."""
    found = known.candidates([(shape, block[row])])
    return known.pattern.problem(known.written(found[0].operands)) if found else ""


def tokens_at(key: Node | Token, shape: Shape, values: np.ndarray) -> np.ndarray:
    """The token that stands at a key in each context: (N,)."""
    while isinstance(key, Node):
        key = key.before
    kind, token, _ = key.atom
    return np.full(len(values), token) if kind == "token" else values[:, shape.atoms.index(key.atom)]
