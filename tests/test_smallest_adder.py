"""The smallest proven adders: listed weights are right in all contexts, by two computations; random ones are not."""

import csv
import json
from itertools import product
from typing import Any

import pytest
import torch

from audit.check_adder import check, contexts
from audit.check_adder import tests as sums_right
from audit.smallest_adder import HERE, KEYS, SHAPES, Shape, begin, logits, margins
from audit.smallest_adder import contexts as all_contexts

ROWS = {row["model"]: row for row in csv.DictReader((HERE / "table.csv").read_text().splitlines())}
RECORDS = {name: json.loads((HERE / f"{name}.json").read_text()) for name, row in ROWS.items() if row["margin"]}


def tensors(record: dict[str, Any]) -> dict[str, torch.Tensor]:
    return {name: torch.tensor([weight], dtype=torch.double) for name, weight in record["weights"].items()}


@pytest.mark.parametrize("ends", [False, True])
def test_contexts_are_those_that_sums_meet(ends: bool) -> None:
    """All sums of one digit, and all of three whose units carry (9 + 9) or don't (0 + 0)."""
    met, edge = set(), 10 * ends
    hundreds = [(10 * a + units, 10 * b + units) for a, b in product(range(100), repeat=2) for units in (0, 9)]
    for a, b in [*hundreds, *product(range(10), repeat=2)]:
        x, y, z = ([edge, *map(int, reversed(f"{n:04d}")), edge] for n in (a, b, a + b))
        met |= {(x[i], y[i], x[i - 1], y[i - 1], z[i - 1], z[i]) for i in range(1, 5 + ends)}
    assert met == {(*context, token) for context, token in contexts(ends).items()}
    assert met == {tuple(row) for row in all_contexts(ends).tolist()}


@pytest.mark.parametrize("name", RECORDS)
def test_listed_weights_are_right_in_every_context(name: str) -> None:
    record, row = RECORDS[name], ROWS[name]
    result = check(record)
    lead = margins(tensors(record), all_contexts(record["shape"]["ends"]))
    assert result["wrong"] == 0 and 0 < result["error"] < result["margin"]
    assert abs(float(lead.min()) - result["margin"]) < result["error"]
    values = sum(weight.numel() for weight in tensors(record).values())
    assert (values, values + KEYS) == (int(row["values"]), int(row["values with the mask"]))
    assert result == pytest.approx({column: float(row[column]) for column in result})
    assert sums_right(record) == {"edge cases": 10, "random pairs": 10_000, "thousand digits": 10}


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_both_computations_agree_on_any_weights(shape: Shape) -> None:
    weights = {name: weight.detach().double() for name, weight in begin(shape, range(1)).items()}
    record = {"shape": {"ends": shape.ends}, "weights": {name: weight[0].tolist() for name, weight in weights.items()}}
    lead, result = margins(weights, all_contexts(shape.ends)), check(record)
    torch.testing.assert_close(float(lead.min()), result["margin"])
    assert result["wrong"] == int((lead <= result["error"]).sum()) > 0, "weights at random are wrong"
    assert logits(weights, torch.zeros(3, 5, dtype=torch.long)).shape == (1, 3, shape.tokens)
