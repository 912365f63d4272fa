"""Problems that are made to hold given contexts of a table's cells."""

from __future__ import annotations

import numpy as np
import pytest
from test_certificates_tables import UNNEEDED, small, token_at

from abc_nb.bias.lines import Line
from abc_nb.certificates import tables
from abc_nb.certificates import tried as tried_contexts
from abc_nb.certificates.practice_tables import practice_of_tables
from abc_nb.certificates.repair import Repair
from abc_nb.certificates.tables import TableShape
from abc_nb.certificates.tried import Tried
from abc_nb.model.transformer import Transformer
from abc_nb.problems.sampling import Batch, Sampler, make_batch
from abc_nb.problems.tasks import Task, Width
from abc_nb.training.progress import TrainingConfig

Context = tuple[TableShape, tuple[int, ...]]


def held_in(model: Transformer, sampler: Sampler, batch: Batch, size: Width) -> list[Context]:
    """The contexts of all steps of the batch's first problem."""
    steps = tables.Steps(model, sampler, size)
    found = []
    for step in range(batch.layout.target_length):
        shape = steps.shape(step)
        row, column = divmod(step, steps.columns)
        found.append((shape, tuple(token_at(batch, shape, atom, row, column) for atom in shape.names)))
    return found


def tried(model: Transformer, sampler: Sampler, contexts: list[Context]) -> list[Tried]:
    where = tables.shapes(model, sampler)
    return [Tried(shape, where[shape], wrong=1, examples=[(np.array(values), 0)]) for shape, values in contexts]


@pytest.mark.parametrize(("base", "more"), [(10, ()), (10, UNNEEDED[:2]), (3, UNNEEDED), (16, ()), (2, UNNEEDED[2:])])
def test_a_context_of_a_training_problem_is_found_again(base: int, more: tuple[Line, ...]) -> None:
    task = Task("n-by-n", base)
    model, sampler, rng = small(task, more=more), Sampler(task, width_count=3), np.random.default_rng(1)
    size = max(sampler.widths)
    operands = task.draw(np.empty(0, np.int64), 1, size, rng)
    wanted = held_in(model, sampler, make_batch(task, operands, size, "natural"), size)
    (first, second, sizes), left = practice_of_tables(sampler, tried(model, sampler, wanted))
    assert left == 0 and len(sizes) == len(wanted)
    for context, a, b, places in zip(wanted, first, second, sizes, strict=True):
        assert not a[places[0] :].any() and not b[places[1] :].any()
        batch = make_batch(task, [a[None, : places[0]], b[None, : places[1]]], tuple(places.tolist()), "natural")
        assert context in held_in(model, sampler, batch, tuple(places.tolist()))


def test_a_context_that_only_tall_products_have_is_found_in_the_tallest_ones() -> None:
    """Where a line follows the first factor from row to row and has passed its end, there are more rows than that."""
    task = Task("n-by-n", 3)
    model, sampler = small(task, more=UNNEEDED[2:3]), Sampler(task, width_count=3)
    operands = task.draw(np.empty(0, np.int64), 1, (2, 6), np.random.default_rng(0))
    context = held_in(model, sampler, make_batch(task, operands, (2, 6), "natural"), (2, 6))[-4]
    (_, _, sizes), left = practice_of_tables(sampler, tried(model, sampler, [context]))
    assert left == 0 and (sizes[:, 0] < sizes[:, 1]).all() and (sizes <= 6).all()


def test_contexts_that_no_product_has_are_left() -> None:
    """No row of zeros carries anything."""
    task = Task("n-by-n")
    model, sampler = small(task), Sampler(task, width_count=3)
    shape = next(shape for shape in tables.shapes(model, sampler) if len(shape.names) == 4)
    values = [0 if kind != "cell" else task.first_cell + 99 for kind, _, _ in shape.names]
    assert practice_of_tables(sampler, tried(model, sampler, [(shape, tuple(values))])) == ([], 1)


def test_a_repair_trains_on_factors_no_longer_than_in_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tried_contexts, "EXAMPLES", 3)
    task = Task("n-by-n", 2)
    sampler, sizes = Sampler(task, width_count=3), set()

    class Watched(Repair):
        def batch(self, step: int, size: int) -> Batch:
            found = super().batch(step, size)
            sizes.add(tuple(operand.places for operand in found.layout.operands))
            return found

    config = TrainingConfig(steps=8, batch=8, held_batch=8, warmup=1, hold=2, learned=2.0, validate_every=4)
    repair = Watched(small(task), sampler, config, seed=0, rounds=2)
    repair.run()
    assert repair.facts["wrong_before"] > 0 and repair.progress.step == 8
    most = max(sampler.widths)
    assert sizes and all(first <= most[0] and second <= most[1] for first, second in sizes)
