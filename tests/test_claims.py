"""The ledger: counts of runs become verdicts; criteria and claims belong together; records replace earlier ones."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from judging import at_sixty, scores

from abc_nb.analysis import claims
from abc_nb.analysis.claims import Count, Verdict, by_counts, total
from abc_nb.common import paths
from abc_nb.common.errors import InputError

COUNTS = st.dictionaries(
    st.text(), st.tuples(st.integers(0, 9), st.integers(0, 9)).map(lambda p: Count(min(p), max(p)))
)


@given(COUNTS)
def test_a_verdict_by_counts_is_what_its_definition_says(counts: dict[str, Count]) -> None:
    met, runs = sum(c.met for c in counts.values()), sum(c.runs for c in counts.values())
    assert total(counts.values()) == Count(met, runs)
    if runs == 0:
        expected = "not run"
    elif met == runs:
        expected = "holds"
    elif 5 * met >= 4 * runs or any(c.met == c.runs > 0 for c in counts.values()):
        expected = "in part"
    else:
        expected = "differs"
    assert by_counts(counts) == expected
    assert by_counts(counts, "undecided") == ("undecided" if expected == "holds" else expected)


def test_runs_are_counted_one_by_one_and_only_those_of_the_model() -> None:
    found = scores({("addition", "abc"): at_sixty(100, 99, 98.9), ("addition", "lora"): at_sixty(100)})
    assert found.at_bar("addition", "abc") == Count(2, 3)
    assert found.at_bar("addition", "abc", bar=100) == Count(1, 3)
    assert found.at_bar("parity", "abc") == Count(0, 0)
    assert found.worst("addition", "abc") == pytest.approx(98.9)


def test_runs_that_interpolate_are_those_with_99_percent_in_validation() -> None:
    runs = {("addition", "rope"): at_sixty(1, 2, 3)}
    found = scores(runs, validation={("addition", "rope"): [99, 98.9, 100]})
    assert list(found.interpolating("addition", "rope")[60]) == [1, 3]


def test_seeds_are_those_of_the_single_counts() -> None:
    assert claims.seeds_of([Count(0, 5), Count(5, 5)]) == "5"
    assert claims.seeds_of([Count(0, 5), Count(0, 0), Count(1, 1)]) == "1 to 5"
    assert claims.seeds_of([]) == claims.seeds_of([Count(0, 0)]) == ""


def test_every_claim_has_a_criterion() -> None:
    book = claims.paper_claims()
    assert list(book.id) == [f"C{number:02d}" for number in range(1, 36)]
    assert book.criterion.str.endswith(".").all()
    assert len(pd.read_csv(paths.DATA / "criteria.csv")) == len(book)


def test_a_record_replaces_an_earlier_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ABC_NB_FIGURES", str(tmp_path))
    claims.record([Verdict("C16", "differs", "None.", "0 of 15")], "05_abc", "quick")
    shown = claims.record([Verdict("C16", "holds", "All.", "15 of 15")], "05_abc", "quick")
    assert shown.to_dict("records") == [
        {"id": "C16", "claim": shown.claim[0], "verdict": "holds", "runs": "15 of 15", "finding": "All."}
    ]
    book = claims.ledger("quick").set_index("id")
    assert book.verdict["C16"] == "holds" and book.notebook["C16"] == "05_abc"
    assert set(book.verdict.drop("C16")) == {"not run"}
    assert book["size"]["C16"] == "0 encoder and 2 decoder layers, embedding size 64"
    claims.record([Verdict("C16", "holds", "All.", size="six layers")], "05_abc", "quick")
    assert claims.ledger("quick").set_index("id")["size"]["C16"] == "six layers"


@pytest.mark.parametrize("verdict", [Verdict("C99", "holds", "x."), Verdict("C01", "maybe", "x.")])  # type: ignore[arg-type]
def test_an_unknown_claim_or_verdict_is_one_sentence(
    verdict: Verdict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ABC_NB_FIGURES", str(tmp_path))
    with pytest.raises(InputError, match="no claim"):
        claims.record([verdict], "05_abc", "quick")


def test_another_table_in_the_ledgers_place_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ABC_NB_FIGURES", str(tmp_path))
    (tmp_path / "claims.csv").write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match="is not a ledger of claims: remove it"):
        claims.ledger("quick")


def test_what_came_out_unlike_the_paper_is_listed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ABC_NB_FIGURES", str(tmp_path))
    counted = "1 of 2 runs agree"
    found = [
        Verdict("C11", "holds", "A headline.", counted),
        Verdict("C12", "in part", "A headline.", counted),
        Verdict("C15", "differs", "By runs.", counted),
        Verdict("C19", "undecided", "A headline.", ""),
        Verdict("C22", "in part", "No headline.", counted),
        Verdict("C35", "differs", "By reading.", ""),
    ]
    claims.record(found, "02", "quick")
    assert claims.unlike_the_paper("quick").id.tolist() == ["C12", "C15", "C19"]
