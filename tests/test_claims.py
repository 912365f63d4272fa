"""Claims: one rule turns counts of runs into verdicts, rows say what is counted, the ledger keeps what was judged."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abc_nb.analysis.calibration_study import CalibrationStudy
from abc_nb.training.evaluation import TEST_SEED
from audit import claims, ledger, measures
from audit.claims import Count, Verdict
from audit.results import Results
from audit.studies import STUDIES

THREE = ("successor", "addition", "n-by-1")
FOUR = (*THREE, "parity")
COUNTS = st.lists(
    st.builds(lambda met, others, open: Count(met, met + others, open), *(st.integers(0, n) for n in (6, 6, 4))),
    max_size=3,
)
Place = tuple[str, str]  # task, model


def by_definition(met: list[int], runs: list[int], about: str) -> str:
    """The rule once more, of groups without undecided runs."""
    most = [5 * m >= 4 * r for m, r in zip(met, runs, strict=True) if r]
    if about == "some":
        return "holds" if any(most) else "in part" if sum(met) else "differs"
    if sum(met) == sum(runs):
        return "holds"
    if about == "none":
        solved = any(5 * (r - m) >= 4 * r for m, r in zip(met, runs, strict=True) if r)
        return "differs" if solved else "in part"
    whole = any(m == r for m, r in zip(met, runs, strict=True) if r)
    return "in part" if whole or 2 * sum(met) >= sum(runs) else "differs"


@given(COUNTS, st.sampled_from(claims.ABOUT))
def test_a_verdict_is_what_every_way_to_settle_the_undecided_runs_gives(groups: list[Count], about: str) -> None:
    ways = itertools.product(*(range(group.undecided + 1) for group in groups))
    runs = [group.runs + group.undecided for group in groups]
    verdicts = {by_definition([g.met + n for g, n in zip(groups, way, strict=True)], runs, about) for way in ways}
    expected = "not run" if not sum(runs) else verdicts.pop() if len(verdicts) == 1 else "undecided"
    assert claims.by_counts(groups, about=about) == expected


def test_a_claim_that_can_hold_in_part_at_most_is_not_undecided_between_the_two() -> None:
    assert claims.by_counts([Count(4, 5)], "in part") == claims.by_counts([Count(5, 5)], "in part") == "in part"
    assert claims.by_counts([Count(4, 4, 1)], "in part") == "in part"
    assert claims.by_counts([Count(4, 4, 1)]) == "undecided"


def runs(accuracy: Mapping[Place, Sequence[float | Mapping[str, float]]], **columns: Any) -> pd.DataFrame:
    """Runs with 100% in validation and, but for what is given, 0% at every length; a number is that at 60."""
    rows = []
    for (task, model), seeds in accuracy.items():
        about = {"task": task, "model": model, "base": 10, "regime": "padded" if "padded" in model else "tight"}
        for seed, own in enumerate(seeds):
            row = about | {"seed": seed, "validation": 100.0, "width": 64, "T": 0} | columns
            row |= {f"at_{length}": 0.0 for length in (1, 2, 3, 6, 8, 10, 20, 60)}
            rows.append(row | (dict(own) if isinstance(own, Mapping) else {"at_60": own}))
    return pd.DataFrame(rows)


def judged(id: str, rows: pd.DataFrame) -> Verdict:
    """The verdict where studies have these rows."""
    return claims.verdict_on(claims.paper_claims()[id], claims.parts(id, lambda *_: rows.reset_index(drop=True)))


def assert_judged(id: str, rows: pd.DataFrame, verdict: str, agree: str = "", *shown: str) -> None:
    found = judged(id, rows)
    assert (found.verdict, found.runs) == (verdict, agree and f"{agree} runs agree")
    for part in shown:
        assert part in found.finding


def test_runs_of_both_regimes_are_counted_by_regime_and_task() -> None:
    plain = runs({(task, f"vanilla{end}"): [0.0] * 5 for task in THREE for end in ("", "-padded")})
    assert_judged("C02", plain, "holds", "30 of 30", "padded, Addition 5 of 5")
    assert judged("C02", plain).regime == "tight and padded" and judged("C02", plain).seeds == "5: 0 to 4"
    plain.loc[(plain.model == "vanilla-padded") & (plain.seed == 1), "validation"] = 98.9
    assert_judged("C02", plain, "in part", "27 of 30", "tight, Addition 5 of 5; ", "padded, Addition 4 of 5")
    assert_judged("C02", plain.assign(at_60=15.0), "differs", "0 of 30")


def test_fewer_than_five_seeds_decide_nothing_and_none_is_not_run() -> None:
    place = ("parity", "abc-unpractised")
    few = judged("C17", runs({place: [0.0] * 4}))
    assert (few.verdict, few.runs) == ("undecided", "4 of 4 runs agree, 1 undecided")
    assert_judged("C17", runs({place: [0.0] * 5}), "holds", "5 of 5")
    assert_judged("C17", runs({place: [100.0] * 5}), "differs", "0 of 5", "in 5 of 5 runs")
    learning = runs({("parity", "vanilla"): [0.0] * 5}, validation=29.0)
    assert_judged("C15", learning, "holds", "5 of 5")  # about learning: those that did not learn count
    assert judged("C17", runs({("addition", "lora"): [0.0]})).verdict == "not run"
    big = runs({("successor", "abc-unpractised"): [100.0] * 5, ("successor", "abc-paper-batch"): [100.0] * 2})
    assert_judged("C16", big, "holds with changes", "7 of 7")  # of models that need a GPU as many as were trained


def test_a_run_that_never_learned_its_training_task_decides_nothing() -> None:
    window = runs({(task, "abs-unpractised"): [100.0] * 5 for task in FOUR})
    assert_judged("C12", window, "holds", "20 of 20")
    window.loc[window.task == "addition", ["validation", "at_60"]] = 50.0
    found = judged("C12", window)
    assert (found.verdict, found.runs) == ("undecided", "15 of 15 runs agree, 5 undecided")
    assert "tight, Addition 0 of 0 (5 undecided)" in found.finding and claims.ADVICE in found.finding
    window.loc[window.task == "n-by-1", "at_60"] = 97.0
    assert judged("C12", window).verdict == "in part", "which no undecided run can change"


def test_groups_are_by_model_and_base_and_titles_tell_models_apart() -> None:
    place, right = ("addition", "window-cyclic-both"), {2: 0.0, 4: 99.0, 8: 0.0}
    bases = pd.concat([runs({place: [share] * 5}, base=base) for base, share in right.items()])
    assert_judged("C29", bases, "in part", "5 of 10", "both sides, base 4 5 of 5; ", "both sides, base 8 0 of 5")
    bases = pd.concat([bases[bases.base == 4], runs({("addition", "abc-unpractised"): [99.0]}, base=4)])
    assert judged("C29", bases).runs == "6 of 6 runs agree, 4 undecided", "of seeds that were not made"
    alone = {("addition", "on-keys"): [{"at_10": 90.0, "at_15": 50.0, "at_20": low} for low in (1, 2, 3, 4, 95)]}
    rpe = runs({("addition", model): [{"at_10": 90.0}] * 5 for model in ("rpe", "rpe-widened")} | alone)
    assert_judged("C31", rpe, "in part", "4 of 5", "at 20: 1.0 to 95.0", "RPE 5 of 5; RPE, three widths 5 of 5")


def test_a_measure_is_judged_as_runs_are() -> None:
    about = {"task": "successor", "model": "vanilla", "base": 10, "regime": "tight", "validation": 100.0}
    looks = [about | {"seed": seed, "correlation": 0.9 + seed / 100, "spread": 0.9} for seed in range(5)]
    looks += [row | {"task": "addition", "correlation": -0.1, "spread": 0.1} for row in looks]
    assert_judged(
        "C08", pd.DataFrame(looks), "in part", "5 of 10", "Successor 0.90 to 0.94; Addition -0.10", "Addition 5 of 5"
    )
    costs = pd.DataFrame([about | {"seed": seed, "low": 0.2, "high": 0.3, "seconds": seed / 10} for seed in range(5)])
    assert_judged("C21", costs, "differs", "0 of 5", "with calibration: Successor 0.20.")
    costs.loc[costs.seed < 3, "low"] = 0.05
    assert judged("C21", costs).runs == "0 of 2 runs agree, 3 undecided"
    change = pd.DataFrame([about | {"seed": 0, "abc": 2e-8, "lora": 1.4, "at_60": 0.0, "model": "lora"}])
    assert_judged("C26", change, "holds", "", "differs by 2e-08 and LoRA's by 1.4")


def test_one_attentions_lines_decide_where_the_model_learned_or_could_not() -> None:
    alone = runs({(task, "abc"): [100.0] * 5 for task in FOUR}, cross_wrong=0.0, self_wrong=40.0)
    assert_judged("C37", alone, "holds with changes", "20 of 20", "Parity 5 of 5", "Parity 40; in cross-attention")
    alone.loc[0, ["validation", "at_60"]] = float("nan")  # that was not trained
    found = judged("C37", alone)
    assert (found.verdict, found.runs) == ("undecided", "19 of 19 runs agree, 1 undecided")
    assert_judged("C37", alone.assign(cross_wrong=[10.0] + [0.0] * 19), "in part", "19 of 20")
    assert judged("C37", alone.assign(self_wrong=0.0)).runs == "0 of 0 runs agree, 20 undecided"


def test_heads_are_counted_by_what_the_last_layers_lines_follow() -> None:
    spans = [(1, 0, "operand 1"), (1, 1, "operand 2"), (1, 1, "operand 1"), (1, 2, "*"), (0, 3, "operand 2")]
    lines = [SimpleNamespace(attention="cross", layer=layer, head=head, span=span) for layer, head, span in spans]
    study: Any = SimpleNamespace(bias=SimpleNamespace(heads=4, lines=lines), last=1)
    assert measures.followed(study) == {"first": 1, "second": 0, "number": 3, "digit": 1, "heads": 4}


def test_open_elements_of_a_shipped_bias_are_those_of_its_matrix() -> None:
    """Counted cell by cell: an anti-diagonal's cells move to the left at each step, a vertical's do not."""
    study = CalibrationStudy(Results("quick", "shipped", [0]).first_run("addition-abc-unpractised"))
    matrix = study.bias.dense(study.run.spec.sampler.layout(6), "cross", study.last).isfinite().numpy()
    moving = matrix.any(1).sum(1) > 2  # heads whose open columns change with the step
    row = measures.open_elements(study)
    assert (row["with_one"], row["heads"]) == (moving.sum(), len(matrix))
    assert row["share"] == pytest.approx(matrix[moving].sum() / matrix.sum())


def test_problems_seen_lie_between_two_validations() -> None:
    run = Results("quick", "shipped", [0]).first_run("addition-abc-unpractised")
    history, held = run.table("history"), run.spec.training.held_batch
    before, after = measures.problems_seen(run)
    first = int(history.step[history.accuracy >= 0.99].iloc[0])
    assert (before, after) == ((first - 50) * held, first * held)
    tables = run.record["tables"] | {"history": history.assign(accuracy=0.5).to_dict("list")}
    never = replace(run, record=dict(run.record) | {"tables": tables})
    assert measures.problems_seen(never)[1] == np.inf


def test_one_answer_to_every_problem_is_called_constant() -> None:
    row = measures.classified(Results("quick", "shipped", [3]))[0]
    run = Results("quick", "shipped", [3]).first_run("parity-classification-vanilla")
    constant = 0
    for test in run.evaluation().itertuples():
        batch = run.spec.sampler.test_batch(test.length, test.samples, TEST_SEED)
        odd = sum(int(answer) == run.spec.task.token("1") for answer in batch.target[:, 1].tolist())
        constant += test.correct in (odd, test.samples - odd)
    assert (row["constant"], row["lengths"]) == (constant, 24) and constant < 24


def test_every_claim_counts_runs_of_studies_that_exist_and_says_so_without_runs() -> None:
    """Two are decided by reading, and one is a definition."""
    asked = set[str]()

    def nothing(*rows: str) -> pd.DataFrame:
        asked.update(rows)
        return measures.frame([])

    book = claims.paper_claims()
    assert list(book) == [f"C{number:02d}" for number in range(1, 42)]
    verdicts = {id: claims.verdict_on(book[id], claims.parts(id, nothing)).verdict for id in book}
    others = {"C01": "definition", "C35": "differs", "C40": "in part"}
    assert verdicts == dict.fromkeys(book, "not run") | others
    assert asked <= {*measures.MEASURES, *STUDIES}


@pytest.mark.usefixtures("figures")
def test_a_record_replaces_an_earlier_one() -> None:
    ledger.record([Verdict("C16", "differs", "None.", "0 of 15")], "05_abc", "quick")
    row = ledger.record([Verdict("C16", "holds", "All.", "15 of 15")], "05_abc", "quick").iloc[0]
    assert (row.id, row.verdict, row.runs, row.finding) == ("C16", "holds", "15 of 15", "All.")
    book = ledger.ledger("quick").set_index("id")
    assert book.verdict["C16"] == "holds" and book.notebook["C16"] == "05_abc"
    assert set(book.verdict.drop("C16")) == {"not run"}
    assert book["size"]["C16"] == "0 encoder and 2 decoder layers, embedding size 64"


@pytest.mark.usefixtures("figures")
def test_what_came_out_unlike_the_paper_is_listed_once() -> None:
    found = {"C11": "holds", "C12": "in part", "C14": "in part", "C15": "differs", "C19": "undecided", "C35": "differs"}
    ledger.record([Verdict(*each, "A finding.") for each in found.items()], "02", "quick")
    assert ledger.unlike_the_paper(ledger.ledger("quick")).id.tolist() == ["C12", "C15", "C19", "C35"]
