"""Position encodings: what a token's place does to its embedding or to the attention logits.

A position encoding is a frozen value, and a file holds one family of them; classes in this folder's files are found.
"""

from functools import partial

from abc_nb.common.config import load, look_up
from abc_nb.model.positions.base import Index, NoPosition, PositionEncoding, Sinusoidal

__all__ = ["Index", "NoPosition", "PositionEncoding", "Sinusoidal"]

load(__name__, __path__)
__getattr__ = partial(look_up, PositionEncoding)
