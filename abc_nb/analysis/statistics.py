"""Statistics over seeds: a median that some seed has, the ends of a range, and how a percentage is written."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

TOLERANCE = 1e-4  # percent; tables are saved with six digits


def ends(values: Sequence[Any], between: str = " to ") -> str:
    """The first and the last of some values in order, or the one there is."""
    return between.join(dict.fromkeys(map(str, [*values[:1], *values[-1:]])))


def median_seed(values: pd.Series) -> float:
    """The median, of an even number the lower of the two in the middle: always what some seed has."""
    return float(values.quantile(0.5, interpolation="lower"))


def percent(value: float, places: int = 1) -> str:
    """So many decimal places; more where these would make it all or nothing, which it is not."""
    some = min(value, 100 - value) > TOLERANCE
    texts = (f"{value:.{number}f}" for number in range(places, 9))
    return next(text for text in texts if not some or float(text) not in (0, 100))
