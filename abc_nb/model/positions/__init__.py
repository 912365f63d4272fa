"""Position encodings, frozen values: a file holds a family of them, and classes in this folder's files are found."""

from functools import partial

from abc_nb.common.config import import_modules, look_up
from abc_nb.model.positions.base import Index, NoPosition, PositionEncoding, Sinusoidal

__all__ = ["Index", "NoPosition", "PositionEncoding", "Sinusoidal"]

import_modules(__name__, __path__)
__getattr__ = partial(look_up, PositionEncoding)
