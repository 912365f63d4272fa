"""What is added to attention logits. `base.py` says what a bias can do; a file that is added here is read, too."""

from abc_nb.bias.alibi import ALiBi
from abc_nb.bias.base import CLOSED, Attention, Bias, Causal, OpenKeys
from abc_nb.bias.lines import Line, Lines
from abc_nb.bias.window import Window
from abc_nb.common.config import import_modules

__all__ = ["CLOSED", "ALiBi", "Attention", "Bias", "Causal", "Line", "Lines", "OpenKeys", "Window"]

import_modules(__name__, __path__)
