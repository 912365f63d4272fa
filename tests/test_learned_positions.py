"""Learned absolute positions, Abacus embeddings and position coupling: which vector is added to which token."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from abc_nb.common.errors import InputError
from abc_nb.model.positions import Abacus, Coupling, Index, Learned, TableCoupling
from abc_nb.model.transformer import ModelConfig, Transformer
from abc_nb.problems.layouts import Layout, binary_aligned, binary_natural, table, unary
from abc_nb.problems.sampling import Sampler
from abc_nb.problems.tasks import Task
from abc_nb.training.progress import TrainingConfig
from abc_nb.training.trainer import Trainer

TINY = ModelConfig(width=8, heads=2, feed_forward=16, decoder_layers=1)


def build(position: Learned) -> Transformer:
    torch.manual_seed(0)
    return Transformer(replace(TINY, position=position), 15).eval()


def placed(position: Learned, layout: Layout) -> Index:
    index = Index(torch.arange(layout.source_length).flip(0), torch.arange(layout.target_length))
    return position.place(index, layout, 4, training=False)


# ---- learned ----------------------------------------------------------------------------------------


def test_a_learned_vector_of_the_index_is_added_to_each_token() -> None:
    model, layout = build(Learned(20)), unary(5)
    tokens = torch.randint(15, (2, layout.source_length), generator=torch.Generator().manual_seed(1))
    found = model.encode(tokens, model.frame(layout))
    words, table = model.embedding.weight, model.get_parameter("position.weight")
    assert table.shape == (20, 8)
    for sample in range(2):
        for column in range(layout.source_length):
            row = layout.source_length - 1 - column
            expected = 8**0.5 * (words[tokens[sample, column]] + table[row])
            torch.testing.assert_close(found[sample, column], expected)


def test_learned_positions_are_drawn_as_large_as_the_tokens() -> None:
    torch.manual_seed(0)
    table = Learned(500).table(64)
    assert table is not None
    numbers = table(torch.arange(500))
    assert abs(numbers.mean().item()) < 0.02
    assert numbers.std().item() == pytest.approx(1, abs=0.02)


def test_beyond_the_table_is_an_error_that_says_what_is_possible() -> None:
    model = build(Learned(12))
    longest, longer = unary(10), unary(11)
    assert longest.source_length == 12
    model(torch.zeros(1, 12, dtype=torch.long), torch.zeros(1, 11, dtype=torch.long), longest)
    for run in (lambda: model(torch.zeros(1, 13), torch.zeros(1, 12), longer), lambda: model.start(None, longer)):
        with pytest.raises(InputError, match="13 positions are too many: this model has learned vectors for 12"):
            run()


@pytest.mark.parametrize(("position", "widest"), [(Abacus(12, starts=1), 11), (Coupling(12, starts=1), 10)])
def test_beyond_its_places_is_an_error_in_training_and_in_evaluation(position: Abacus, widest: int) -> None:
    for layout in (unary(widest), binary_natural(widest, "*", 1), binary_aligned(widest, "+")):
        index = placed(position, layout)
        assert max(index.source.max(), index.target.max()) == 11
    for training in (True, False):
        layout = unary(widest + 1)
        index = Index(torch.arange(layout.source_length), torch.arange(layout.target_length))
        with pytest.raises(InputError, match="13 positions are too many: this model has learned vectors for 12"):
            position.place(index, layout, 4, training)


# ---- Abacus -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layout", "source", "target"),
    [
        (unary(3), [0, 3, 2, 1, 0], [0, 1, 2, 3]),  # $ 3 2 1 &
        (unary(2, "SM"), [0, 0, 2, 1, 0], [0, 1, 2]),  # $ SM 2 1 &
        (unary(3, outputs=1), [0, 3, 2, 1, 0], [0, 1]),
        (binary_natural(3, "+", 3), [0, 3, 2, 1, 0, 3, 2, 1, 0], [0, 1, 2, 3]),  # $ 3 2 1 + 3 2 1 &
        (binary_natural(3, "*", 1), [0, 3, 2, 1, 0, 1, 0], [0, 1, 2, 3]),  # $ 3 2 1 * 1 &
        (binary_aligned(3, "+"), [0, 0, 3, 3, 2, 2, 1, 1, 0], [0, 1, 2, 3]),  # $ + 3 3 2 2 1 1 &
    ],
)
def test_abacus_counts_the_digits_of_each_number_from_its_units(
    layout: Layout, source: list[int], target: list[int]
) -> None:
    index = placed(Abacus(starts=1), layout)
    assert (index.source.tolist(), index.target.tolist()) == (source, target)


@pytest.mark.parametrize("phase", [0, 7])
@pytest.mark.parametrize("position", [Abacus(), Coupling()])
@pytest.mark.parametrize("layout", [binary_natural(6, "+", 6), binary_aligned(6, "+")])
def test_digits_of_one_place_get_the_same_vector_in_operands_and_output(
    layout: Layout, position: Abacus, phase: int
) -> None:
    model = build(position)
    index, one = placed(position, layout), torch.full((1, layout.source_length), 5)
    frame = model.frame(layout)
    source = model.encode(one, frame, torch.tensor([[phase]]), layout.operands[0].stride)[0]
    target = model.embed(one[:, : layout.target_length], position.shifted(index.target, torch.tensor([[phase]])))[0]
    first, second = (source[operand.columns.tolist()] for operand in layout.operands)
    torch.testing.assert_close(first, second, rtol=0, atol=0)
    torch.testing.assert_close(first, target[1:], rtol=0, atol=0)  # the digit of place p is token p + 1
    assert len(first.unique(dim=0)) == 6


def test_what_is_no_digit_stays_at_zero_wherever_counting_starts() -> None:
    index = torch.tensor([0, 3, 2, 1, 0])
    shifted = Abacus().shifted(index, torch.tensor([[0], [4]]), stride=2)
    assert shifted.tolist() == [[0, 3, 2, 1, 0], [0, 7, 6, 5, 0]]


@pytest.mark.parametrize("encoding", [Abacus, Coupling])
def test_evaluation_starts_in_the_middle_of_trainings_starts_and_training_at_the_first(encoding: type[Abacus]) -> None:
    layout = unary(7)
    index = Index(torch.arange(layout.source_length), torch.arange(layout.target_length))
    first, middle = (encoding(starts=101).place(index, layout, 4, training) for training in (True, False))
    start = (101 - 8 - (encoding is Coupling)) // 2  # as many places below the number as above it
    for here, there in zip(first, middle, strict=True):
        assert there.tolist() == [place + start if place else 0 for place in here.tolist()]
    assert first.target.tolist() == [*range(encoding is Coupling, 8 + (encoding is Coupling))]
    longer = unary(120)  # than there are starts
    index = Index(torch.arange(longer.source_length), torch.arange(longer.target_length))
    once, again = (encoding(starts=101).place(index, longer, 4, training) for training in (True, False))
    assert once.source.tolist() == again.source.tolist() and once.target.tolist() == again.target.tolist()


@pytest.mark.parametrize("position", [Abacus(64, starts=50), Coupling(64, starts=50)])
def test_each_problem_of_a_training_step_starts_at_random_and_within_the_table(position: Abacus) -> None:
    sampler = Sampler(Task("addition"))
    trainer = Trainer(build(position), sampler, TrainingConfig(steps=4, batch=8, held_batch=8), seed=0)
    phases = [torch.as_tensor(trainer.phases(step, 500)) for step in range(2)]
    assert phases[0].shape == (500, 1)
    assert set(torch.cat(phases).flatten().tolist()) == {*range(50)}
    torch.testing.assert_close(torch.as_tensor(trainer.phases(0, 500)), phases[0], rtol=0, atol=0)
    table = position.table(8)
    assert table is not None
    table(position.shifted(torch.tensor(63), 49))  # the last place, from the last start
    with pytest.raises(IndexError):
        table(torch.tensor(64 + 49))


# ---- coupling ---------------------------------------------------------------------------------------


def papers_positions(a: str, b: str, answer: str) -> tuple[list[int], list[int]]:
    """Section 3, from start 1, as the authors count: of `a+b=` and of the answer, units first."""
    end = 1 + max(len(a), len(b)) + 1
    problem = [*range(end - len(a), end + 1), *range(end - len(b), end + 1)]
    return problem, [*range(end - len(answer), end)][::-1]


def test_coupled_positions_are_the_papers_counted_from_the_other_end() -> None:
    problem, answer = papers_positions("653", "049", "702")
    end = max(problem)
    index = placed(Coupling(starts=1), binary_natural(3, "+", 3))
    dollar, *middle, ampersand = index.source.tolist()
    assert (dollar, ampersand) == (0, 0)
    assert [*middle, index.target[0]] == [1 + end - position for position in problem]
    assert index.target[1:].tolist() == [1 + end - position for position in answer]


@pytest.mark.parametrize(
    ("layout", "source"),
    [
        (unary(3), [0, 4, 3, 2, 0]),  # $ 3 2 1 &
        (unary(2, "SM"), [0, 1, 3, 2, 0]),  # $ SM 2 1 &
        (binary_natural(3, "*", 1), [0, 4, 3, 2, 1, 2, 0]),  # $ 3 2 1 * 1 &
        (binary_aligned(2, "+"), [0, 1, 3, 3, 2, 2, 0]),  # $ + 2 2 1 1 &
    ],
)
def test_coupling_puts_the_operator_beside_the_units(layout: Layout, source: list[int]) -> None:
    index = placed(Coupling(starts=1), layout)
    assert index.source.tolist() == source
    assert index.target.tolist() == [*range(1, layout.target_length + 1)]


def papers_numbers(digits: int, rows: int) -> dict[str, tuple[int, int, int]]:
    """Cho et al. 2025, from start 1, of products: a sign before each row, and no row of sums of its own."""
    numbers = {f"a{place}": (1 + 1 + place, 0, 0) for place in range(digits)}
    numbers |= {f"b{row}": (0, 1 + row, 0) for row in range(rows)}
    for row in range(rows + 1):
        numbers[f"sign{row}"] = (1, 1 + row, 1 + row)
        numbers |= {f"{row},{column}": (2 + column, 1 + row, 2 + row + column) for column in range(digits + 1)}
    return numbers


@pytest.mark.parametrize(("digits", "rows"), [(3, 2), (2, 4), (1, 1)])
def test_numbers_of_a_table_are_the_papers_but_that_a_row_begins_with_the_end_of_the_last(
    digits: int, rows: int
) -> None:
    wanted = papers_numbers(digits, rows)
    layout = table((digits, rows), "*", (rows, digits + 1), (1,))
    index = placed(TableCoupling(starts=1), layout)
    first, second = (index.source[operand.columns.tolist()].tolist() for operand in layout.operands)
    assert first == [[*wanted[f"a{place}"]] for place in range(digits)]
    assert second == [[*wanted[f"b{row}"]] for row in range(rows)]
    assert {tuple(index.source[column].tolist()) for column, _ in layout.symbols} == {(0, 0, 0)}
    start, *cells = index.target.tolist()
    assert start == [*wanted["sign0"]]
    for number, cell in enumerate(cells):
        row, column = divmod(number, digits + 1)
        sign = wanted[f"sign{row + 1}"][:2] if column == digits else wanted[f"{row},{column}"][:2]
        assert cell == [*sign, wanted[f"{row},{column}"][2]]


def test_column_row_and_place_start_each_for_itself() -> None:
    position = TableCoupling(starts=7)
    moved = position.shifted(torch.tensor([[2, 1, 0], [0, 5, 6]]), torch.tensor([[3 + 4 * 7 + 6 * 49]]))
    assert moved.tolist() == [[[5, 5, 0], [0, 9, 12]]]
    assert position.phases() == 7**3


def test_positions_by_row_and_column_need_a_table() -> None:
    with pytest.raises(InputError, match="need an output that is a table"):
        placed(TableCoupling(), unary(3))
