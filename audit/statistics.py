"""Accuracies over seeds: the median with its interval, worst and best, and how a percentage is written."""

import pandas as pd

BAR = 0.99  # complete generalization: at least 99% at ten times the training length (claim C01)
TOLERANCE = 1e-4  # percent; tables are saved with six digits


def over_seeds(rows: pd.DataFrame) -> pd.DataFrame:
    """One row a task (with its base), model and length: the median seed with its interval, worst, best (percent)."""
    keys, found = [key for key in ("task", "base", "model", "length") if key in rows], []
    for values, group in rows.groupby(keys, sort=False):
        ordered = group.sort_values("accuracy")
        middle = ordered.iloc[(len(ordered) - 1) // 2]
        percent = {"ours": middle.accuracy, "worst": ordered.accuracy.iloc[0], "best": ordered.accuracy.iloc[-1]}
        percent |= {"ci_low": middle.ci_low, "ci_high": middle.ci_high}
        head = dict(zip(keys, values, strict=True))
        tail = {"samples": int(middle.samples), "seeds": len(group), "regime": middle.regime}
        found.append(head | {name: 100 * value for name, value in percent.items()} | tail)
    return pd.DataFrame(found)


def percent(value: float) -> str:
    """One decimal place; two where one would make it all or nothing, which it is not."""
    text = f"{value:.1f}"
    return f"{value:.2f}" if text in ("0.0", "100.0") and min(value, 100 - value) > TOLERANCE else text


def medians(frame: pd.DataFrame) -> pd.Series:
    """Each row of `over_seeds` as `median (worst–best)`, the range only where the seeds differ."""
    ours, worst, best = (frame[name].map(percent) for name in ("ours", "worst", "best"))
    return ours + (" (" + worst + "–" + best + ")").where(worst != best, "")
