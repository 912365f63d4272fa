"""Rows of text with problems in them: where problems stand, while text grows, and tokenizers that leave digits apart.

Whether a number is one of a problem shows only when the `=` comes. So the problems of whole rows are found anew in
every pass. The cache has a note of its tokens and of the problems in which they stood; what stands otherwise now is
forgotten there, and computed again.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, product
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from abc_nb.bias.base import Bias
from abc_nb.bias.sequence import of_heads
from abc_nb.bias.text import positions
from abc_nb.common.errors import InputError
from abc_nb.hf.passes import Pass, SequenceBias, leveled
from abc_nb.problems.text import END, EQUALS, Pattern, ProblemSpan, spans_in

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

NOTE = "abc_nb"  # attribute of the layer of a cache that notes its tokens, and in which problems they stand
PADDING = -1  # the problem that is noted of padding; that of other text is 0


class Reader:
    """Finds problems in rows of a tokenizer's tokens."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, patterns: Sequence[Pattern]) -> None:
        """InputError for a tokenizer that gives no token to each character of a problem."""
        self.tokenizer, self.patterns = tokenizer, tuple(patterns)
        self.pieces: dict[int, str] = {}
        for pattern in patterns:
            digits = "".join(a + b for a, b in product(pattern.task.digits, repeat=2))  # each beside each
            factor = str(max(pattern.factors)) * pattern.task.rule.short_digits
            text = pattern.problem([factor if short else digits for short in pattern.short])
            spans = self.spans(tokenizer.encode(f"So {text}{digits[:8]}{END}", add_special_tokens=False))
            if [(span.problem_length, span.answer_length) for span in spans] != [(len(text) - 1, 8)]:
                raise InputError(
                    f"this tokenizer does not give each character of {pattern.form} a token of its own: take "
                    "hf.one_digit_tokens(tokenizer, patterns), signs instead of words in patterns, and train with it"
                )

    def spans(self, tokens: Sequence[int]) -> list[ProblemSpan]:
        """The problems in a row of tokens without padding, counted in tokens.

        InputError for a problem in which a token has several characters: a layout has one column for each.
        """
        pieces = [self.piece(token) for token in tokens]
        indices = {start: index for index, start in enumerate(accumulate(map(len, pieces), initial=0))}
        text, spans = "".join(pieces), list[ProblemSpan]()
        for span in spans_in(text, self.patterns):
            problem, first = text[span.start : span.end], indices.get(span.start, len(pieces))
            if pieces[first : first + len(problem)] != [*problem]:
                raise InputError(
                    f"a token of {problem[:40]!r} has several characters: take hf.one_digit_tokens(tokenizer, "
                    "patterns), which gives each digit and each sign of a problem a token of its own, and train with it"
                )
            spans.append(replace(span, start=first))
        return spans

    def piece(self, token: int) -> str:
        """What a token adds to a text; behind a digit, since some tokenizers take spaces from a text's beginning."""
        if token not in self.pieces:
            zero = token_of(self.tokenizer, "0")
            self.pieces[token] = self.tokenizer.decode([zero, token], clean_up_tokenization_spaces=False)[1:]
        return self.pieces[token]


@dataclass(frozen=True)
class TextBias(SequenceBias):
    """A bias on a text in which problems stand."""

    bias: Bias
    spans: tuple[ProblemSpan, ...]

    def rows(self, layer: int, like: Tensor, first: int, last: int) -> Tensor:
        return of_heads(leveled(self.bias.rows(self.spans, layer, first, last)), like.shape[1]).to(like)

    def same_as(self, layer: int) -> int:
        return self.bias.same_as(layer)

    def positions(self, count: int) -> Tensor | None:
        return positions(self.spans, count, self.bias.period)


def padding_mask(mask: object, ids: Tensor, cached_problems: Tensor) -> Tensor | None:
    """Which of all tokens are no padding (row, token), by a mask; None if none is. InputError for another mask.

    `cached_problems` are the problems in which those in the cache stand, as noted there.
    """
    if mask is None and (cached_problems == PADDING).any():
        raise InputError("the tokens in the cache have padding: give the attention_mask of all tokens at every step")
    if mask is not None and (not isinstance(mask, Tensor) or mask.shape != ids.shape):
        raise InputError(
            f"a bias takes an attention_mask (row, token) of {ids.shape[0]} x {ids.shape[1]}, with 1 for tokens and 0 "
            "for padding, and a cache that grows with the sequence: generate without cache_implementation"
        )
    return None if mask is None or bool(mask.all()) else mask.bool()


def pass_of_text(bias: Bias, reader: Reader, kwargs: dict[str, Any], cached: int) -> Pass:
    """The pass of a model's arguments under a bias, after `cached` tokens in the cache.

    `input_ids` get the tokens that are to be computed again.
    """
    if kwargs.get("input_ids") is None:
        raise InputError("a bias of text finds problems in input_ids: give them instead of inputs_embeds")
    new_count, cache = kwargs["input_ids"].shape[1], kwargs.get("past_key_values")
    ids, cached_problems = read_note(cache, cached, kwargs["input_ids"])
    mask = padding_mask(kwargs.get("attention_mask"), ids, cached_problems)
    masks = torch.ones_like(ids, dtype=torch.bool) if mask is None else mask
    problems, spans = torch.zeros_like(ids).masked_fill(~masks, PADDING), list[tuple[ProblemSpan, ...]]()
    for tokens, row_problems, row_mask in zip(ids.cpu(), problems, masks.cpu(), strict=True):
        spans.append(tuple(reader.spans(tokens[row_mask].tolist())))
        columns = row_mask.nonzero()[:, 0].to(problems.device)
        for span in spans[-1]:
            number = hash((bias.patterns.index(span.pattern), span.start, *span.lengths))
            row_problems[columns[span.start : span.end]] = abs(number)
    changed = (cached_problems != problems[:, :cached]).any(0).nonzero()
    first = int(changed[0]) if len(changed) else cached
    if cache is not None and first < cached:
        cache.crop(first - cached)
        kwargs["input_ids"] = ids[:, first:]

    def finish(output: Any) -> None:
        """Note in the cache of an output what was computed, and cut the output to the tokens that were passed."""
        write_note(output.get("past_key_values"), ids, problems)
        for name in ("last_hidden_state", "logits"):
            if output.get(name) is not None and ids.shape[1] - first > new_count:
                output[name] = output[name][:, -new_count:]

    return Pass(tuple(TextBias(bias, row_spans) for row_spans in spans), first, ids.shape[1], mask, finish)


def note_of(cache: Any) -> Any:
    """The layer of a cache that holds the note, if there is one."""
    return next((layer for layer in getattr(cache, "layers", ()) if hasattr(layer, NOTE)), None)


def read_note(cache: Any, cached: int, ids: Tensor) -> tuple[Tensor, Tensor]:
    """The tokens of rows, with those in the cache; and in which problems the latter stood, as numbers.

    InputError for a cache that has no note of them.
    """
    if not cached:
        return ids, ids[:, :0]
    note = note_of(cache)
    if note is None or note.get_seq_length() != cached:
        raise InputError("what text is in this cache is not known: let the model begin it under its bias")
    tokens, problems = (part[:, 0, :, 0].to(ids.device) for part in (note.keys, note.values))
    return torch.cat([tokens, ids], 1), problems


def write_note(cache: Any, ids: Tensor, problems: Tensor) -> None:
    """Note in a cache what `read_note` reads, as one more layer, so that it is cut and reordered with the others."""
    from transformers.cache_utils import DynamicLayer

    if not hasattr(cache, "layers"):
        return
    note = note_of(cache)
    if note is None:
        note = DynamicLayer()
        setattr(note, NOTE, True)
        cache.layers.append(note)
    first = note.get_seq_length()
    note.update(ids[:, None, first:, None], problems[:, None, first:, None])


def token_of(tokenizer: PreTrainedTokenizerBase, character: str) -> int:
    """The token of one character; InputError where a tokenizer has none."""
    token = tokenizer.get_vocab().get(character)
    if token is None or tokenizer.decode([token]) != character:
        raise InputError(f"the tokenizer has no token for {character!r} alone: problems need one for each character")
    return int(token)


def one_digit_tokens(tokenizer: PreTrainedTokenizerBase, patterns: Sequence[Pattern] = ()) -> PreTrainedTokenizerBase:
    """A copy of a tokenizer that never merges digits, nor signs of patterns; a model is to be trained with it.

    Letters are merged as before. InputError for a tokenizer that is not one of the library `tokenizers`.
    """
    from tokenizers import Regex, pre_tokenizers

    single = copy.deepcopy(tokenizer)
    if getattr(single, "backend_tokenizer", None) is None:
        raise InputError("this tokenizer is not one of the library `tokenizers`: load it with use_fast=True")
    signs = {sign for pattern in patterns for literal in pattern.literals for sign in literal if not sign.isalnum()}
    split = pre_tokenizers.Split(Regex(f"[0-9{re.escape(''.join(sorted(signs | {EQUALS, END})))}]"), "isolated")
    usual = single.backend_tokenizer.pre_tokenizer
    single.backend_tokenizer.pre_tokenizer = split if usual is None else pre_tokenizers.Sequence([usual, split])
    return single
