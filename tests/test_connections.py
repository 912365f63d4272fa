"""Relative position encoding and LoRA beside calibration: index matrices, learned biases, changes of logits."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from helpers import SAMPLER, TINY, build

from abc_nb.analysis import connections
from abc_nb.analysis.connections import abc_index, adapted_in_one, logit_change
from abc_nb.bias.base import ENCODER_DECODER, Attention
from abc_nb.bias.lines import Line, Lines
from abc_nb.model.positions import Relative
from abc_nb.training.evaluation import record

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
def test_a_change_of_the_bias_is_the_same_for_every_input(name: Attention, lines: tuple[Line, ...]) -> None:
    model = build()
    change = logit_change(model, model.with_bias(Lines(2, lines)), name, BATCH)
    matrix = Lines(2, lines).dense(BATCH.layout, name, 0, 2)
    assert change["spread"] == pytest.approx(0.0, abs=1e-6)
    before = torch.ones_like(matrix, dtype=torch.bool)
    before = before.tril() if name == "self" else before
    assert change["closed"] == pytest.approx(matrix[before].isinf().float().mean().item())


@pytest.mark.parametrize("name", ENCODER_DECODER)
def test_the_spread_is_that_of_the_cells_one_by_one(name: Attention) -> None:
    model, other = build(seed=0), build(seed=1)
    change = logit_change(model, other, name, BATCH)
    one, two = (record(each, BATCH).logits[name, 0].numpy() for each in (model, other))
    kept = [two[:, h, i, j] - one[:, h, i, j] for h, i, j in np.ndindex(one.shape[1:]) if name == "cross" or j <= i]
    assert change["spread"] == pytest.approx(np.mean([cell.std(ddof=1) for cell in kept]), rel=1e-4)
    assert change["spread"] > 1e-3


@pytest.mark.parametrize("name", ENCODER_DECODER)
def test_one_attention_adapted_alone_is_asked_with_the_inputs_it_had(name: Attention) -> None:
    """Equation 3 is about equal inputs; the queries of cross-attention would carry self-attention's change."""
    parent, adapted = build(), build(seed=1)
    before, after = (getattr(each.decoder.layers[0], f"{name}_attention") for each in (parent, adapted))
    inputs: dict[str, torch.Tensor] = {}
    for part in ("query", "key"):
        getattr(before, part).register_forward_pre_hook(lambda _, given, part=part: inputs.update({part: given[0]}))
    record(parent, BATCH)
    with torch.inference_mode():
        query, key = after.split(after.query(inputs["query"])), after.split(after.key(inputs["key"]))
        expected = query @ key.transpose(2, 3) / query.shape[-1] ** 0.5
    logits = record(adapted_in_one(parent, adapted, name), BATCH).logits[name, 0]
    torch.testing.assert_close(logits[logits.isfinite()], expected[logits.isfinite()])
