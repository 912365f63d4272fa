"""Statistics over seeds: a median that some seed has, and the ends of a range."""

from collections.abc import Sequence
from typing import Any

import pandas as pd


def ends(values: Sequence[Any], between: str = " to ") -> str:
    """The first and the last of some values in order, or the one there is."""
    return between.join(dict.fromkeys(map(str, [*values[:1], *values[-1:]])))


def median_seed(values: pd.Series) -> float:
    """The median, of an even number the lower of the two in the middle: always what some seed has."""
    return float(values.quantile(0.5, interpolation="lower"))
