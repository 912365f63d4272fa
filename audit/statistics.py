"""Statistics over seeds: the median with its interval, worst and best, and how a percentage is written."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

TOLERANCE = 1e-4  # percent; tables are saved with six digits
BAR = 0.99  # complete generalization: at least 99% at ten times the training length (claim C01)


def over_seeds(rows: pd.DataFrame) -> pd.DataFrame:
    """One row a task (with its base), model and length: the median seed with its interval, worst, best (percent)."""
    keys, summaries = [key for key in ("task", "base", "model", "length") if key in rows], []
    for values, group in rows.groupby(keys, sort=False):
        ordered = group.sort_values("accuracy")
        median = ordered.iloc[(len(ordered) - 1) // 2]
        shares = {"ours": median.accuracy, "worst": ordered.accuracy.iloc[0], "best": ordered.accuracy.iloc[-1]}
        shares |= {"ci_low": median.ci_low, "ci_high": median.ci_high}
        summary = dict(zip(keys, values, strict=True)) | {name: 100 * share for name, share in shares.items()}
        summary |= {"samples": int(median.samples), "seeds": len(group), "regime": median.regime}
        summaries.append(summary)
    return pd.DataFrame(summaries)


def medians(frame: pd.DataFrame) -> pd.Series:
    """Each row of `over_seeds` as `median (worst–best)`, the range only where the seeds differ."""
    ours, worst, best = (frame[name].map(percent) for name in ("ours", "worst", "best"))
    return ours + (" (" + worst + "–" + best + ")").where(worst != best, "")


def ends(values: Sequence[Any], between: str = " to ") -> str:
    """The first and the last of some values in order, or the only one."""
    return between.join(dict.fromkeys(map(str, [*values[:1], *values[-1:]])))


def percent(value: float, places: int = 1) -> str:
    """A percentage with so many decimal places, or more where it would be rounded to 0 or 100, which it is not."""
    is_between = min(value, 100 - value) > TOLERANCE
    texts = (f"{value:.{decimals}f}" for decimals in range(places, 9))
    return next(text for text in texts if not is_between or float(text) not in (0, 100))
