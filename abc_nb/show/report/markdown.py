"""The report as Markdown: the picture and the files are links to what lies next to it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from abc_nb.show.report.content import ABOUT, HEADLINE, Claim, Report


def render(report: Report) -> str:
    counts = ", ".join(f"{verdict} {count}" for verdict, count in report.counts.items())
    blocks = [f"# Arithmetic that holds at any length: report of the profile {report.profile}", ABOUT]
    blocks += [f"Profile {report.profile}: {report.purpose}. `abc-nb report` writes the same as one HTML file."]
    if report.picture:
        blocks += [f"![Accuracy by length]({HEADLINE}.png)", report.caption]
    if report.rows:
        blocks += ["## How far does each method hold?", "The worst run over tasks and seeds, percent right."]
        blocks += [grid(report.head, report.rows)]
    if report.differing:
        blocks += ["## What did not reproduce", "\n".join(map(sentence, report.differing))]
    blocks += ["## The paper's claims", f"Verdicts on {len(report.ledger)} claims: {counts}. {report.setting}"]
    blocks += [ledger(report)]
    blocks += ["## Where it comes from", "\n".join(f"- [{title}]({link})" for title, link in report.notebooks)]
    blocks += ["\n".join(f"- {name}: {escape(text)}" for name, text in report.facts.items())]
    blocks += ["Every run, a line each: [runs.csv](runs.csv)."] if len(report.runs) else []
    return "\n\n".join(blocks) + "\n"


def sentence(claim: Claim) -> str:
    """A claim that did not come out as the paper says, as a line of a list."""
    counted = f" ({claim.runs})" if claim.runs else ""
    return f"- {claim.id}, {claim.verdict}{counted}. The paper: {escape(claim.claim)}. Here: {escape(claim.finding)}"


def ledger(report: Report) -> str:
    head = ("claim", "the paper says", "verdict", "runs", "notebook")
    rows = []
    for claim in report.ledger:
        texts = [*map(escape, (claim.id, claim.claim, claim.verdict, claim.runs))]
        rows.append([*texts, f"[{claim.notebook}]({claim.link})" if claim.link else ""])
    return "\n".join([line(head), line(["---"] * len(head)), *map(line, rows)])


def grid(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join([line(map(escape, head)), line(["---"] * len(head)), *(line(map(escape, row)) for row in rows)])


def line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def escape(text: str) -> str:
    """Text of a cell, with all that has a meaning in Markdown escaped."""
    return re.sub(r"([\\|$*_<`\[\]])", r"\\\1", text)
