"""A decoder-only model on rows of text: what it makes of whole rows, and of a row that grows.

The layers are those of problem and answer; a row is one sequence, whose bias and positions are its own.
Shapes: B rows, T tokens, N tokens before them, H heads, D numbers of a state.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from torch import Tensor

from abc_nb.model.attention import Cache, Record
from abc_nb.model.transformer import Transformer


@dataclass(frozen=True)
class Rows:
    """Where the tokens of rows stand, and what each layer's attention adds to its logits."""

    positions: Tensor  # (B, N + T)
    biases: Sequence[Tensor]  # of each layer, (B or 1, H, T, N + T)


def logits(
    model: Transformer, tokens: Tensor, rows: Rows, cache: Cache | None = None, record: Record | None = None
) -> Tensor:
    """Logits (B, T, vocabulary) of the token after each of `tokens` (B, T), which follow those in the cache.

    `record` receives all attention, as self-attention.
    """
    decoder, before, cache = model.decoder, rows.positions.shape[1] - tokens.shape[1], cache or Cache()
    own = rows.positions[:, None, before:, None]  # one index for all heads and pairs of numbers
    x = model.embed(tokens, rows.positions[:, before:])
    for number, (layer, bias) in enumerate(zip(decoder.layers, rows.biases, strict=True)):
        inner = layer.self_residual.norm(x)
        both = cache.put(number, layer.keys_values(x, own))
        keep = None if record is None else partial(record.keep, ("self",), number, 0)
        x = layer.mix(x, inner, both, bias, (own, rows.positions), keep)
    cache.count += tokens.shape[1]
    return model.head(model.decoder_norm(x))
