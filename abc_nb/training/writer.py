"""A text that a language model writes token by token, while it keeps the keys and values of what is written.

Whether a token stands in a problem shows only when the `=` comes. So the problems of the whole text are found anew with
every token, and keys and values are computed again from the first token on whose place in a problem has changed.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import takewhile
from operator import eq

import numpy as np
import torch
from torch import Tensor

from abc_nb.bias.text import positions
from abc_nb.common.errors import InputError
from abc_nb.model.attention import AttentionRecord, Cache
from abc_nb.model.transformer import Transformer
from abc_nb.problems.text import VOCABULARY, ProblemSpan, text_tokens
from abc_nb.training.evaluation import evaluating

Spans = Sequence[ProblemSpan]
TOKENS_AT_ONCE = 256  # tokens computed at once
NO_DIGITS = "".join(character for character in VOCABULARY if not character.isdigit())
MEMORY = 2 * 2**30  # bytes that one text may take


class Writer:
    """One text and what a model has computed of it."""

    def __init__(self, model: Transformer) -> None:
        self.model, self.cache = model, Cache()
        self.tokens, self.logits = list[object](), torch.empty(0)  # those in the cache, and after the last of them

    def after(self, text: str) -> Tensor:
        """Logits (vocabulary,) of the token after a text, which can be any: longer, shorter or another than the last.

        InputError for an empty text, an unknown character, or a text that is too long for memory.
        """
        if not text:
            raise InputError("there is no text to go on from: give one character at least")
        ids, spans = text_tokens(text), self.model.config.bias.spans(text)
        tokens = tokens_in_place(text, spans)
        same = takewhile(bool, map(eq, self.tokens, tokens))
        count = min(sum(same), self.cache.count)
        if count == len(tokens) and tokens != self.tokens:
            count -= 1  # only the last token's logits are kept
        self.cache.count, self.tokens = count, tokens[:count]
        for logits in passes(self.model, ids, spans, self.cache):
            self.logits, self.tokens = logits[-1].cpu(), tokens[: self.cache.count]  # which may be interrupted
        return self.logits

    def write(self, text: str, limit: int, until: str = "") -> str:
        """What the model writes after a text, greedily: at most so many characters, up to one of `until`."""
        written = ""
        while len(written) < limit and not (written and written[-1] in until):
            written += VOCABULARY[int(self.after(text + written).argmax())]
        return written

    def sample(self, text: str, count: int, rng: np.random.Generator, temperature: float) -> str:
        """So many characters after a text, drawn from the model's probabilities at a temperature."""
        written = ""
        for _ in range(count):
            probabilities = torch.softmax(self.after(text + written).double() / temperature, 0).numpy()
            written += VOCABULARY[int(rng.choice(len(probabilities), p=probabilities / probabilities.sum()))]
        return written

    def answer(self, text: str) -> str:
        """The answer, units first, to the problem whose `=` ends a text: all digits that the model writes there."""
        spans = self.model.config.bias.spans(text)
        if not spans or not spans[-1].finished or spans[-1].end != len(text) or spans[-1].answer_length:
            raise InputError(f"there is no problem at the end of {text[-40:]!r}")
        written = self.write(text, spans[-1].pattern.answer_places(spans[-1].lengths) + 1, NO_DIGITS)
        return written if written[-1].isdigit() else written[:-1]


def likeliest(model: Transformer, text: str) -> Tensor:
    """The likeliest token after each of a text's tokens, (tokens,), in memory that is linear in its length."""
    parts = passes(model, text_tokens(text), model.config.bias.spans(text), Cache())
    return torch.cat([logits.argmax(-1).cpu() for logits in parts])


def spans_of_rows(model: Transformer, texts: Sequence[str]) -> list[Spans]:
    """The problems in rows of text that the model's bias is about."""
    return [model.config.bias.spans(text) for text in texts]


def logits_of_texts(
    model: Transformer,
    tokens: Tensor,
    spans: Sequence[Spans],
    cache: Cache | None = None,
    record: AttentionRecord | None = None,
) -> Tensor:
    """Logits (B, T, vocabulary) of the token after each of `tokens` (B, T), which follow those in the cache.

    `spans` (B) are the problems in each row. `record` receives all attention, as self-attention.
    """
    bias, cache, device = model.config.bias, cache or Cache(), tokens.device
    first, last = cache.count, cache.count + tokens.shape[1]
    key_index = torch.stack([positions(row, last, bias.period) for row in spans]).to(device)
    index = key_index[:, None, first:, None]  # one index for all heads and pairs of numbers
    x = model.embed(tokens, key_index[:, first:])
    for number, layer in enumerate(model.decoder.layers):
        if bias.same_as(number) == number:  # otherwise it has the lines of the layer before
            matrix = torch.stack([bias.rows(row, number, first, last) for row in spans]).to(device)
        inner = layer.self_residual.norm(x)
        keys_values = cache.put(number, layer.keys_values(x, index))
        keep = None if record is None else partial(record.keep, ("self",), number, 0)
        x = layer.mix(x, layer.self_attention.attend(inner, keys_values, matrix, (index, key_index), keep))
    cache.count = last
    return model.head(model.decoder_norm(x))


def passes(model: Transformer, tokens: Sequence[int], spans: Spans, cache: Cache) -> Iterator[Tensor]:
    """Logits (tokens, vocabulary) after the tokens that are not in the cache yet, `TOKENS_AT_ONCE` at a time."""
    check_memory(model, len(tokens))
    with evaluating(model) as device:
        for first in range(cache.count, len(tokens), TOKENS_AT_ONCE):
            part = torch.tensor([tokens[first : first + TOKENS_AT_ONCE]], device=device)
            yield logits_of_texts(model, part, [spans], cache)[0]


def tokens_in_place(text: str, spans: Spans) -> list[object]:
    """Each token of a text with its place in a problem, if it is in one: all that its keys and values depend on."""
    tokens = list[object](text)
    for span in spans:
        place = span.pattern, span.start, span.lengths
        tokens[span.start : span.end] = [(character, *place) for character in text[span.start : span.end]]
    return tokens


def check_memory(model: Transformer, tokens: int) -> None:
    """InputError for a text whose keys, values and logits would take more memory than is given to one."""
    config = model.config
    numbers = tokens * (4 * config.width * config.decoder_layers + 4 * config.heads * TOKENS_AT_ONCE)
    needed = numbers * model.head.weight.element_size()
    if needed > MEMORY:
        raise InputError(
            f"this text of {tokens:,} characters would take {needed / 2**30:.1f} GB of memory, and a text is given "
            f"{MEMORY / 2**30:.0f} GB: give shorter numbers"
        )
