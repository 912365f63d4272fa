"""Statistics over seeds: the median with its interval, worst and best, and how a percentage is written."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

TOLERANCE = 1e-4  # percent; tables are saved with six digits
BAR = 0.99  # complete generalization: at least 99% at ten times the training length (claim C01)


def over_seeds(rows: pd.DataFrame) -> pd.DataFrame:
    """One row a task (with its base), model and length: the median seed with its interval, worst, best (percent)."""
    keys, found = [key for key in ("task", "base", "model", "length") if key in rows], []
    for values, group in rows.groupby(keys, sort=False):
        ordered = group.sort_values("accuracy")
        middle = ordered.iloc[(len(ordered) - 1) // 2]
        shares = {"ours": middle.accuracy, "worst": ordered.accuracy.iloc[0], "best": ordered.accuracy.iloc[-1]}
        shares |= {"ci_low": middle.ci_low, "ci_high": middle.ci_high}
        head = dict(zip(keys, values, strict=True))
        tail = {"samples": int(middle.samples), "seeds": len(group), "regime": middle.regime}
        found.append(head | {name: 100 * value for name, value in shares.items()} | tail)
    return pd.DataFrame(found)


def medians(frame: pd.DataFrame) -> pd.Series:
    """Each row of `over_seeds` as `median (worst–best)`, the range only where the seeds differ."""
    ours, worst, best = (frame[name].map(percent) for name in ("ours", "worst", "best"))
    return ours + (" (" + worst + "–" + best + ")").where(worst != best, "")


def ends(values: Sequence[Any], between: str = " to ") -> str:
    """The first and the last of some values in order, or the one there is."""
    return between.join(dict.fromkeys(map(str, [*values[:1], *values[-1:]])))


def percent(value: float, places: int = 1) -> str:
    """So many decimal places; more where these would make it all or nothing, which it is not."""
    some = min(value, 100 - value) > TOLERANCE
    texts = (f"{value:.{number}f}" for number in range(places, 9))
    return next(text for text in texts if not some or float(text) not in (0, 100))
