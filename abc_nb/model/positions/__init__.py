"""Position encodings: what a token's place does to its embedding or to the attention logits.

A position encoding is a frozen value, and a file holds one family of them; `base.py` says what it can do. The classes
in this folder's files are found.
"""

from typing import Any

from abc_nb.common.collect import collect
from abc_nb.model.positions.absolute import NoPosition, Sinusoidal
from abc_nb.model.positions.base import AttentionPosition, Index, PositionEncoding

__all__ = ["AttentionPosition", "Index", "NoPosition", "PositionEncoding", "Sinusoidal"]

FOUND = collect(__name__, __path__)


def __getattr__(name: str) -> Any:
    if name in FOUND:
        return FOUND[name]
    raise AttributeError(f"no position encoding is called {name!r}: there are {', '.join(sorted(FOUND))}")
