"""What ABC's bias is once it is read: wires, and values that do nothing on a head with one line."""

import torch

import abc_nb
from abc_nb.analysis import wiring
from abc_nb.analysis.results import Results

FOUND = Results("quick", "shipped", [0])


def test_heads_and_lines_are_counted_once() -> None:
    frame = wiring.wiring(FOUND).set_index("task")
    assert [*frame.index] == ["successor", "addition", "n-by-1", "parity"]
    for task, row in frame.iterrows():
        lines = abc_nb.load(f"{task}-abc-unpractised").table("lines")
        by_head = lines.groupby(["attention", "layer", "head"]).size()
        assert (row["lines"], row["one line"]) == (len(lines), (by_head == 1).sum())
        assert 0 < row["as by hand"] <= row["on digits"] <= len(by_head) <= row["heads"] == 32


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
