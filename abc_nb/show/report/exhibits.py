"""What the notebooks save, with captions: each is written once, where its figure or table is made.

A figure's caption is the paragraph in italics below the cell that saves it. A table has none there; its
line in `data/table_captions.csv` is its caption.
"""

from __future__ import annotations

import csv
import json
import re
from dataclasses import dataclass
from pathlib import Path

from abc_nb.common import paths
from abc_nb.show import notebooks

NAME = re.compile(r'"((?:figure|table)-[\w-]+)"')
INTRO = re.compile(r"\*\*What this notebook shows\.\*\*\s+(.+)")
LINK = re.compile(r"\[([^\]]+)\]\([^)]+\)")  # only its text is of use outside the notebook


@dataclass(frozen=True)
class Exhibit:
    """A figure or a table: the name of its files, and its caption in Markdown (empty if there is none)."""

    name: str
    caption: str


@dataclass(frozen=True)
class Chapter:
    """What a notebook is about and what it saves."""

    notebook: Path
    title: str
    intro: str
    exhibits: tuple[Exhibit, ...]


def chapters() -> list[Chapter]:
    """The notebooks in the order of the story."""
    captions = table_captions()
    return [chapter(path, captions) for path in notebooks.sequence()]


def chapter(path: Path, captions: dict[str, str]) -> Chapter:
    """Read one notebook; `captions` are those of tables, by name."""
    cells = [(cell["cell_type"], "".join(cell["source"])) for cell in json.loads(path.read_text())["cells"]]
    found: dict[str, str] = {}
    for (kind, source), (_, below) in zip(cells, [*cells[1:], ("", "")], strict=True):
        for name in NAME.findall(source) if kind == "code" else []:
            found.setdefault(name, italics(below) if name.startswith("figure") else captions.get(name, ""))
    first = cells[0][1] if cells else ""
    title = first.partition("\n")[0].lstrip("# ") or path.stem
    intro = INTRO.search(first)
    exhibits = tuple(Exhibit(name, caption) for name, caption in found.items())
    return Chapter(path, title, LINK.sub(r"\1", intro[1]) if intro else "", exhibits)


def italics(text: str) -> str:
    """The first paragraph without its asterisks, or nothing if it is not in italics."""
    first = text.partition("\n\n")[0].strip()
    return LINK.sub(r"\1", first[1:-1]) if re.fullmatch(r"\*[^*].*[^*]\*", first, re.DOTALL) else ""


def table_captions() -> dict[str, str]:
    with (paths.DATA / "table_captions.csv").open(newline="") as lines:
        return {row["name"]: row["caption"] for row in csv.DictReader(lines)}
