"""What README and the paper's tables state of single models, beside what was made here: the end of `reproduce`.

A statement counts test problems that are right, or models that are certified. It is compared with the shipped runs of
all seeds, since another processor ends a training with other weights, as another seed does.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np
import pandas as pd
from scipy.stats import fisher_exact, t

from abc_nb.analysis import certified
from abc_nb.common import paths
from abc_nb.common.files import write_text
from abc_nb.problems.tasks import Task
from abc_nb.runs import store
from abc_nb.show.titles import model_titles, task_title
from abc_nb.specs.experiment import Name
from abc_nb.specs.names import train_command
from abc_nb.specs.recipes import TABLE
from abc_nb.specs.spec import spec
from audit import DATA
from audit.ledger import ledger
from audit.report import LENGTHS, ROWS
from audit.results import Results
from audit.statistics import ends
from audit.studies import names_of

ALARM = 0.01  # chance that any count of the table differs where chance alone is at work
TABULATED = dict.fromkeys(("baselines", "scaffolds", "abc"), "a0_papers_tables")  # tables 1 to 3 of the paper
STATED = TABULATED | {  # studies that the report speaks of, and the notebooks that show them
    "practised": "07_every_length",
    "decoder-only": "a6_decoders_and_tables",
    "practised decoders": "09_models_people_use",
    "products": "08_products",
    "more tasks": "a2_lists_bases_factors",
    "sums of many": "a2_lists_bases_factors",
}
SHORT, LONG = sorted({*TABLE, *LENGTHS}), [20, 100, 1000]  # lengths; the latter of tasks whose output is a table
SAME, DIFFERS, OPEN = "same", "not same", "undecided"
COLUMNS = ["statement", "shipped", "made here", "verdict"]
Count = tuple[int, int]  # so many, of so many


@dataclass(frozen=True)
class Statement:
    """What shipped runs say, a count a seed or one in all, and what was made here says."""

    what: str
    shipped: Sequence[Count]
    here: Count
    advice: str  # what to do where it is not the same
    proven: bool = False  # whether it counts certified models, of those that were trained until they are

    def verdict(self, level: float) -> str:
        """Same or not, by `accepts`; undecided where every outcome would be the same."""
        right, samples = self.here
        if self.accepts(0, level) and self.accepts(samples, level):
            return OPEN
        return SAME if self.accepts(right, level) else DIFFERS

    def accepts(self, right: int, level: float) -> bool:
        """Whether such an outcome here would be the same: see `data/statements.md`."""
        samples, shipped = self.here[1], np.array(self.shipped)
        pooled, total = shipped.sum(axis=0)
        if self.proven:
            return bool(right == samples or pooled < total)
        table = np.array([[right, samples - right], [pooled, total - pooled]])
        if fisher_exact(table).pvalue >= level:
            return True
        shares, seeds = shipped[:, 0] / shipped[:, 1], len(shipped)
        if seeds == 1:
            return False
        half = t.ppf(1 - level / 2, seeds - 1) * shares.std(ddof=1) * sqrt(1 + 1 / seeds)
        return bool(abs(right / samples - shares.mean()) <= half)


def counts_in_words(counts: Sequence[Count]) -> str:
    """`981 to 1,000 of 1,000, 10 seeds`; in percent where seeds have other numbers of problems."""
    ordered = sorted(counts, key=lambda count: count[0] / count[1])
    if len({samples for _, samples in counts}) == 1:
        numbers, unit = [f"{right:,}" for right, _ in ordered], f" of {counts[0][1]:,}"
    else:
        numbers, unit = [f"{100 * right / samples:.1f}" for right, samples in ordered], "%"
    return ends(numbers) + unit + f", {len(counts)} seeds" * (len(counts) > 1)


def stated(profile: str) -> dict[Name, str]:
    """The experiments of which README or a table of the paper states something, with the notebook that shows them."""
    tabulated = names_of(*TABULATED, profile=profile)
    notebooks = {name: notebook for study, notebook in STATED.items() for name in names_of(study, profile=profile)}
    return {name: book for name, book in notebooks.items() if name in tabulated or name.model in (*ROWS, "abs")}


def statements(profile: str, seeds: Sequence[int]) -> list[Statement]:
    """What the shipped runs of a profile state of what was made here for these seeds."""
    all_seeds = sorted({record["seed"] for origin in store.ANYWHERE for record in store.records(origin)} | {*seeds})
    shipped, here = Results(profile, "shipped", all_seeds), Results(profile, "runs", seeds)
    names = stated(profile)
    titles = model_titles(name.model for name in names)
    tables = certified.certificates_table(shipped), certified.certificates_table(here)
    proven = [name for name in names if spec(name, profile).practice]
    return [*of_tests(names, titles, shipped, here), *of_certificates(list(names), proven, titles, *tables)]


def of_tests(names: dict[Name, str], titles: dict[str, str], shipped: Results, here: Results) -> Iterator[Statement]:
    """How many problems are right: a statement a model, length and seed."""
    for name, notebook in names.items():
        task, command = Task(name.task), train_command(name, max(here.seeds) + 1, here.profile)
        advice = f"read notebook {notebook}, and see whether another seed agrees: `{command}`"
        for length, seed, count in sorted(tests(here, name)):
            counts = [shipped_count for tested, _, shipped_count in tests(shipped, name) if tested == length]
            if counts and length in (LONG if task.table else SHORT):
                what = f"{titles[name.model]}, {task_title(name.task)}, {length} {task.unit}, seed {seed}"
                yield Statement(what, counts, count, advice)


def tests(results: Results, name: Name) -> list[tuple[int, int, Count]]:
    """Length, seed and right problems, of how many, of each test of an experiment's runs."""
    runs = [(run.seed, run.evaluation().to_dict("records")) for run in results.existing_runs([name])]
    return [(row["length"], seed, (row["correct"], row["samples"])) for seed, rows in runs for row in rows]


def of_certificates(
    names: Sequence[Name], proven: Sequence[Name], titles: dict[str, str], shipped: pd.DataFrame, here: pd.DataFrame
) -> Iterator[Statement]:
    """How many models are certified, of shipped tables and those made here.

    Each task alone of models that were trained until `proven`, else all together.
    """
    groups = {f"{titles[name.model]}, {task_title(name.task)}, certified where tried": [name] for name in proven}
    for name in [name for name in names if name not in proven]:
        groups.setdefault(f"{titles[name.model]}, all tasks, certified where tried", []).append(name)
    for what, group in groups.items():
        theirs, ours = (table[table.experiment.isin([*map(str, group)])] for table in (shipped, here))
        advice = [
            f"`abc-nb certify {row.experiment} --seed {row.seed}` names what is wrong, in {row.wrong:,} of "
            f"{row.contexts:,} contexts"
            for row in ours[~ours.certified.astype(bool)].itertuples()
        ]
        if len(theirs) and len(ours):
            total, count = ((int(table.certified.sum()), len(table)) for table in (theirs, ours))
            yield Statement(what, [total], count, "; ".join(advice), proven=group[0] in proven)


def report(profile: str, seeds: Sequence[int]) -> tuple[str, bool]:
    """The table of what was made here, which is written beside the figures, and whether all of it is the same."""
    stated_here = statements(profile, seeds)
    count = sum(not statement.proven for statement in stated_here)
    level = ALARM / max(1, count)
    rows = [(s.what, counts_in_words(s.shipped), counts_in_words([s.here]), s.verdict(level)) for s in stated_here]
    frame = pd.DataFrame(rows, columns=COLUMNS)
    number = frame.verdict.value_counts().reindex([SAME, DIFFERS, OPEN], fill_value=0)
    template = (DATA / "statements.md").read_text(encoding="utf-8").rstrip()
    text = template.format(
        table=frame.to_markdown(index=False, disable_numparse=True),
        alarm=ALARM,
        count=count,
        verdicts=verdicts(profile),
        same=number[SAME],
        decided=number[SAME] + number[DIFFERS],
        undecided=number[OPEN],
    )
    advice = [f"- {s.what}: {s.advice}" for s in stated_here if s.verdict(level) == DIFFERS]
    text += "\n\nWhat to do where one was not:\n\n" * bool(advice) + "\n".join(advice)
    folder = paths.figures(profile)
    write_text(folder / "statements.csv", frame.to_csv(index=False))
    write_text(folder / "statements.md", text + "\n")
    return text, not advice


def verdicts(profile: str) -> str:
    """How many verdicts on the paper's claims are those that are committed, in a sentence that names the others."""
    committed = pd.read_csv(paths.HOME / "figures" / "claims.csv", dtype=str).set_index("id").verdict.to_dict()
    book = ledger(profile).set_index("id").verdict.to_dict()
    changes = [f"{id} was {committed.get(id)} and is {now}" for id, now in book.items() if committed.get(id) != now]
    text = f"{len(book) - len(changes)} of {len(book)} verdicts on the paper's claims are those in figures/claims.csv"
    return "; ".join([text, *changes]) + "."
