"""Mistakes are found where hand-made answers have them, and far digits are those that a naive loop calls far."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import torch
from torch import Tensor

from abc_nb.analysis import error_analysis
from abc_nb.bias.base import CLOSED, Attention, Causal, Near
from abc_nb.experiments.experiment import experiment
from abc_nb.model.transformer import Transformer
from abc_nb.problems.layouts import Layout, binary_natural, unary
from abc_nb.problems.sampling import Batch
from abc_nb.runs import store
from abc_nb.runs.run import Outcome
from abc_nb.training.evaluation import TEST_SEED


def test_first_errors_are_counted_among_the_wrong_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of ten answers five are wrong: three from the first digit on, one at a later one, one at the end token alone."""
    right = torch.ones(10, 5, dtype=torch.bool)
    right[:3, 0], right[2, 4], right[3, 2:], right[4, 4] = False, False, False, False
    monkeypatch.setattr(error_analysis, "correct_digits", lambda model, batch: right)
    monkeypatch.setattr(store.Run, "model", lambda self: None)
    run = store.Run(experiment("successor-nope-window"), 3, Path(), {})
    found = error_analysis.first_errors([run], [5, 20], samples=10)
    assert found.loc[0].to_list() == ["Successor", "NoPE + w=1", 3, 5, 10, 50, *map(pytest.approx, (60, 20, 20))]
    assert found.length.to_list() == [5, 20]
    monkeypatch.setattr(error_analysis, "correct_digits", lambda model, batch: torch.ones(10, 5, dtype=torch.bool))
    assert error_analysis.first_errors([run], [5])[["first digit", "later digit", "end token"]].isna().all(axis=None)


@pytest.mark.parametrize("name", ["n-by-1-window-cyclic", "addition-abc"])
def test_wrong_digits_are_shown_with_what_stands_there(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = replace(experiment(name), tests=((2, 5), (8, 4)))
    batch = chosen.sampler.test_batch(8, 4, TEST_SEED)
    right = torch.ones(4, batch.layout.target_length, dtype=torch.bool)
    right[1, 0] = right[3, 5] = False
    monkeypatch.setattr(error_analysis, "correct_digits", lambda model, batch: right)
    monkeypatch.setattr(store.Run, "model", lambda self: None)
    found = error_analysis.wrong_digits(store.Run(chosen, 0, Path(), {}))
    assert found[["problem", "place", "residue"]].to_numpy().tolist() == [[1, 0, 0], [3, 5, 2]]
    source = chosen.task.text(batch.source[3].tolist())
    if name == "addition-abc":
        first, second = "".join(source[1:-1]).split("+")
        assert found.loc[1, ["operand 1", "operand 2"]].to_list() == [first[-6:-3], second[-6:-3]]
        assert found.loc[0, "operand 1"] == "".join(chosen.task.text(batch.source[1].tolist())[1:-1]).split("+")[0][-1]
    else:
        assert found.loc[1, "operand 1"] == "".join(source[i] for i in batch.layout.operands[0].columns[[5, 4, 3]])
        assert found.loc[1, "operand 2"] == source[batch.layout.operands[1].last]


def test_runs_are_imperfect_if_they_err_at_the_longest_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = []
    for seed, longest in enumerate((1.0, 0.5, 0.75)):
        folder = tmp_path / str(seed)
        counts = {6: 3 - seed, 60: round(8 * longest)}
        store.write_tests(folder / "evaluation.csv", [Outcome(n, 8, 8, correct) for n, correct in counts.items()])
        runs.append(store.Run(experiment("addition-abc"), seed, store.Folder(folder, {}), {}))
    assert error_analysis.imperfect(runs) == runs[1:]
    one = pd.DataFrame({"problem": [7], "place": [1], "residue": [1], "operand 1": ["05"]})
    monkeypatch.setattr(error_analysis, "wrong_digits", lambda run: one)
    found = error_analysis.all_wrong_digits(error_analysis.imperfect(runs))
    assert found.to_numpy().tolist() == [["Addition", "ABC", seed, 7, 1, 1, "05", ""] for seed in (1, 2)]
    assert list(error_analysis.all_wrong_digits([]).columns) == list(found.columns)


def test_wrong_digits_are_counted_by_context_most_first_in_each_run() -> None:
    columns = ["task", "model", "seed", "problem", "place", "residue", "operand 1", "operand 2"]
    wrong = [("N x 1", "ABC", 2, problem, place, 1, "729", "7") for problem, place in [(0, 1), (0, 4), (3, 7)]]
    wrong += [("N x 1", "ABC", 2, 0, 8, 2, "729", "7"), ("Addition", "ABC", 0, 5, 0, 0, "079", "279")]
    found = error_analysis.contexts(pd.DataFrame([wrong[3], *wrong[:3], wrong[4]], columns=columns))
    assert found.to_numpy().tolist() == [
        ["N x 1", "ABC", 2, 2, 4, 2, 1, "729", "7", 3],
        ["N x 1", "ABC", 2, 2, 4, 2, 2, "729", "7", 1],
        ["Addition", "ABC", 0, 1, 1, 1, 0, "079", "279", 1],
    ]
    assert list(found.columns[3:6]) == ["problems", "digits", "contexts"]
    fewer = error_analysis.contexts(pd.DataFrame(wrong, columns=columns), most=1)
    assert fewer.here.tolist() == [3, 1]
    assert fewer.contexts.tolist() == [2, 1], "of all"
    assert error_analysis.contexts(error_analysis.all_wrong_digits([])).empty


@pytest.mark.parametrize("layout", [unary(7), binary_natural(6, "+", 6), binary_natural(5, "*", 1)], ids=str)
@pytest.mark.parametrize("reach", [0, 2])
def test_far_digits_are_closed_and_nothing_else(layout: Layout, reach: int) -> None:
    """A key is far by the digit that its token is: the first input of the decoder is `$`, the next the units."""
    places = {
        int(column): place
        for one in layout.operands
        if one.places == layout.width  # a factor's single digit is needed at every place
        for place, column in enumerate(one.columns)
    }
    written = [None, *range(layout.target_length)]  # the place of each token that the decoder has read
    names: tuple[Attention, ...] = ("cross", "self")
    for name in names:
        found = Near(reach).dense(layout, name, 0, 4)[0]
        usual = Causal().dense(layout, name, 0, 4)
        for query in range(layout.target_length):
            for key in range(found.shape[1]):
                place = places.get(key) if name == "cross" else written[key]
                away = place is not None and (abs(place - query) if name == "cross" else query - place) > reach
                expected = CLOSED if away else 0.0 if usual is None else usual[0, query, key]
                assert found[query, key] == expected


def test_far_digits_are_closed_at_test_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Open it is asked as it is, closed with `Near` and the same weights."""
    run = store.Run(experiment("addition-nope"), 2, Path(), {})
    model = run.experiment.build(0)
    monkeypatch.setattr(store.Run, "model", lambda self: model)
    asked = []

    def answered(tested: Transformer, batch: Batch) -> Tensor:
        assert all(torch.equal(a, b) for a, b in zip(tested.parameters(), model.parameters(), strict=True))
        asked.append(tested.config.bias)
        return torch.arange(len(batch.source)) < (3 if tested is model else 7)

    monkeypatch.setattr(error_analysis, "exact_match", answered)
    found = error_analysis.without_far_digits([run], [5, 9], samples=10)
    assert asked == 2 * [Causal(), Near(2)]
    assert found.loc[0].to_list() == ["Addition", "NoPE", 2, 5, 10, pytest.approx(30), pytest.approx(70)]
    assert found.length.to_list() == [5, 9]
