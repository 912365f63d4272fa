"""How lines are read out of attention: this package's way, the paper's Algorithm 1, and the authors' script."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isfinite
from typing import Literal

from abc_nb.bias.lines import DIRECTIONS, Direction
from abc_nb.common.config import check_fields
from abc_nb.common.errors import InputError

SHARE = 0.2  # where attention alone is given, and no model to choose a threshold with


@dataclass(frozen=True)
class Calibration:
    """How lines are read out of attention; by default this package's way.

    Every layer's own attention, lines anchored at operands, only those that mean the same at any length, strongest
    first.
    """

    source: Literal["weights", "logits"] = "weights"  # what is averaged, and so the unit of a line's value
    layers: Literal["each", "last"] = "each"  # whose attention a layer is biased with
    anchor: Literal["operands", "whole"] = "operands"  # what lines run over
    directions: tuple[Direction, ...] = DIRECTIONS
    share: float | None = None  # of its head's attention; None: `SHARE`, where a model is asked chosen by `keep`
    keep: float = 2 / 3  # of the model's digits that must survive when all keys off the lines are closed
    kappa: tuple[float, float] | None = None  # threshold in deviations (cross, self) instead of the share
    pooled: bool = False  # mean and deviation of all lines together, not of each direction
    script: bool = False  # as the authors' script has Algorithm 1: rows of digits, one direction, sums (see SCRIPT)
    floor: float | None = None  # bias off the lines; None: minus infinity
    empty: Literal["transparent", "closed"] = "closed"  # a head without any line

    @property
    def padding(self) -> bool:
        """Whether attention is averaged over rows of padding too, as the text has it."""
        return self.anchor == "whole" and not self.script

    def __post_init__(self) -> None:
        known = isinstance(self.directions, tuple) and all(direction in DIRECTIONS for direction in self.directions)
        if not known or not self.directions:
            raise InputError(f"a calibration has a tuple of directions, some of {', '.join(DIRECTIONS)}")
        check_fields(self)
        for name, possible, wanted in (
            ("share", self.share is None or 0 < self.share <= 1, "a part of a head's attention, as in 0.2"),
            ("keep", 0 < self.keep <= 1, "a part of the model's digits, as in 0.67"),
            ("kappa", self.kappa is None or all(map(isfinite, self.kappa)), "two deviations, as in (4.5, 0.87)"),
            ("kappa", self.kappa is None or self.share is None, "a kappa or a share, which are two thresholds"),
            ("kappa", self.kappa is not None or not self.script, "the deviations that the authors' script wants"),
            ("floor", self.floor is None or self.floor < 0, "a negative number, as in -10.0, or None"),
        ):
            if not possible:
                raise InputError(f"a calibration cannot have {name}={getattr(self, name)}: give {wanted}")


# Algorithm 1 (v4 appendix F): one matrix, every line, a threshold of kappa standard deviations, the last layer's lines
# for all layers. Mean, deviation and maximum are those of one direction, as in the authors' code; `pooled` takes those
# of all lines, as the text has it. Keys off every line are closed, as in the text; the pseudo-code leaves them at 0.
PAPER = Calibration(layers="last", anchor="whole", kappa=(4.5, 0.87), empty="transparent")
# The authors' script looks at the rows of real digits, along one direction (the diagonal in self-attention, the
# anti-diagonal in cross-attention). A line's value is the sum of its cells; the threshold is that of the sums that are
# not zero. A step that no line reaches sees every key.
SCRIPT = replace(PAPER, script=True, floor=-1e6)


def given(settings: Calibration | None) -> Calibration:
    """The settings, or this package's if there are none; InputError for anything else."""
    if not isinstance(settings, Calibration | None):
        raise InputError(f"{settings!r} is no calibration: give one, as in Calibration(share=0.3)")
    return settings or Calibration()
