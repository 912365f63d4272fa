"""Frames that notebooks show of models: contexts, products, wires, Algorithm 1, language models, RPE and LoRA."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from helpers import SAMPLER, TINY, build, integers

from abc_nb.analysis import wiring
from abc_nb.analysis.contexts_met import contexts_met
from abc_nb.api import load
from abc_nb.bias.base import ENCODER_DECODER, Attention
from abc_nb.bias.lines import Line, Lines
from abc_nb.calibration.calibrate_model import as_mask
from abc_nb.common.errors import InputError
from abc_nb.model.positions import Relative
from abc_nb.problems.drawing import training_operands
from abc_nb.problems.sampling import Sampler
from abc_nb.problems.tasks import NUMBERS, Task
from abc_nb.runs.store import Run
from abc_nb.specs.spec import spec
from abc_nb.training.evaluation import attention_of
from audit import connections, tables
from audit.connections import abc_index, adapted_in_one, logit_change
from audit.language import compared
from audit.results import Results


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
    with pytest.raises(InputError, match="N x N writes a table"):
        contexts_met(load("n-by-n-abs"), "12*34")


@pytest.mark.parametrize("base", range(2, 17))
def test_factors_of_training_are_at_most_a_million(base: int) -> None:
    """2^20, in every base; the sizes of base 10 are those of every base where they fit."""
    task = Task("n-by-n", base)
    sizes = Sampler(task, width_count=3).widths
    assert len(sizes) == 5 and (base > 10 or sizes == Sampler(Task("n-by-n"), width_count=3).widths)
    for size in sizes:
        assert all(base**places - 1 <= NUMBERS for places in size)
        drawn = training_operands(task, np.empty(0, np.int64), 200, size, np.random.default_rng(0))
        assert all(max(integers(digits, base)) <= NUMBERS for digits in drawn)


FOUND = Results("quick", "shipped", [0])


def test_heads_are_counted_once() -> None:
    frame = wiring.wiring(FOUND).set_index("task")
    assert [*frame.index] == ["successor", "addition", "n-by-1", "parity"]
    for task, row in frame.iterrows():
        lines = load(f"{task}-abc-unpractised").bias().lines  # type: ignore[union-attr]
        by_head = Counter((line.attention, line.layer, line.head) for line in lines)
        assert row["one line"] == [*by_head.values()].count(1)
        assert 0 < row["near the place"] <= row["on digits"] <= len(by_head) <= row["heads"] == 32


def test_a_wire_stays_as_it_is_without_values() -> None:
    run = load("n-by-1-abc-unpractised")
    batch, model = run.spec.sampler.test_batch(8, 4, 0), run.model()
    with torch.inference_mode():
        under, bare = (
            each(batch.source, batch.target[:, :-1], batch.layout)
            for each in (model, model.with_bias(as_mask(run.bias())))
        )
    torch.testing.assert_close(bare, under, rtol=0, atol=0)


@pytest.mark.parametrize("name", ["addition-algorithm-1-none-new", "addition-algorithm-1-plain-new"])
def test_a_row_counts_the_last_layers_lines_and_heads_as_its_matrices_show(name: str) -> None:
    """Of what a run of Algorithm 1 kept; tasks and seeds are written as a range."""
    run = FOUND.first_run(name)
    row, bias, last = tables.algorithm_1_row(run), run.bias(), run.spec.model.decoder_layers - 1
    layout = run.spec.calibration_batch(0).layout
    lines = [line for line in bias.lines if line.layer == last]
    matrices = [bias.dense(layout, attention, last) for attention in ENCODER_DECODER]
    without = sum((matrix == 0).all().item() for part in matrices for matrix in part)  # heads that see every key
    assert row["lines"] == len(lines) and 0 <= row["short"] <= len(lines)
    assert row["open_heads"] == without / (2 * bias.heads)
    accuracy = run.evaluation().set_index("length").accuracy
    assert (row["twenty"], row["sixty"], row["validation"]) == (accuracy[20], accuracy[60], run.validation)
    row |= {"sixty": 0.25, "lines": 1, "short": 0}
    rows = pd.DataFrame([row, row | {"task": "successor", "sixty": 1.0, "lines": 2}])
    (shown,) = tables.by_reading(rows).to_dict("records")
    assert (shown["tasks"], shown["runs"]) == ("Addition, Successor", 2)
    assert (shown["lines"], shown["short"], shown["60 digits"]) == ("1–2", "0", "25.0–100.0")


def language_run(name: str, losses: list[float], right: dict[int, int], certified: Sequence[bool] = ()) -> Run:
    """A run whose first task has so many right of a hundred at each length, and whose second has all."""
    tests = [(task, length, n, 100) for length, most in right.items() for task, n in (("a", most), ("b", 100))]
    evaluation = pd.DataFrame(tests, columns=["task", "length", "correct", "samples"]).to_dict("list")
    history = {"step": [100, 200, 300][: len(losses)], "text": losses}
    history |= {column: [0.0] * len(losses) for column in ("seconds", "loss", "accuracy")}
    kept = {"history": history} | ({"evaluation": evaluation} if tests else {})
    certificates = [{"certified": proven} for proven in certified]
    return Run(
        spec(name), 0, {"facts": {"trained": {"steps": 200}}, "tables": kept, "certificates": certificates}, Path()
    )


def test_a_row_has_the_range_of_losses_before_practice_and_the_worst_of_tasks_and_seeds() -> None:
    proven = [
        language_run("language-abs", [2.0, 1.5, 0.1], {6: 100, 60: 97, 1000: 20}, [True, True]),
        language_run("language-abs", [1.25, 1.75], {6: 99, 60: 100, 1000: 100}, [True, False]),
    ]
    table = compared({"text": [language_run("language-text", [1.0], {})], "abs": proven})
    assert table.loc["abs"].to_dict() == {
        "lowest loss": "1.250 to 1.500",
        "6 digits": "99",
        "60 digits": "97",
        "1,000 digits": "20",
        "certified": "1 of 2",
    }
    assert table.loc["text", ["lowest loss", "6 digits", "certified"]].tolist() == ["1.000", "–", "–"]


CLIP = 3
BATCH = SAMPLER.test_batch(3, 6, seed=0)


@pytest.mark.parametrize(
    ("size", "read"), [((4, 6), (4, 6)), ((4, 6), (2, 3)), ((7, 5), (3, 3)), ((3, 3), (6, 7)), ((5, 9), (1, 1))]
)
def test_the_index_of_calibration_is_the_diagonal_where_the_small_matrix_had_one(
    size: tuple[int, int], read: tuple[int, int]
) -> None:
    expected = np.full(size, np.nan)
    for i, j in np.ndindex(size):
        if any(j - i == column - row for row, column in np.ndindex(read)):
            expected[i, j] = j - i
    np.testing.assert_array_equal(abc_index(*size, read), expected)


def test_the_learned_bias_is_a_mean_over_queries_and_stands_beside_the_lines_of_the_same_column() -> None:
    """The units' line, offset 0, stands at RPE's offset 1; a line one column to its right at 0."""
    model = build(replace(TINY, position=Relative(CLIP), source_index="left")).eval()
    lines = [("cross", "antidiagonal", offset, share) for offset, share in ((0, 0.5), (1, 0.25), (9, 0.1))]
    lines += [("self", "diagonal", 0, 0.75), ("cross", "vertical", 0, 0.875)]
    frame = pd.DataFrame(lines, columns=["attention", "direction", "offset", "share"])
    table = connections.by_offset(model, SimpleNamespace(lines=frame, batch=BATCH), 2).set_index("offset")  # type: ignore[arg-type]
    assert table.ABC.to_dict() == {2: 0.0, 1: 0.25, 0: 0.5, -1: 0.0, -2: 0.0}
    attention = model.decoder.layers[0].cross_attention
    inputs: list[torch.Tensor] = []
    handle = attention.query.register_forward_pre_hook(lambda _module, given: inputs.append(given[0]))
    with torch.no_grad():
        model(BATCH.source, BATCH.target[:, :-1], BATCH.layout)
        queries = (inputs[0] @ attention.query.weight.T + attention.query.bias).flatten(0, 1)
    handle.remove()
    for column, value in table.RPE.items():
        vector = attention.position.table[1 - int(column) + CLIP]  # type: ignore[union-attr, index]
        heads = [torch.stack([row[4 * h : 4 * h + 4] @ vector / 2 for row in queries]).mean().item() for h in (0, 1)]
        assert value == pytest.approx(max(heads), abs=1e-5)


CROSS = (Line("cross", 0, 0, "antidiagonal", "operand 1", 0, -0.5), Line("cross", 0, 1, "vertical", "&", 0, -0.25))
SELF = (Line("self", 0, 0, "diagonal", "output", 0, -0.5), Line("self", 0, 1, "diagonal", "output", -1, -0.25))


@pytest.mark.parametrize(("name", "lines"), [("self", SELF), ("cross", CROSS)])
def test_a_change_of_the_bias_is_the_same_for_every_input_and_one_of_weights_is_that_of_its_cells(
    name: Attention, lines: tuple[Line, ...]
) -> None:
    model, other = build(seed=0), build(seed=1)
    change = logit_change(model, model.with_bias(Lines(2, lines)), name, BATCH)
    matrix = Lines(2, lines).dense(BATCH.layout, name, 0, 2)
    seen = torch.ones_like(matrix).tril() if name == "self" else torch.ones_like(matrix)
    assert change["spread"] == pytest.approx(0.0, abs=1e-6)
    assert change["closed"] == pytest.approx(matrix[seen > 0].isinf().float().mean().item())
    first, second = (attention_of(each, BATCH).logits[name, 0].numpy() for each in (model, other))
    cells = [second[:, h, i, j] - first[:, h, i, j] for h, i, j in np.argwhere(seen.numpy())]
    spread = logit_change(model, other, name, BATCH)["spread"]
    assert 1e-3 < spread == pytest.approx(np.mean([cell.std(ddof=1) for cell in cells]), rel=1e-4)


@pytest.mark.parametrize("name", ENCODER_DECODER)
def test_one_attention_adapted_alone_is_asked_with_the_inputs_it_had(name: Attention) -> None:
    """Equation 3 is about equal inputs; the queries of cross-attention would carry self-attention's change."""
    parent, adapted = build(), build(seed=1)
    before, after = (getattr(each.decoder.layers[0], f"{name}_attention") for each in (parent, adapted))
    inputs: dict[str, torch.Tensor] = {}
    for part in ("query", "key"):
        getattr(before, part).register_forward_pre_hook(lambda _, given, part=part: inputs.update({part: given[0]}))
    attention_of(parent, BATCH)
    with torch.inference_mode():
        query, key = after.split(after.query(inputs["query"])), after.split(after.key(inputs["key"]))
        expected = query @ key.transpose(2, 3) / query.shape[-1] ** 0.5
    logits = attention_of(adapted_in_one(parent, adapted, name), BATCH).logits[name, 0]
    torch.testing.assert_close(logits[logits.isfinite()], expected[logits.isfinite()])
