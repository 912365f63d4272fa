"""The report as Markdown: pictures and files are links to what lies beside it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from abc_nb.show.report.comparison import FOLDED, HIGHER, LOWER, Cell, Comparison, Plain
from abc_nb.show.report.content import Item, Report, Section

LEGEND = (
    f"Paper / ours (–: the paper has no number); {HIGHER}: ours is higher than the paper's number by more than our 95% "
    f"interval, {LOWER}: lower, neither: it lies within."
)
RANGE = "In brackets: the worst and the best seed, where they differ."


def render(report: Report) -> str:
    counts = ", ".join(f"{verdict} {count}" for verdict, count in report.counts.items())
    blocks = [f"# Arithmetic that holds at any length: report of the profile {report.profile}"]
    blocks += report.about
    blocks += [f"{report.purpose.capitalize()}. `abc-nb report` writes it as one page that can be mailed, too."]
    blocks += [picture(report.headline)] if report.headline else []
    blocks += [
        f"Verdicts on the paper's {len(report.ledger)} claims: {counts}. {report.setting}",
        "## The ledger of claims",
    ]
    blocks += [ledger(report)]
    for section in report.sections:
        blocks += section_blocks(section, report.headline)
    blocks += ["## The runs behind it", "\n".join(f"- {name}: {escape(text)}" for name, text in report.facts.items())]
    blocks += [plain(report.runs)] if report.runs.rows else []
    return "\n\n".join(blocks) + "\n"


def section_blocks(section: Section, headline: Item | None) -> Iterator[str]:
    yield f"## {section.title}"
    pointer = f"[Notebook {section.anchor}]({section.link})." if section.link else ""
    if opening := f"{section.intro} {pointer}".strip():
        yield opening
    for item in section.items:
        if item.table:
            yield table(item, item.table)
        elif item != headline:
            yield picture(item)
    if section.missing:
        yield f"Not found in this profile: {', '.join(section.missing)}."


def picture(item: Item) -> str:
    return f"![{item.name}]({item.name}.png)\n\n*{item.caption}*"


def table(item: Item, content: Comparison | Plain) -> str:
    caption = f"{item.caption} ([{item.name}.csv]({item.name}.csv))"
    if isinstance(content, Plain):
        return "\n\n".join(filter(None, [caption, plain(content), content.note]))
    notes = [content.note, LEGEND if content.has_paper else "", RANGE if content.has_range else ""]
    return f"{caption}\n\n{beside(content)}\n\n{' '.join(filter(None, notes))}"


def plain(content: Plain) -> str:
    """The table; a long one is opened by a click."""
    shown = grid(content.head, content.rows)
    if len(content.rows) <= FOLDED:
        return shown
    return f"<details><summary>{len(content.rows):,} rows</summary>\n\n{shown}\n\n</details>"


def beside(content: Comparison) -> str:
    """A row a task and model, a column a length."""
    rows = [
        (task, model, *(accuracy(cell, content.has_paper) for cell in cells))
        for task, models in content.groups
        for model, cells in models
    ]
    return grid(("task", "model", *content.headings), rows)


def accuracy(cell: Cell | None, has_paper: bool) -> str:
    if cell is None:
        return ""
    paper = f"{cell.paper or '–'} / " if has_paper else ""
    return f"{paper}{cell.ours} {cell.mark}".rstrip()


def ledger(report: Report) -> str:
    head = ("claim", "the paper says", "verdict", "runs", "found here", "reading and setting", "notebook")
    rows = []
    for claim in report.ledger:
        texts = (claim.id, claim.claim, claim.verdict, claim.runs, claim.finding, claim.reading)
        rows.append([*map(escape, texts), f"[{claim.notebook}]({claim.link})" if claim.link else ""])
    return "\n".join([line(head), line(["---"] * len(head)), *map(line, rows)])


def grid(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join([line(map(escape, head)), line(["---"] * len(head)), *(line(map(escape, row)) for row in rows)])


def line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def escape(text: str) -> str:
    """Text of a cell, with all that has a meaning in Markdown escaped."""
    return re.sub(r"([\\|$*_<`\[\]])", r"\\\1", text)
