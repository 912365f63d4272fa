"""What a notebook shows: each call numbers a figure or a table, puts its caption with it, shows and saves it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from IPython.display import HTML, Markdown, display
from matplotlib.figure import Figure

from abc_nb.analysis import claims
from abc_nb.analysis.claims import Verdict
from abc_nb.analysis.results import Results
from abc_nb.analysis.statistics import over_seeds
from abc_nb.common.errors import InputError
from abc_nb.experiments import Name
from abc_nb.show import captions, maps, pictures, tables
from abc_nb.show.titles import of_model


@dataclass(frozen=True)
class Exhibits:
    """The figures, tables and verdicts of one notebook, as `Exhibits("07_every_length", "quick")`.

    Names say the number (see `captions.label`), `data/captions.csv` has the captions. InputError for a name without
    a caption, or with the number of another notebook.
    """

    notebook: str
    profile: str

    def caption(self, name: str) -> str:
        """Number and caption in Markdown."""
        own, found = self.notebook.partition("_")[0].lstrip("0") or "0", captions.notebook_number(name)
        if found not in ("", own):
            raise InputError(f"{name} is numbered as one of notebook {found}: here names begin with {own}-")
        return captions.full(name)

    def figure(self, name: str, figure: Figure) -> None:
        """Save a figure as PNG and SVG; show it and below it its caption."""
        caption = self.caption(name)
        display(pictures.save(figure, name, self.profile), Markdown(caption))

    def table(self, name: str, frame: pd.DataFrame, shown: pd.DataFrame | None = None, note: str = "") -> None:
        """Save a table as CSV, Markdown and LaTeX; show its caption and below it what is for reading.

        `shown` is for readers, where that is not `frame` itself. A note, such as the setting, follows the caption.
        """
        caption = f"{self.caption(name)} {note}".strip()
        tables.save(frame, name, self.profile, shown, caption, note)
        display(Markdown(caption), HTML(tables.html(frame if shown is None else shown)))

    def beside_paper(
        self, name: str, rows: pd.DataFrame, paper: str, regime: str = "", models: Sequence[str] = ()
    ) -> None:
        """Evaluation rows next to a table of the paper (`table1`, `table3`); readers see `models`, or all."""
        frame = tables.beside_paper(rows, paper)
        shown = frame[frame.model.isin([of_model(model) for model in models])] if models else frame
        self.table(name, frame, tables.wide(shown), tables.setting(self.profile, regime))

    def by_length(self, name: str, rows: pd.DataFrame, lengths: Sequence[int]) -> None:
        """Evaluation rows over seeds: a row a task and model, a column a length."""
        frame = over_seeds(rows[rows.length.isin(lengths)])
        self.table(name, frame, tables.by_length(frame))

    def heat_map(self, name: str, rows: pd.DataFrame, lengths: Sequence[int]) -> None:
        """Evaluation rows over seeds as a picture: methods down, lengths across, a panel a task."""
        frame = over_seeds(rows[rows.length.isin(lengths)])
        self.figure(name, maps.accuracy_map(frame, list(dict.fromkeys(frame.model))))

    def ledger(self, verdicts: Sequence[Verdict]) -> None:
        """Record verdicts in the profile's ledger; show claim, verdict, the runs that met it and one sentence."""
        found = claims.record(list(verdicts), self.notebook, self.profile)
        display(Markdown("\n".join(line_of(row) for row in found.itertuples())))

    def provenance(self, found: Results, names: Sequence[str | Name]) -> None:
        """Where the results of these experiments come from, in one line."""
        display(Markdown(found.provenance(names)))


def line_of(row: Any) -> str:
    """A claim of the ledger as one line of a list."""
    met = f" ({row.runs})" if row.runs else ""
    return f"- **{row.id}, {row.verdict}**{met}. The paper: *{row.claim}.* Here: {row.finding}"
