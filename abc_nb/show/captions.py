"""Numbers and captions of figures and tables: the number follows from the name, the caption stands in one file."""

from __future__ import annotations

import csv
import re

from abc_nb.common import paths
from abc_nb.common.errors import InputError

OURS = re.compile(r"(figure|table)-(a?\d+)-(\d+)-[a-z][\w-]*")  # notebook, place in its reading order
PAPERS = re.compile(r"(figure|table)-0?(\d+)(?:-[a-z][\w-]*)?")
LAST = {"figure": 12, "table": 3}  # of the paper's


def known() -> dict[str, str]:
    """Every caption in Markdown, by name, as `data/captions.csv` has them."""
    with (paths.DATA / "captions.csv").open(newline="") as lines:
        return {row["name"]: row["caption"] for row in csv.DictReader(lines)}


def label(name: str) -> str:
    """`figure-7-1-reach` is `Figure 7.1`, `table-a1-2-x` is `Table A1.2`, `figure-04-x` is `Figure 4 of the paper`.

    InputError for a name that has no number.
    """
    if ours := OURS.fullmatch(name):
        return f"{ours[1].capitalize()} {ours[2].upper()}.{ours[3]}"
    if (papers := PAPERS.fullmatch(name)) and int(papers[2]) <= LAST[papers[1]]:
        return f"{papers[1].capitalize()} {papers[2]} of the paper"
    raise InputError(f"{name} has no number: call it figure-7-1-reach, or figure-04-lengths if the paper has it")


def notebook_number(name: str) -> str:
    """Which notebook one of our numbers belongs to, as in `7` or `a1`; empty for one of the paper's."""
    ours = OURS.fullmatch(name)
    return ours[2] if ours else ""


def full(name: str) -> str:
    """Number and caption in Markdown. InputError where one of them is missing."""
    number, captions = label(name), known()
    if name not in captions:
        raise InputError(f"{name} has no caption: add a line to abc_nb/data/captions.csv")
    return f"**{number}.** {captions[name]}"
