"""A decoder-only model on rows of text: what it makes of whole rows, and of a row that grows.

The layers are those of problem and answer; a row is one sequence, whose bias and positions are its own.
Shapes: B rows, T tokens, N tokens before them, H heads, D numbers of a state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from abc_nb.model.attention import KeysValues, Record, room
from abc_nb.model.decoders import SequenceDecoder, fill, keys_values
from abc_nb.model.layers import keeping
from abc_nb.model.transformer import Transformer


@dataclass(frozen=True)
class Rows:
    """Where the tokens of rows stand, and what each layer's attention adds to its logits."""

    positions: Tensor  # (B, N + T)
    biases: Sequence[Tensor]  # of each layer, (B or 1, H, T, N + T)


class Cache:
    """Keys and values of the tokens of one row so far, of each layer; going back is forgetting the last ones."""

    def __init__(self) -> None:
        self.count, self.layers = 0, list[KeysValues]()

    def put(self, number: int, new: KeysValues) -> KeysValues:
        """Keys and values of all tokens, with those of the new ones of a layer."""
        if number == len(self.layers):
            self.layers.append(room(new, new[0].shape[2]))
        total, known = self.count + new[0].shape[2], self.layers[number]
        if total > known[0].shape[2]:
            wider = room(known, 2 * total)
            fill(wider, (known[0][:, :, : self.count], known[1][:, :, : self.count]), 0)
            self.layers[number] = known = wider
        fill(known, new, self.count)
        return known[0][:, :, :total], known[1][:, :, :total]


def logits(
    model: Transformer, tokens: Tensor, rows: Rows, cache: Cache | None = None, record: Record | None = None
) -> Tensor:
    """Logits (B, T, vocabulary) of the token after each of `tokens` (B, T), which follow those in the cache.

    `record` receives all attention, as self-attention.
    """
    decoder, before = model.decoder, rows.positions.shape[1] - tokens.shape[1]
    assert isinstance(decoder, SequenceDecoder)
    own = rows.positions[:, None, before:, None]  # one index for all heads and pairs of numbers
    x = model.embed(tokens, rows.positions[:, before:])
    for number, (layer, bias) in enumerate(zip(decoder.layers, rows.biases, strict=True)):
        inner = layer.self_residual.inner(x)
        pair = keys_values(layer, x, own)
        pair = pair if cache is None else cache.put(number, pair)
        x = layer.mix(x, inner, pair, bias, (own, rows.positions), keeping(record, "self", number))
    if cache is not None:
        cache.count += tokens.shape[1]
    return model.head(model.decoder_norm(x))
