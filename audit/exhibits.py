"""What a notebook of the audit shows: figures and tables with captions from `data/captions.csv`, and verdicts."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import pandas as pd
from IPython.display import Markdown, display
from matplotlib.figure import Figure

from abc_nb.show import exhibits
from abc_nb.show.titles import model_title
from abc_nb.specs.experiment import Name
from audit import DATA, claims, frames, ledger, plots
from audit.results import Results
from audit.statistics import over_seeds
from audit.tables import beside_paper, setting, wide


def captions() -> dict[Hashable, str]:
    """Every caption in Markdown, by name."""
    return pd.read_csv(DATA / "captions.csv", index_col="name").caption.to_dict()


@dataclass(frozen=True)
class Exhibits:
    """The figures, tables and verdicts of one notebook, as `Exhibits("a5_certificates", "quick")`."""

    notebook: str
    profile: str

    def figure(self, name: str, figure: Figure) -> None:
        """Save a figure; show it and below it its caption."""
        exhibits.Exhibits(self.profile).figure(name, figure, captions()[name])

    def table(self, name: str, frame: pd.DataFrame, shown: pd.DataFrame | None = None, note: str = "") -> None:
        """Save a table; show its caption with a note, and `shown`, or all of it."""
        exhibits.Exhibits(self.profile).table(name, frame, captions()[name], shown, note)

    def beside_paper(
        self, name: str, rows: pd.DataFrame, paper: str, regime: str = "", models: Sequence[str] = ()
    ) -> None:
        """Evaluation rows next to a table of the paper (`table1`, `table3`); readers see `models`, or all."""
        frame = beside_paper(rows, paper)
        shown = frame[frame.model.isin([model_title(model) for model in models])] if models else frame
        self.table(name, frame, wide(shown), setting(self.profile, regime))

    def by_length(self, name: str, rows: pd.DataFrame, lengths: Sequence[int]) -> None:
        """Evaluation rows over seeds: a row per task and model, a column per length."""
        frame = over_seeds(rows[rows.length.isin(lengths)])
        self.table(name, frame, frames.by_length(frame))

    def curves(self, name: str, rows: pd.DataFrame) -> None:
        """Evaluation rows as curves over the length, a panel per model."""
        self.figure(name, plots.by_length(rows))

    def ledger(self, results: Results) -> None:
        """Judge the claims of this notebook and record the verdicts; show each with its runs and one sentence."""
        ids = [claim.id for claim in claims.paper_claims().values() if claim.notebook == self.notebook]
        book = ledger.record(claims.judge(results, ids), self.notebook, self.profile)
        lines = []
        for row in book.itertuples():
            verdict = f"**{row.id}, {row.verdict}**" + f" ({row.runs})" * bool(row.runs)
            lines.append(f"- {verdict}. The paper: *{row.claim}.* Here: {row.finding}")
        display(Markdown("\n".join(lines)))

    def provenance(self, results: Results, names: Sequence[str | Name]) -> None:
        """Where the results of these experiments come from, in one line."""
        display(Markdown(results.provenance(names)))
