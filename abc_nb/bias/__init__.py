"""What is added to attention logits. `base.py` says what a bias can do; the files of this folder are found."""

from functools import partial

from abc_nb.bias.base import CLOSED, Attention, Bias, Causal, OpenKeys
from abc_nb.bias.lines import Line, Lines
from abc_nb.bias.window import Window
from abc_nb.common.config import import_modules, look_up

__all__ = ["CLOSED", "Attention", "Bias", "Causal", "Line", "Lines", "OpenKeys", "Window"]

import_modules(__name__, __path__)
__getattr__ = partial(look_up, Bias)
