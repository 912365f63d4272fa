"""Contexts are counted without being listed, tried in slices that share a query, and a killed process goes on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from certifying import BIASES, TASKS, bias_of, model_of, sampler_of

from abc_nb import InputError, certify_model
from abc_nb.certificates import all_contexts, shared_queries
from abc_nb.certificates import contexts as listing
from abc_nb.certificates.reach import shapes
from abc_nb.certificates.shapes import Atom, Shape
from abc_nb.certificates.shared_queries import Shared
from abc_nb.certificates.states import States
from abc_nb.certificates.tried import Tried
from abc_nb.model.positions import NoPosition
from abc_nb.model.transformer import Transformer
from abc_nb.problems.sampling import Sampler


def small(task: str, kind: str) -> tuple[Transformer, Sampler]:
    sampler = sampler_of(task, aligned=kind == "window")
    return model_of(sampler, bias_of(task, kind), NoPosition()), sampler


@pytest.mark.parametrize(("task", "kind"), [*product(TASKS, BIASES), ("n-by-2", "lines")])
def test_slices_hold_every_context_once_and_are_counted(task: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "SLICE", 40)
    model, sampler = small(task, kind)
    rules = sampler.task.automaton()
    for shape in shapes(model, sampler, rules.settled):
        whole, parts = rows_of(shape, rules, {}), []
        for fixed in listing.slices(shape, rules):
            found = rows_of(shape, rules, fixed)
            assert len(found) == listing.count(shape, rules, fixed) > 0
            parts += found
        assert sorted(parts) == sorted(whole) and len({*whole}) == len(whole) == listing.count(shape, rules)


def rows_of(shape: Shape, rules: listing.Automaton, fixed: Mapping[Atom, int]) -> list[tuple[int, ...]]:
    blocks = listing.contexts(shape, rules, fixed)
    rows = [row for block in blocks for row in np.column_stack([block.values, block.right]).tolist()]
    assert all(row[shape.atoms.index(atom)] == value for row in rows for atom, value in fixed.items())
    return [tuple(row) for row in rows]


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("kind", BIASES)
@torch.inference_mode()
def test_contexts_that_share_a_query_have_the_same_logits_as_alone(
    task: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_queries, "FEW", 0)
    monkeypatch.setattr(shared_queries, "ROWS", 16)  # several batches, with groups that are filled up
    model, sampler = small(task, kind)
    rules = sampler.task.automaton()
    together, alone = Shared(model, rules), States(model, rules)
    for shape in shapes(model, sampler, rules.settled):
        for block in listing.contexts(shape, rules):
            torch.testing.assert_close(together.logits(shape, block), alone.logits(shape, block), atol=1e-4, rtol=1e-4)


def test_a_killed_certificate_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "SLICE", 3)
    monkeypatch.setattr(all_contexts, "LONG", 0)
    model, sampler = small("successor", "lines")
    whole, path, made = certify_model(model, sampler), tmp_path / "unfinished", list[int]()
    original = all_contexts.try_slice

    def watched(states: States, shape: Shape, fixed: Mapping[Atom, int]) -> Tried:
        made.append(1)
        if len(made) == 20:
            raise KeyboardInterrupt
        return original(states, shape, fixed)

    monkeypatch.setattr(all_contexts, "try_slice", watched)
    with pytest.raises(KeyboardInterrupt):
        certify_model(model, sampler, path=path)
    path.write_text(path.read_text() + '["3 1", [', "utf-8")  # half a line, as a killed process leaves it
    again = certify_model(model, sampler, path=path)
    attempts = len(made)
    assert asdict(again) | {"seconds": 0} == asdict(whole) | {"seconds": 0}
    assert not path.exists()
    made.clear()
    made += [1] * 20
    certify_model(model, sampler, path=path)
    assert len(made) - 20 == attempts - 1  # one attempt was killed, none was made twice


def test_the_file_of_another_model_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(all_contexts, "LONG", 0)
    path = tmp_path / "unfinished"
    path.write_text('another model\n["0", [1, 0, 5.0, [], []]]\n')
    model, sampler = small("parity", "lines")
    assert certify_model(model, sampler, path=path).contexts == certify_model(model, sampler).contexts


def test_too_many_contexts_are_refused_with_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    model, sampler = small("successor", "lines")
    many = certify_model(model, sampler).contexts
    monkeypatch.setattr(all_contexts, "MOST", many - 1)
    with pytest.raises(InputError, match=f"there are {many:,} contexts"):
        certify_model(model, sampler)
