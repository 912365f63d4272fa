"""The ledger: every claim of the paper with the verdict that a notebook recorded last, in `claims.csv`."""

from collections.abc import Sequence

import pandas as pd
from filelock import FileLock

from abc_nb.common import paths
from abc_nb.common.files import write_text
from abc_nb.specs.recipes import PROFILES
from audit.claims import Verdict, paper_claims

METHODS = ("abs", "abc", "positions")  # topics of claims on what ABS, ABC and Algorithm 1 do
CLAIM = ["id", "topic", "claim", "criterion"]
COLUMNS = ["verdict", "finding", "runs", "seeds", "reading", "regime", "size", "notebook"]


def ledger(profile: str) -> pd.DataFrame:
    """Every claim with its verdict so far: id, topic, claim, criterion, and what `Verdict` has."""
    claims = pd.DataFrame(paper_claims().values())[CLAIM].set_index("id", drop=False)
    claims = claims.assign(**dict.fromkeys(COLUMNS, "")).assign(verdict="not run")
    path = paths.figures(profile) / "claims.csv"
    if path.exists():
        claims.update(pd.read_csv(path, dtype=str, keep_default_na=False).set_index("id")[COLUMNS])
    return claims.reset_index(drop=True)


def record(verdicts: Sequence[Verdict], notebook: str, profile: str) -> pd.DataFrame:
    """Put verdicts into the profile's ledger, replacing earlier ones; returns their rows of the ledger."""
    path = paths.figures(profile) / "claims.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.parent / ".claims.lock"):
        book = ledger(profile).set_index("id", drop=False)
        for verdict in verdicts:
            row = verdict._asdict() | {"notebook": notebook, "size": verdict.size or usual_size(profile)}
            book.loc[verdict.id, COLUMNS] = [row[column] for column in COLUMNS]
        write_text(path, book.to_csv(index=False))
    return book.loc[[verdict.id for verdict in verdicts]]


def usual_size(profile: str) -> str:
    """The size of a profile's models, in words."""
    size = PROFILES[profile].size
    return f"{size.encoder_layers} encoder and {size.decoder_layers} decoder layers, embedding size {size.width}"


def unlike_the_paper(book: pd.DataFrame) -> pd.DataFrame:
    """The claims that differ, and those on the paper's methods that hold in part or are undecided."""
    in_part = book.topic.isin(METHODS) & book.verdict.isin(["in part", "undecided"])
    return book[(book.verdict == "differs") | in_part]
