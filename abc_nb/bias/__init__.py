"""Attention biases: what is added to attention logits, as values that know every size of problem."""

from abc_nb.bias.alibi import ALiBi, PlacedALiBi, RunningALiBi
from abc_nb.bias.base import CLOSED, Attention, Bias, Causal, Near, OpenKeys
from abc_nb.bias.lines import Line, Lines
from abc_nb.bias.window import Window

__all__ = [
    "CLOSED",
    "ALiBi",
    "Attention",
    "Bias",
    "Causal",
    "Line",
    "Lines",
    "Near",
    "OpenKeys",
    "PlacedALiBi",
    "RunningALiBi",
    "Window",
]
