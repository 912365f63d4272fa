"""Position encodings: what a token's place does to its embedding or to the attention logits.

A position encoding is a frozen value, one a file; `base.py` says what it can do.
"""

from abc_nb.model.positions.abacus import Abacus
from abc_nb.model.positions.base import AttentionPosition, Index, NoPosition, PositionEncoding
from abc_nb.model.positions.coupling import Coupling, TableCoupling
from abc_nb.model.positions.fire import Fire
from abc_nb.model.positions.kerple import Kerple
from abc_nb.model.positions.learned import Learned
from abc_nb.model.positions.randomized import Randomized
from abc_nb.model.positions.relative import Relative, RelativeAttention, ShortRelative
from abc_nb.model.positions.rotary import Rotary, RotaryAttention
from abc_nb.model.positions.rotary_interpolated import InterpolatedRotary
from abc_nb.model.positions.rotary_ntk import NTKRotary
from abc_nb.model.positions.sandwich import Sandwich
from abc_nb.model.positions.sinusoidal import Sinusoidal
from abc_nb.model.positions.transformer_xl import TransformerXL

__all__ = [
    "Abacus",
    "AttentionPosition",
    "Coupling",
    "Fire",
    "Index",
    "InterpolatedRotary",
    "Kerple",
    "Learned",
    "NTKRotary",
    "NoPosition",
    "PositionEncoding",
    "Randomized",
    "Relative",
    "RelativeAttention",
    "Rotary",
    "RotaryAttention",
    "Sandwich",
    "ShortRelative",
    "Sinusoidal",
    "TableCoupling",
    "TransformerXL",
]
