"""Position encodings, frozen values: a file holds a family of them, and a file that is added here is read, too."""

from abc_nb.common.config import import_modules
from abc_nb.model.positions.base import Index, NoPosition, PositionEncoding, Sinusoidal
from abc_nb.model.positions.relative import Relative
from abc_nb.model.positions.rotary import Rotary

__all__ = ["Index", "NoPosition", "PositionEncoding", "Relative", "Rotary", "Sinusoidal"]

import_modules(__name__, __path__)
