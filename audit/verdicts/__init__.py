"""The verdicts on the paper's claims: a small function for each, named by the claim's id and what it counts."""

from collections.abc import Callable, Sequence
from functools import cache

import pandas as pd

from audit.claims import RUN, Judgement, Verdict, known
from audit.measures import measured
from audit.results import Results
from audit.verdicts import calibration, plain, scaffolds

JUDGES: dict[str, Callable[..., Judgement]] = {  # by id
    name[:3].upper(): function
    for module in (plain, scaffolds, calibration)
    for name, function in vars(module).items()
    if name[:1] == "c" and name[1:3].isdigit()
}


def judge(results: Results, ids: Sequence[str]) -> list[Verdict]:
    """The verdicts on some claims, from the results that are there."""

    @cache
    def read_one(rows: str) -> pd.DataFrame:
        return measured(results, rows)

    def read(*rows: str) -> pd.DataFrame:
        """The rows of some studies or measures, a run once."""
        return pd.concat([read_one(each) for each in rows]).drop_duplicates(RUN, ignore_index=True)

    claims = known()
    return [JUDGES[id](read).of(claims[id]) for id in ids]
