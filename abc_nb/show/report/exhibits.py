"""What the notebooks show, read from them: titles, first paragraphs, names of figures and tables."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

from abc_nb.show import captions, notebooks

NAME = re.compile(r'"((?:figure|table)-[\w-]+)"')
INTRO = re.compile(r"\*\*What this notebook shows\.\*\*\s+(.+)")
LINK = re.compile(r"\[([^\]]+)\]\([^)]+\)")  # only its text is of use outside the notebook


@dataclass(frozen=True)
class Exhibit:
    """A figure or a table: the name of its files, and number and caption in Markdown (empty if there is none)."""

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
    known = captions.known()
    return [chapter(path, known) for path in notebooks.sequence()]


def chapter(path: Path, known: dict[str, str]) -> Chapter:
    """Read one notebook; `known` are the captions, by name."""
    cells = [(cell["cell_type"], "".join(cell["source"])) for cell in json.loads(path.read_text())["cells"]]
    names = [name for kind, source in cells if kind == "code" for name in NAME.findall(source)]
    first = cells[0][1] if cells else ""
    title = first.partition("\n")[0].lstrip("# ") or path.stem
    intro = INTRO.search(first)
    exhibits = tuple(Exhibit(name, captions.full(name) if name in known else "") for name in dict.fromkeys(names))
    return Chapter(path, title, LINK.sub(r"\1", intro[1]) if intro else "", exhibits)
