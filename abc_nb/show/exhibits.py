"""What a notebook shows: a figure or a table with its number and caption, saved and displayed."""

import re
from base64 import b64encode
from dataclasses import dataclass

import pandas as pd
from IPython.display import HTML, Markdown, display
from matplotlib.figure import Figure

from abc_nb.common import paths
from abc_nb.common.errors import InputError
from abc_nb.show import pictures, tables

OURS = re.compile(r"(figure|table)-(a?\d+)-(\d+)-[a-z][\w-]*")  # notebook, place in its reading order
PAPERS = re.compile(r"(figure|table)-(\d+)")


def numbered(name: str, caption: str) -> str:
    """Number and caption in Markdown; InputError for a name from which no number follows.

    `figure-7-1-reach` is `Figure 7.1`, `table-a1-2-x` is `Table A1.2`, and `table-1` is `Table 1 of the paper`.
    """
    if match := OURS.fullmatch(name):
        number = f"{match[2].upper()}.{match[3]}"
    elif match := PAPERS.fullmatch(name):
        number = f"{match[2]} of the paper"
    else:
        raise InputError(f"no number follows from the name {name!r}: give one such as figure-7-1-reach")
    return f"**{match[1].capitalize()} {number}.** {caption}"


def scene(name: str, height: int) -> HTML:
    """One scene of the project's page (`type`, `draw` or `cone`), alive without a kernel; `height` is in pixels.

    The page shows one scene alone in a frame that has its name. A viewer that runs no scripts shows no frames either,
    so there a picture stays, which a script takes away elsewhere.
    """
    picture = b64encode((paths.ROOT / "docs" / "scenes" / f"{name}.png").read_bytes()).decode()
    still = f'<img id="still-{name}" src="data:image/png;base64,{picture}" width="100%">'
    frame = f'<iframe name="{name}" src="../docs/index.html" width="100%" height="{height}" frameborder="0"></iframe>'
    return HTML(f'<div>{still}{frame}</div><script>document.getElementById("still-{name}").remove()</script>')


@dataclass(frozen=True)
class Exhibits:
    """The figures and tables of one notebook in a profile."""

    profile: str

    def figure(self, name: str, figure: Figure, caption: str) -> None:
        """Save a figure as PNG and SVG; show it and below it its caption."""
        numbered_caption = Markdown(numbered(name, caption))
        display(pictures.save_figure(figure, name, self.profile), numbered_caption)

    def table(
        self, name: str, frame: pd.DataFrame, caption: str, shown: pd.DataFrame | None = None, note: str = ""
    ) -> None:
        """Save a table as CSV, Markdown and LaTeX; show its caption with a note, and `shown`, or all of it."""
        text = f"{numbered(name, caption)} {note}".strip()
        tables.save_table(frame, name, self.profile, shown, text, note)
        display(Markdown(text), HTML(tables.html(frame if shown is None else shown)))
