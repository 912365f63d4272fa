"""The last table of a reproduction: which statements came out the same, against numbers worked out by hand."""

from math import comb
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abc_nb.common import paths
from abc_nb.runs import store
from abc_nb.specs.experiment import Name
from abc_nb.specs.names import ARITHMETIC
from audit import reproduce, statements
from audit.__main__ import main
from audit.results import Results
from audit.statements import DIFFERS, OPEN, SAME, Count, Statement

LEVEL = 1e-4
PERFECT: list[Count] = [(1000, 1000)] * 5


def verdict(here: Count, shipped: list[Count], level: float = LEVEL, proven: bool = False) -> str:
    return Statement("", shipped, here, "", proven).verdict(level)


@pytest.mark.parametrize("wrong", [0, 1, 5, 6, 500])
def test_where_no_shipped_seed_is_wrong_the_problems_decide(wrong: int) -> None:
    """With all wrong answers of 6,000 among the 1,000 made here, Fisher's test has one table that is as unlikely."""
    chance = comb(1000, wrong) / comb(6000, wrong)
    assert verdict((1000 - wrong, 1000), PERFECT) == (SAME if chance >= LEVEL else DIFFERS)
    assert verdict((wrong, 1000), [(0, 1000)] * 5) == (SAME if chance >= LEVEL else DIFFERS)


@pytest.mark.parametrize(("right", "expected"), [(996, SAME), (997, DIFFERS), (4, SAME), (3, DIFFERS)])
def test_where_shipped_seeds_vary_one_more_seed_may_as_well(right: int, expected: str) -> None:
    """Mean 0.5, deviation 0.1, Student's t of two degrees at 97.5% 4.3027: 4.3027 * 0.1 * sqrt(4/3) is 0.4968."""
    assert verdict((right, 1000), [(400, 1000), (500, 1000), (600, 1000)], level=0.05) == expected


@pytest.mark.parametrize(
    ("here", "shipped"), [((0, 1000), [(0, 1000), (500, 1000), (1000, 1000)]), ((0, 1), [(1, 1)] * 5)]
)
def test_where_every_count_would_be_the_same_nothing_is_decided(here: Count, shipped: list[Count]) -> None:
    assert verdict(here, shipped) == OPEN


@pytest.mark.parametrize(
    ("here", "shipped", "expected"),
    [((1, 1), (20, 20), SAME), ((0, 1), (20, 20), DIFFERS), ((1, 2), (20, 20), DIFFERS), ((0, 1), (19, 20), OPEN)],
)
def test_a_model_that_was_trained_until_proven_has_to_be_certified(here: Count, shipped: Count, expected: str) -> None:
    assert verdict(here, [shipped], proven=True) == expected


@given(st.integers(0, 1000), st.integers(1, 8))
def test_a_count_that_every_seed_has_never_differs(right: int, seeds: int) -> None:
    assert verdict((right, 1000), [(right, 1000)] * seeds) == SAME


def test_chance_alone_makes_a_count_differ_no_more_often_than_the_level_says() -> None:
    """Six models that are equally good, drawn 400 times; at most the level and three deviations of its estimate."""
    rng, level = np.random.default_rng(0), 0.05
    drawn = [[(int(right), 300) for right in rng.binomial(300, 0.97, 6)] for _ in range(400)]
    differing = sum(verdict(counts[0], counts[1:], level) == DIFFERS for counts in drawn)
    assert differing <= 400 * level + 3 * np.sqrt(400 * level * (1 - level))


@pytest.mark.parametrize(
    ("practised", "what"),
    [(True, "ABC, N x 1, certified where tried"), (False, "ABC, all tasks, certified where tried")],
)
def test_a_model_that_is_not_certified_is_named_with_its_wrong_contexts(practised: bool, what: str) -> None:
    """Of models trained until proven one is enough; of others three of four beside twenty of twenty are chance."""
    names = [Name(task, "abc") for task in ARITHMETIC]
    rows = [(str(n), seed, n.task != "n-by-1" or seed > 0, 32, 2_531_900) for n in names for seed in range(6)]
    every = pd.DataFrame(rows, columns=["experiment", "seed", "certified", "wrong", "contexts"])
    shipped, here = every[every.seed > 0], every[every.seed == 0]
    proven = names if practised else []
    every_statement = statements.of_certificates(names, proven, {"abc": "ABC"}, shipped, here)
    (statement,) = (statement for statement in every_statement if statement.what == what)
    assert statement.verdict(LEVEL) == (DIFFERS if practised else SAME)
    said = [statements.counts_in_words(counts) for counts in (statement.shipped, [statement.here])]
    assert said == (["5 of 5", "0 of 1"] if practised else ["20 of 20", "3 of 4"])
    assert statement.advice == "`abc-nb certify n-by-1-abc --seed 0` names what is wrong, in 32 of 2,531,900 contexts"


def made_here(name: str, right_at_6: int) -> None:
    """A run made here with the numbers of the shipped one, but for those of six digits."""
    shipped = Results("quick", "shipped", [0]).first_run(name)
    rows = shipped.table("evaluation").assign(asked=1000)
    rows.loc[rows.length == 6, "correct"] = right_at_6
    record = store.record_of(shipped.spec, 0, shipped.facts, {"evaluation": rows})
    store.write_run(record, {}, paths.runs() / shipped.key)


@pytest.fixture
def places(figures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Empty folders for runs and figures."""
    monkeypatch.setenv("ABC_NB_RUNS", str(tmp_path / "runs"))
    return figures


@pytest.mark.parametrize(("right", "status"), [(1000, 0), (900, 1)])
def test_a_run_that_differs_makes_the_reproduction_fail_and_says_what_to_do(
    places: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], right: int, status: int
) -> None:
    """Of one model that was made here: its counts at five lengths, one of which was changed."""
    made_here("addition-vanilla", right)
    monkeypatch.setattr(reproduce.sweep, "sweep", lambda jobs: [])
    asked: list[object] = []
    monkeypatch.setattr(reproduce, "execute_all", lambda books, folder, parameters: asked.append(parameters))
    monkeypatch.setattr(reproduce.report, "write", lambda found: places / "REPORT.md")
    assert main(["reproduce"]) == status
    assert asked == [{"profile": "quick", "results": "any", "seeds": [0, 1, 2, 3, 4]}]
    said = capsys.readouterr().out
    table = pd.read_csv(places / "statements.csv", keep_default_na=False).set_index("statement")
    row = table.loc["Vanilla, Addition, 6 digits, seed 0"]
    assert (row["made here"], row.verdict) == (f"{right:,} of 1,000", DIFFERS if status else SAME)
    assert row.shipped.startswith("1,000 of 1,000")
    assert (table.verdict == SAME).sum() == 5 - status and len(table) == 5
    assert f"\n{5 - status} of 5 statements reproduced on this machine." in said
    assert ("`abc-nb train addition-vanilla --seed 1`" in said) == bool(status)
    assert ("a0_papers_tables" in said) == bool(status)
    assert (places / "statements.md").read_text().strip() in said
