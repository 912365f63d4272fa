"""Frames that notebooks show of models: contexts, products, wires, language models, far digits."""

from typing import Any

import numpy as np
import pytest
import torch
from helpers import integers

import abc_nb
from abc_nb.analysis import products, wiring
from abc_nb.analysis.contexts import contexts_met, every_context
from abc_nb.analysis.language import compared
from abc_nb.analysis.results import Results
from abc_nb.api import certify, load
from abc_nb.bias.base import CLOSED, Attention, Causal
from abc_nb.bias.window import Near
from abc_nb.problems.layouts import Layout, binary_natural, unary
from abc_nb.problems.sampling import Sampler
from abc_nb.problems.tasks import NUMBERS, Task
from abc_nb.show import maps

# ---- contexts ---------------------------------------------------------------------------------------


def test_every_context_of_parity_is_shown_once_with_the_right_bit_and_the_certificates_margin() -> None:
    shown, certificate = every_context(load("parity-abs")), certify("parity-abs")
    assert len(shown) == certificate.contexts
    assert shown.margin.min() == pytest.approx(certificate.margin, abs=1e-4)
    for row in shown.to_dict("records"):
        if row["output"] == "end":
            assert row["writes"] == "&" and row["a"] == ""
        else:
            assert int(row["writes"]) == (int(row["a"]) + int(row["y-1"] or 0)) % 2
    panel, below = maps.contexts(shown).axes
    assert panel.get_images()[0].get_array().shape[1] == len(below.patches) == len(shown)  # type: ignore[union-attr]


@pytest.mark.parametrize("name", ["addition-abc", "successor-abc"])
def test_contexts_that_a_problem_meets_hold_its_digits(name: str) -> None:
    numbers = [31415926, 27182818] if name.startswith("addition") else [31415926]
    right = str(sum(numbers) if len(numbers) == 2 else numbers[0] + 1)
    shown = contexts_met(load(name), "+".join(map(str, numbers)))
    assert list(shown.writes) == [*right[::-1], "0", "&"]
    assert (shown.margin > 0).all()
    for letter, number in zip("ab", numbers, strict=False):
        assert list(shown[letter])[: len(str(number))] == list(str(number)[::-1])
    assert list(shown["y-1"][1:]) == list(shown.writes[:-1])


# ---- products ---------------------------------------------------------------------------------------


def test_a_shipped_model_multiplies_long_thin_products() -> None:
    found = products.of_sizes(abc_nb.load("n-by-n-abs-unpractised"), [(3, 40), (40, 3)], 3)
    assert found.values.tolist() == [["3 x 40", 160, 3, 3], ["40 x 3", 123, 3, 3]]


def test_a_model_made_wrong_is_wrong_on_them(monkeypatch: pytest.MonkeyPatch) -> None:
    run = abc_nb.load("n-by-n-abs-unpractised")
    model = run.model()
    torch.nn.init.zeros_(model.head.weight)
    monkeypatch.setattr(run.__class__, "model", lambda self: model)
    assert products.of_sizes(run, [(3, 4)], 5).right.tolist() == [0]


@pytest.mark.parametrize("base", range(2, 17))
def test_factors_of_training_are_at_most_a_million(base: int) -> None:
    """2^20, in every base; the sizes of base 10 are those of every base where they fit."""
    task = Task("n-by-n", base)
    sizes = Sampler(task, width_count=3).widths
    assert len(sizes) == 5 and (base > 10 or sizes == Sampler(Task("n-by-n"), width_count=3).widths)
    for size in sizes:
        assert all(base**places - 1 <= NUMBERS for places in size)
        drawn = task.draw(np.empty(0, np.int64), 200, size, np.random.default_rng(0))
        assert all(max(integers(digits, base)) <= NUMBERS for digits in drawn)


# ---- wires ------------------------------------------------------------------------------------------


FOUND = Results("quick", "shipped", [0])


def test_heads_and_lines_are_counted_once() -> None:
    frame = wiring.wiring(FOUND).set_index("task")
    assert [*frame.index] == ["successor", "addition", "n-by-1", "parity"]
    for task, row in frame.iterrows():
        lines = abc_nb.load(f"{task}-abc-unpractised").table("lines")
        by_head = lines.groupby(["attention", "layer", "head"]).size()
        assert (row["lines"], row["one line"]) == (len(lines), (by_head == 1).sum())
        assert 0 < row["near the place"] <= row["on digits"] <= len(by_head) <= row["heads"] == 32


def test_without_values_the_same_keys_are_open_and_a_wire_stays_as_it_is() -> None:
    run = abc_nb.load("addition-abc-unpractised")
    model, batch = run.model(), run.spec.sampler.test_batch(8, 4, 0)
    bare = wiring.without_values(model)
    for layer in range(2):
        dense = [each.config.bias.dense(batch.layout, "cross", layer) for each in (model, bare)]
        assert torch.equal(dense[0].isfinite(), dense[1].isfinite())
        assert not dense[1][dense[1].isfinite()].any()
        one = dense[0].isfinite().sum(-1) == 1  # of each head and query
        assert not dense[0][one & dense[0].isfinite().any(-1)].nan_to_num(neginf=0).any()
    wires = abc_nb.load("n-by-1-abc-unpractised")
    given = wires.spec.sampler.test_batch(8, 4, 0)
    with torch.inference_mode():
        logits = [
            each(given.source, given.target[:, :-1], given.layout)
            for each in (wires.model(), wiring.without_values(wires.model()))
        ]
    torch.testing.assert_close(*logits, rtol=0, atol=0)


# ---- language models --------------------------------------------------------------------------------


def record(losses: list[float], right: dict[int, float], certified: list[bool] | None = None) -> dict[str, Any]:
    history = [{"step": 100 * (number + 1), "text": loss} for number, loss in enumerate(losses)]
    tests = [
        {"length": length, "accuracy": share, "task": task}
        for length, worst in right.items()
        for task, share in (("addition", worst), ("parity", 1.0))
    ]
    found = {
        "history": history,
        "trained": {"steps": 200},
        "evaluation": tests,
        "generated": {"problems": 3, "right": 2},
        "text": history[-1]["text"],
    }
    return found | ({"certificates": [{"certified": each} for each in certified]} if certified else {})


def test_a_row_has_the_range_of_losses_before_practice_and_the_worst_of_tasks_and_seeds() -> None:
    proven = [
        record([2.0, 1.5, 0.1], {6: 1.0, 60: 0.97, 1000: 0.2}, [True, True]),
        record([1.25, 1.75], {6: 0.99, 60: 1.0, 1000: 1.0}, [True, False]),
    ]
    table = compared({"text": [record([1.0], {})], "abs": proven})
    assert table.loc["abs"].to_dict() == {
        "lowest loss": "1.250 to 1.500",
        "last loss": "0.100 to 1.750",
        "6 digits": "99",
        "60 digits": "97",
        "1,000 digits": "20",
        "in own text": "4 of 6",
        "certified": "1 of 2",
    }
    assert table.loc["text", ["lowest loss", "6 digits", "certified"]].tolist() == ["1.000", "–", "–"]


# ---- far digits -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["cross", "self"])
@pytest.mark.parametrize("layout", [unary(7), binary_natural(6, "+", 6), binary_natural(5, "*", 1)], ids=str)
@pytest.mark.parametrize("reach", [0, 2])
def test_far_digits_are_closed_and_nothing_else(layout: Layout, reach: int, name: Attention) -> None:
    """A key is far by the digit that its token is: the first input of the decoder is `$`, the next the units."""
    long = [one for one in layout.operands if one.places == layout.width]  # a short factor is needed at every place
    places = {int(column): place for one in long for place, column in enumerate(one.columns)}
    written = [None, *range(layout.target_length)]  # the place of each token that the decoder has read
    dense, usual = Near(reach).dense(layout, name, 0, 4)[0], Causal().dense(layout, name, 0, 4)
    for query in range(layout.target_length):
        for key in range(dense.shape[1]):
            place = places.get(key) if name == "cross" else written[key]
            away = place is not None and (abs(place - query) if name == "cross" else query - place) > reach
            assert dense[query, key] == (CLOSED if away else 0.0 if usual is None else usual[0, query, key])
