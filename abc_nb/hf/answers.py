"""What the tokens of answers see, and models that give the answers' tokens from that alone.

Shapes: N contexts, K keys, H heads, A characters of problems and answers, V tokens of the model's vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from abc_nb.bias.base import CLOSED, Bias, OpenKeys
from abc_nb.bias.lines import Lines, lines_of_keys
from abc_nb.bias.text import ITSELF
from abc_nb.certificates.contexts import Block, Node, Shape, Token
from abc_nb.common.errors import InputError
from abc_nb.hf.attach import attached
from abc_nb.hf.passes import SequenceBias, leveled
from abc_nb.hf.text import Reader, token_of
from abc_nb.language.mixture import draw
from abc_nb.problems.layouts import Layout
from abc_nb.problems.sampling import TEST, generator
from abc_nb.problems.text import END, EQUALS, VOCABULARY, Pattern
from abc_nb.training.evaluation import evaluating

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


class AnswerBlock(NamedTuple):
    """The contexts of answers' tokens, in numbers of characters."""

    before: Tensor  # (N,): the character of the answer, or the `=`, that each follows
    added: Tensor  # (N, H, A): what is added to a head's logits of the problem's characters; minus infinity: not open
    right: Tensor  # (N,): the character that is right after each; the last one can be missing

    def part(self, indices: Tensor) -> AnswerBlock:
        return AnswerBlock(*(numbers[indices] for numbers in self))

    def sequence(self) -> tuple[Tensor, Tensor]:
        """One sequence with every character once, and after them the contexts, which see those that they open.

        What stands at each token (T,), and what is added to attention logits (H, T, T); each token sees itself.
        """
        contexts, heads, characters = self.added.shape
        added = torch.full((heads, characters + contexts, characters + contexts), CLOSED)
        added[:, characters:, :characters] = self.added.transpose(0, 1)
        added.diagonal(dim1=1, dim2=2).zero_()
        return torch.cat([torch.arange(characters), self.before]), added


def concatenated(parts: Sequence[AnswerBlock]) -> AnswerBlock:
    """Contexts one after the other."""
    return AnswerBlock(*map(torch.cat, zip(*parts, strict=True)))


def bias_of_characters(keys: Tensor, bias: Tensor, characters: int) -> Tensor:
    """What is added to logits of characters (N, H, A), where these stand at keys (N, K) with a bias (H, N, K)."""
    weights = torch.zeros(len(bias), len(keys), characters)
    return weights.scatter_add_(2, keys.expand(len(bias), -1, -1), bias.exp()).log().transpose(0, 1)


class Answers(nn.Module):
    """What gives the tokens of answers from their contexts: a model under a bias, or layers of its own for problems."""

    tokens: Tensor  # of the characters, in the model's vocabulary
    vocabulary: int

    def __init__(self, bias: Bias, layers: int, tokenizer: PreTrainedTokenizerBase) -> None:
        """InputError for a bias under which a second layer shows an answer's token more than the first does."""
        super().__init__()
        self.bias, self.characters = bias, alphabet(bias.patterns)
        itself = {*lines_of_keys((), ITSELF, bias.lines_of(bias.patterns[0]).heads, layers).lines}
        for lines in map(bias.lines_of, bias.patterns):
            inside = {line for line in lines.lines if line.attention != "cross" and line.layer < layers}
            if inside != itself or any(bias.same_as(layer) for layer in range(layers)):
                raise InputError(
                    "contexts are of a bias whose lines go from answers to their problem and, in every head, from each "
                    "token to itself, the same in every layer"
                )
        tokens = [token_of(tokenizer, character) for character in self.characters]
        self.register_buffer("tokens", torch.tensor(tokens), persistent=False)

    def forward(self, contexts: AnswerBlock, tokens: Tensor | None = None) -> Tensor:
        """Logits (N, V) of the token after each context, or of some `tokens` alone."""
        raise NotImplementedError

    def contexts(self, pattern: Pattern, lengths: tuple[int, ...], text: str, first: int, last: int) -> AnswerBlock:
        """Those of the steps `first` to `last` - 1 of a problem with numbers of these lengths.

        `text` is the problem with its answer, up to the token before the last step or to the last step's own.
        """
        layout = pattern.layout(lengths)
        keys, start = open_keys_of(self.bias.lines_of(pattern), layout), layout.source_length
        characters = torch.tensor([self.characters.index(character) for character in text])
        before, right = characters[start + first : start + last], characters[start + first + 1 : start + last + 1]
        added = bias_of_characters(characters[keys.index[first:last]], keys.value[:, first:last], len(self.characters))
        return AnswerBlock(before, added, right)

    def contexts_of(self, shape: Shape, block: Block) -> AnswerBlock:
        """Contexts of one shape of `SpanContexts` of one layer: tokens of a problem see themselves alone there."""
        numbers = np.array([self.characters.index(sign) if sign in self.characters else -1 for sign in VOCABULARY])
        biases, key_nodes = zip(*shape.root.cross_keys, strict=True)
        bias = torch.tensor(np.stack([np.frombuffer(values, np.float32) for values in biases], 1))  # (H, K)
        nodes = [shape.root.before, *key_nodes]
        before, *keys = (torch.from_numpy(numbers[tokens_at(node, shape, block.values)]) for node in nodes)
        bias = bias[:, None].expand(-1, len(block), -1)
        added = bias_of_characters(torch.stack(keys, 1), bias, len(self.characters))
        return AnswerBlock(before, added, torch.from_numpy(numbers[block.right]))


def tokens_at(key: Node | Token, shape: Shape, values: np.ndarray) -> np.ndarray:
    """The token that stands at a key in each context: (N,)."""
    while isinstance(key, Node):
        key = key.before
    kind, token, _ = key.leaf
    return np.full(len(values), token) if kind == "token" else values[:, shape.leaves.index(key.leaf)]


@lru_cache(maxsize=256)
@torch.inference_mode(False)  # used in training, too
def open_keys_of(lines: Lines, layout: Layout) -> OpenKeys:
    """The keys of each token of an answer, in time and memory linear in the length."""
    keys = lines.open_keys(layout, "cross", 0)
    if keys is None:
        raise InputError("the lines of a pattern leave every key open to a head: close heads without a line")
    return keys


def alphabet(patterns: Sequence[Pattern]) -> list[str]:
    """Every character that a problem or an answer has, digits first, and last the end of an answer."""
    signs = {character for pattern in patterns for literal in pattern.literals for character in literal}
    digits = {digit for pattern in patterns for digit in pattern.task.digits}
    return [*sorted(digits), *sorted((signs | {EQUALS}) - digits), END]


# ---- a model under a bias of text


@dataclass(frozen=True, eq=False)
class ContextBias(SequenceBias):
    """The bias of a sequence of contexts, all at one position."""

    added: Tensor  # (head, token, token)
    position: int

    def rows(self, layer: int, like: Tensor, first: int, last: int) -> Tensor:
        return leveled(self.added).to(like)

    def same_as(self, layer: int) -> int:
        return 0

    def positions(self, count: int) -> Tensor | None:
        return torch.full((count,), self.position)


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
            self.check_place(reader)

    def forward(self, contexts: AnswerBlock, tokens: Tensor | None = None, position: int = 0) -> Tensor:
        """The same, of problems at any one position."""
        sequence, added = contexts.sequence()
        handle = attached(self.model)
        assert handle is not None
        with handle.lent(only_row=ContextBias(added, position)):
            logits: Tensor = self.model(self.tokens[sequence][None], use_cache=False).logits[0, len(self.characters) :]
        return logits if tokens is None else logits[:, tokens]

    def check_place(self, reader: Reader) -> None:
        """InputError unless an answer's tokens depend on their contexts alone: in texts, and at far positions.

        By the bias they see nothing else. What is left is how a model counts positions, and what it does beside
        attention.
        """
        model, rng = self.model, generator(0, TEST)
        far = int(getattr(model.config.get_text_config(), "max_position_embeddings", None) or 1024) - 1
        for pattern in self.bias.patterns:
            operands = draw(pattern, [3] * len(pattern.short), rng)
            problem, answer = pattern.problem(operands), pattern.answer(operands)
            contexts = self.contexts(pattern, tuple(map(len, operands)), problem + answer, 0, len(answer) + 1)
            logits = self(contexts)
            others = [self(contexts, position=far)]
            for before in ("", "So it is, and so it was: "):
                tokens = reader.tokenizer.encode(before + problem + answer, return_tensors="pt").to(model.device)
                others.append(model(tokens, use_cache=False).logits[0, -len(logits) :])
            change = max(float((other - logits).abs().max()) for other in others)
            if not change <= torch.finfo(logits.dtype).eps ** 0.5 * float(logits.abs().max()):
                raise InputError(
                    f"no certificate for {type(model).__name__}: the same answer's token has other logits at another "
                    "place in a text, as with learned positions; take a model with rotary positions or none"
                )
