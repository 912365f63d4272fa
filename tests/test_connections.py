"""Relative position encoding and LoRA beside calibration: index matrices, learned biases, changes of logits."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from helpers import SAMPLER, TINY, build

from abc_nb.analysis import connections
from abc_nb.analysis.connections import (
    abc_index,
    adapted_in_one,
    learned_by_offset,
    logit_change,
    rpe_index,
    same_index,
)
from abc_nb.analysis.results import Results
from abc_nb.bias.base import Attention
from abc_nb.bias.lines import Line, Lines
from abc_nb.model.positions import Relative, RelativeAttention
from abc_nb.model.transformer import ModelConfig, Transformer
from abc_nb.training.evaluation import record

ATTENTIONS: list[Attention] = ["self", "cross"]
CLIP = 3
RELATIVE = replace(TINY, decoder_layers=2, position=Relative(CLIP), source_index="left")
BATCH = SAMPLER.test_batch(3, 6, seed=0)

# ---- index matrices ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("queries", "keys", "clip"), [(4, 6, 2), (6, 4, 3), (1, 5, 0), (5, 5, 9)])
def test_the_index_of_relative_positions_is_the_clipped_offset(queries: int, keys: int, clip: int) -> None:
    expected = [[min(max(j - i, -clip), clip) for j in range(keys)] for i in range(queries)]
    np.testing.assert_array_equal(rpe_index(queries, keys, clip), expected)


SIZES = [((4, 6), (4, 6)), ((4, 6), (2, 3)), ((7, 5), (3, 3)), ((3, 3), (6, 7)), ((5, 9), (1, 1))]


@pytest.mark.parametrize(("size", "read"), SIZES)
def test_the_index_of_calibration_is_the_diagonal_where_the_small_matrix_had_one(
    size: tuple[int, int], read: tuple[int, int]
) -> None:
    expected = np.full(size, np.nan)
    for i in range(size[0]):
        for j in range(size[1]):
            if any(j - i == column - row for row in range(read[0]) for column in range(read[1])):
                expected[i, j] = j - i
    np.testing.assert_array_equal(abc_index(*size, read), expected)


@pytest.mark.parametrize(("size", "read"), SIZES)
def test_both_indices_are_the_same_on_the_diagonals_that_were_read(
    size: tuple[int, int], read: tuple[int, int]
) -> None:
    assert same_index(*size, read)


@pytest.mark.parametrize("wrong", [1.0, np.nan])
def test_indices_that_differ_in_one_cell_are_not_the_same(wrong: float, monkeypatch: pytest.MonkeyPatch) -> None:
    changed = abc_index(4, 6, (3, 4))
    changed[2, 2] = wrong
    monkeypatch.setattr(connections, "abc_index", lambda *_: changed)
    assert not same_index(4, 6, (3, 4))


# ---- what relative positions learn ------------------------------------------------------------------


@pytest.mark.parametrize("name", ATTENTIONS)
def test_the_learned_bias_is_the_mean_of_queries_times_the_table(name: Attention) -> None:
    model = build(RELATIVE).eval()
    found = learned_by_offset(model, BATCH, name).set_index(["layer", "head", "offset"]).value
    assert len(found) == 2 * 2 * (2 * CLIP + 1)
    for layer, part in enumerate(model.decoder_layers):
        attention = part.self_attention if name == "self" else part.cross_attention
        inputs: list[torch.Tensor] = []
        handle = attention.query.register_forward_pre_hook(lambda _module, given, kept=inputs: kept.append(given[0]))
        with torch.no_grad():
            model(BATCH.source, BATCH.target[:, :-1], BATCH.layout)
        handle.remove()
        assert isinstance(attention.position, RelativeAttention)
        query = (inputs[0] @ attention.query.weight.T + attention.query.bias).detach()
        for head in range(2):
            for offset in range(-CLIP, CLIP + 1):
                vector = attention.position.table[offset + CLIP]
                terms = [row[4 * head : 4 * head + 4] @ vector / 2 for row in query.flatten(0, 1)]
                expected = torch.stack(terms).mean().item()
                assert found[layer + 1, head + 1, offset] == pytest.approx(expected, abs=1e-5)


def test_the_learned_bias_is_what_is_added_to_the_logits() -> None:
    """Where keys are zero and all queries the same, it is all that the logits hold."""
    model = build(replace(RELATIVE, decoder_layers=1)).eval()
    (layer,) = model.decoder_layers
    with torch.no_grad():
        for parameter in (layer.cross_attention.query.weight, *layer.cross_attention.key.parameters()):
            parameter.zero_()
    logits = record(model, BATCH).logits["cross", 0]
    found = learned_by_offset(model, BATCH).set_index(["head", "offset"]).value
    index = rpe_index(*logits.shape[2:], CLIP)
    assert len(set(index.flatten().tolist())) == 2 * CLIP + 1
    for head in range(2):
        expected = np.vectorize(lambda offset, head=head: found[head + 1, offset])(index)
        np.testing.assert_allclose(logits[0, head].numpy(), expected, atol=1e-5)


def test_calibrated_antidiagonals_are_counted_from_the_offset_of_relative_positions() -> None:
    """The units' line, offset 0, has the offset 1; a line one column to its right has the offset 0."""

    class Study:
        @property
        def lines(self) -> pd.DataFrame:
            lines = [("cross", "antidiagonal", offset, share) for offset, share in ((0, 0.5), (1, 0.25), (9, 0.1))]
            lines += [("self", "diagonal", 0, 0.75), ("cross", "vertical", 0, 0.875)]
            frame = pd.DataFrame(lines, columns=["attention", "direction", "offset", "share"])
            return frame.assign(layer=1, head=2)

    found = connections.lines_by_offset(Study(), clip=3)  # type: ignore[arg-type]
    assert {row.offset: row.share for row in found.itertuples()} == {1: 0.5, 0: 0.25}


# ---- changes of logits ------------------------------------------------------------------------------

CROSS = (Line("cross", 0, 0, "antidiagonal", "operand 1", 0, -0.5), Line("cross", 0, 1, "vertical", "&", 0, -0.25))
SELF = (Line("self", 0, 0, "diagonal", "output", 0, -0.5), Line("self", 0, 1, "diagonal", "output", -1, -0.25))


def change_of(before: Transformer, after: Transformer) -> pd.DataFrame:
    return pd.DataFrame([logit_change(before, after, name, BATCH) for name in ATTENTIONS]).set_index("attention")


@pytest.mark.parametrize(("name", "lines"), [("self", SELF), ("cross", CROSS)])
def test_a_change_of_the_bias_is_the_same_for_every_input(name: Attention, lines: tuple[Line, ...]) -> None:
    model = build(ModelConfig(width=8, heads=2, feed_forward=16, decoder_layers=1))
    found = change_of(model, model.with_bias(Lines(2, lines)))
    matrix = Lines(2, lines).dense(BATCH.layout, name, 0, 2)
    assert found["mean"][name] == pytest.approx(matrix[matrix.isfinite()].abs().mean().item(), rel=1e-5)
    assert found.spread[name] == pytest.approx(0.0, abs=1e-6)
    before = torch.ones_like(matrix, dtype=torch.bool)
    before = before.tril() if name == "self" else before
    assert found.closed[name] == pytest.approx(matrix[before].isinf().float().mean().item())


@pytest.mark.parametrize("name", ATTENTIONS)
def test_a_change_of_a_query_weight_differs_between_inputs(name: Attention) -> None:
    model, other = build(), build()
    (layer,) = other.decoder_layers
    with torch.no_grad():
        (layer.self_attention if name == "self" else layer.cross_attention).query.weight.mul_(1.5)
    found = change_of(model, other)
    assert found.spread[name] > 1e-3
    assert found["mean"][name] > 1e-3


def test_models_that_are_the_same_differ_nowhere() -> None:
    found = change_of(build(), build())
    assert (found == 0).all(axis=None)


def test_mean_and_spread_are_those_of_the_cells_one_by_one() -> None:
    model, other = build(seed=0), build(seed=1)
    records = record(model, BATCH), record(other, BATCH)
    found = change_of(model, other)
    for name in ATTENTIONS:
        one, two = (each.logits[name, 0].numpy() for each in records)
        sizes, spreads = [], []
        for head in range(2):
            for i in range(one.shape[2]):
                for j in range(i + 1 if name == "self" else one.shape[3]):
                    change = two[:, head, i, j] - one[:, head, i, j]
                    sizes.append(np.abs(change).mean())
                    spreads.append(change.std(ddof=1))
        assert found["mean"][name] == pytest.approx(np.mean(sizes), rel=1e-4)
        assert found.spread[name] == pytest.approx(np.mean(spreads), rel=1e-4)


@pytest.mark.parametrize("name", ATTENTIONS)
def test_one_attention_adapted_alone_is_asked_with_the_inputs_it_had(name: Attention) -> None:
    """Equation 3 is about equal inputs; the queries of cross-attention would carry self-attention's change."""
    parent, adapted = build(), build()
    with torch.no_grad():
        for attention in (adapted.decoder_layers[0].self_attention, adapted.decoder_layers[0].cross_attention):
            attention.query.weight.mul_(1.5)
            attention.key.weight.add_(0.1)
    inputs: dict[str, torch.Tensor] = {}
    layer = parent.decoder_layers[0]
    before, after = (
        (each.self_attention if name == "self" else each.cross_attention) for each in (layer, adapted.decoder_layers[0])
    )
    for part in ("query", "key"):
        getattr(before, part).register_forward_pre_hook(
            lambda _module, given, part=part: inputs.__setitem__(part, given[0])
        )
    record(parent, BATCH)
    with torch.inference_mode():
        query, key = after.split(after.query(inputs["query"])), after.split(after.key(inputs["key"]))
        expected = query @ key.transpose(2, 3) / query.shape[-1] ** 0.5
    found = record(adapted_in_one(parent, adapted, name), BATCH).logits[name, 0]
    seen = found.isfinite()
    assert seen.any()
    torch.testing.assert_close(found[seen], expected[seen])


@pytest.mark.parametrize(("shipped", "origin"), [(True, "shipped"), (False, "any")])
def test_lora_is_compared_with_the_abc_of_the_same_plain_model(
    shipped: bool, origin: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plain model that was trained here is not the one that shipped LoRA was made from."""
    adapted = SimpleNamespace(manifest={"shipped": shipped}, model=lambda: "adapted")
    monkeypatch.setattr(
        Results, "one", lambda self, name: adapted if name == "parity-lora" else f"{name}, {self.origin}"
    )
    monkeypatch.setattr(connections, "CalibrationStudy", lambda run: run)
    monkeypatch.setattr(connections, "changes", lambda study, model: (study, model))
    found = connections.on_parity(Results("quick", "any", [0]))
    assert found == (f"parity-abc, {origin}", "adapted")
