"""Tables: frames for reading, and files for print."""

import pandas as pd

from abc_nb.common import paths
from abc_nb.common.files import write_text
from abc_nb.show.titles import with_titles

ABOUT = ("task", "base", "model", "method", "seed", "length")  # columns that say what a row is about


def save_table(
    frame: pd.DataFrame, name: str, profile: str, shown: pd.DataFrame | None = None, caption: str = "", note: str = ""
) -> None:
    """Write `frame` as CSV, and `shown` or else the same as Markdown and LaTeX; what a row is about comes first.

    The caption stands below the table in Markdown and LaTeX, the note in a column of the CSV file.
    """
    path, frame = paths.figures(profile) / name, flat(frame)
    frame = frame.assign(setting=note) if note else frame
    frame = frame[[*(key for key in ABOUT if key in frame), *(column for column in frame if column not in ABOUT)]]
    write_text(path.with_suffix(".csv"), frame.to_csv(index=False, float_format="%.6g"))
    shown = readable(with_titles(frame if shown is None else flat(shown)).rename_axis(columns=None))
    escaped = shown.map(lambda cell: cell.replace("|", "\\|") if isinstance(cell, str) else cell)
    markdown = escaped.to_markdown(index=False, disable_numparse=True)
    write_text(path.with_suffix(".md"), f"{markdown}\n" + (caption and f"\n{caption}\n"))
    plain_caption = caption.replace("*", "").replace("`", "")
    write_text(path.with_suffix(".tex"), shown.to_latex(index=False, escape=True, caption=plain_caption or None))


def html(frame: pd.DataFrame) -> str:
    """A table for a notebook: titles for names, four digits of a number, an index only where it has a name."""
    shown, has_names = readable(with_titles(flat(frame))), frame.index.names[0] is not None
    shown = shown.set_index([*frame.index.names]) if has_names else shown
    return shown.to_html(border=0, index=has_names)


def readable(frame: pd.DataFrame) -> pd.DataFrame:
    """Every number as text: thousands separated, four digits of a fraction; empty where there is none."""
    return frame.map(number_in_words).rename(columns=number_in_words)


def number_in_words(cell: object) -> object:
    """A number as people write it; anything else as it is."""
    if cell is None or cell != cell:
        return ""
    if isinstance(cell, bool) or not isinstance(cell, int | float):
        return cell
    return f"{cell:,.0f}" if isinstance(cell, int) or abs(cell) >= 1000 else f"{cell:.4g}"


def flat(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with its index as columns, where that has a name."""
    return frame.reset_index() if frame.index.names[0] is not None else frame
