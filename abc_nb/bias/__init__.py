"""Attention biases: what is added to attention logits, as values that know every size of problem.

A bias is a frozen value, one a file; `base.py` says what it can do. The files of this folder are found.
"""

from typing import Any

from abc_nb.bias.base import CLOSED, Attention, Bias, Causal, OpenKeys
from abc_nb.bias.lines import Line, Lines
from abc_nb.bias.window import Window
from abc_nb.common.collect import collect

__all__ = ["CLOSED", "Attention", "Bias", "Causal", "Line", "Lines", "OpenKeys", "Window"]

FOUND = collect(__name__, __path__)


def __getattr__(name: str) -> Any:
    if name in FOUND:
        return FOUND[name]
    raise AttributeError(f"no bias is called {name!r}: there are {', '.join(sorted(FOUND))}")
