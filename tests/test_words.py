"""Numbers in the text of the README and of the notebooks are those of the tables and the shipped runs."""

from __future__ import annotations

from collections.abc import Iterator

import nbformat
import pandas as pd
import pytest

from abc_nb import paths, store
from abc_nb.catalogue import MODERN
from abc_nb.experiments import SEEDS, experiment


def table(name: str) -> pd.DataFrame:
    return pd.read_csv(paths.figures("quick") / f"{name}.csv")


def ours(name: str, task: str, model: str, length: int) -> float:
    """The median seed's percentage in a table."""
    rows = table(name)
    (found,) = rows[(rows.task == task) & (rows.model == model) & (rows.length == length)].ours
    return float(found)


def accuracies(name: str, length: int) -> list[float]:
    """Percent at a length, of every shipped seed."""
    runs = [store.find(experiment(name), seed, ("shipped",)) for seed in SEEDS]
    frames = [run.evaluation().set_index("length") for run in runs if run is not None]
    return [100 * float(frame.accuracy[length]) for frame in frames]


def span(*percent: float) -> str:
    """The least and the most."""
    return f"{min(percent):.0f} to {max(percent):.0f}%"


def phrases() -> Iterator[tuple[str, str]]:
    """(file, what it must say)."""
    yield from failure()
    yield from scaffolding()
    yield from calibration()
    yield from beyond()


def failure() -> Iterator[tuple[str, str]]:
    alibi = [span(*accuracies("successor-alibi-cross", length)) for length in (10, 20)]
    yield "02_vanilla_failure", "{} at ten digits, {} at twenty".format(*alibi)
    lengths = [length for length, _ in experiment("successor-rpe-right").tests if length >= 7]
    kept = {
        (length, seed): share
        for length in lengths
        for seed, share in enumerate(accuracies("successor-rpe-right", length))
    }
    lost = kept.pop(min(kept, key=kept.__getitem__))
    yield "02_vanilla_failure", f"keeps {span(*kept.values())} on Successor from seven to sixty digits"
    yield "02_vanilla_failure", f"one seed {lost:.0f}% at fourteen"
    assert min(accuracies("parity-rpe-right", 60)) == 100


def scaffolding() -> Iterator[tuple[str, str]]:
    blind = {
        task: [share for length in (6, 10, 20, 60, 200) for share in accuracies(f"{task}-nope-window", length)]
        for task in ("successor", "parity")
    }
    right = f"right on {span(*blind['successor'])} of Successor and on {span(*blind['parity'])} of Parity"
    yield "04_abs", f"At any length it is {right}"
    yield "04_abs", f"99% at six digits fall to {span(*accuracies('n-by-1-nope-window', 60))} at sixty"
    grid = table("table-9-grid")
    four = grid[(grid.task == "Addition") & (grid.w == "1") & (grid["T"] == 4) & (grid.length == 60)].accuracy
    yield "04_abs", f"{four.item():.0f}% with $T = 4$"


def calibration() -> Iterator[tuple[str, str]]:
    ablated = table("table-17-ablations").set_index(["task", "model"]).ours
    yield "05_abc", f"Addition falls to {ablated['Addition', 'no verticals']:.0f}%"


def beyond() -> Iterator[tuple[str, str]]:
    seeds = table("table-22-beyond-seeds")
    longest, thousand = (
        seeds[seeds.length == length].set_index(["task", "model", "seed"]) for length in (10_000, 1000)
    )
    right = (
        f"{(longest.accuracy == 1).sum()} of {len(longest)} models are right on every problem at ten thousand digits"
    )
    yield "07_beyond", right
    worst = longest.accuracy.idxmin()
    yield "README", f"of {len(longest)} models {(longest.accuracy == 1).sum()} are right on every problem"
    shares = f"{100 * longest.accuracy[worst]:.0f}% at ten thousand and {100 * thousand.accuracy[worst]:.1f}% at one"
    yield "README", f"the worst, on {worst[0]}, on {shares}"
    by_head = [f"{ours('table-31-factors', 'N x 2', 'by head', length):.1f}%" for length in (60, 200)]
    yield "07_beyond", f"{by_head[0]} at sixty digits, {by_head[1]} at two hundred"
    yield "07_beyond", f"the plain model reached {ours('table-31-factors', 'N x 2', 'Vanilla', 6):.0f}%"
    sixteen = [ours("table-30-bases", "N x 1, base 16", model, 60) for model in ("+ T=3", "ABC")]
    yield "07_beyond", f"{sixteen[0]:.0f} and {sixteen[1]:.0f}% at sixty digits"
    yield "README", f"{sixteen[0]:.0f} and {sixteen[1]:.0f}% at sixty"
    binary = ours("table-30-bases", "Addition, base 2", "Vanilla", 6)
    yield "07_beyond", f"the plain model answers {binary:.0f}% of six-bit additions"
    coupled = [span(*accuracies("addition-coupling", length)) for length in (8, 10)]
    yield "07_beyond", "{} at eight digits, {} at ten".format(*coupled)
    yield "07_beyond", f"Abacus has learned {span(*accuracies('addition-abacus', 6))} of the six-digit sums"
    assert max(max(accuracies(f"addition-{model}", 15)) for model in MODERN) < 99
    assert max(max(accuracies(f"addition-{model}", 6)) for model in ("randomized", "kerple", "sandwich", "fire")) < 20
    learned = [model for model in MODERN if min(accuracies(f"n-by-1-{model}", 6)) > 90]
    most = max(max(accuracies(f"n-by-1-{model}", 10)) for model in learned)
    yield "07_beyond", f"none is right on more than {most:.0f}% at ten digits"
    kerple = [span(*accuracies(f"{task}-kerple", 60)) for task in ("successor", "parity")]
    yield "07_beyond", "KERPLE on {} and {} at sixty".format(*kerple)
    yield from ends()
    three = [ours("table-31-factors", f"N x {places}, base 4", "ABC", 60) for places in (2, 3)]
    yield "07_beyond", "{:.1f}% at sixty digits with two, {:.1f}% with three".format(*three)
    sandwich = [ours("table-27-methods", "Successor", "Sandwich", length) for length in (60, 200)]
    yield "07_beyond", "{:.1f}% of Successor at sixty digits and {:.1f}% at two hundred".format(*sandwich)
    eight = ours("table-30-bases", "Successor, base 8", "ABC", 60)
    yield "07_beyond", f"ABC on Successor in base 8 has {eight:.0f}% at sixty digits"
    yield "README", f"ABC on Successor in base 8, {eight:.0f}%"
    head = [ours("table-31-factors", "N x 3", "by head", length) for length in (6, 60)]
    yield "07_beyond", "{:.0f}% at six, {:.0f}% at sixty".format(*head)
    lists = [ours("table-32-limits", "ListOps, nested", "Vanilla", length) for length in (3, 6)]
    yield "07_beyond", "from {:.0f}% at three items to {:.0f}% at six".format(*lists)


def ends() -> Iterator[tuple[str, str]]:
    """Where the seeds differ."""
    errors = table("table-35-first-errors").set_index(["model", "seed", "length"])
    failed = errors.loc["Transformer-XL", 0, 20]
    right_but = (
        f"{failed.wrong:.0f}% at twenty, and {failed['end token']:.0f}% of those are right but for the end token"
    )
    yield "07_beyond", f"wrong on {right_but}"
    assert min(accuracies("successor-transformer-xl", 100)) < 99 < max(accuracies("successor-transformer-xl", 100))
    units = errors["first digit"]["Abacus", 0, 10]
    yield "07_beyond", f"at the units: {units:.0f}% of its wrong answers at ten digits"
    assert errors.wrong["Abacus", 1, 10] == 0 and errors["end token"]["RPE, from the right", 0, 14] > 80


@pytest.mark.parametrize(("file", "phrase"), [*phrases()])
def test_the_text_says_what_the_tables_have(file: str, phrase: str) -> None:
    if file == "README":
        text = (paths.ROOT / "README.md").read_text()
    else:
        text = "\n".join(cell.source for cell in nbformat.read(paths.NOTEBOOKS / f"{file}.ipynb", 4).cells)
    assert phrase in text.replace("**", "")
