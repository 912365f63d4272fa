"""Certificates: the contexts that are tried are those that occur, and what is said of them is so."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from certifying import BIASES, POSITIONS, TASKS, Contexts, bias_of, lines_of, model_of, problems, sampler_of

from abc_nb import InputError, certify_model
from abc_nb.bias import ALiBi, Bias, Causal, Window
from abc_nb.bias.lines import Lines
from abc_nb.certificates.certify import can_be_certified, weights_of
from abc_nb.certificates.checking import check as checking
from abc_nb.certificates.checking import enumerate as enumerating
from abc_nb.certificates.checking.check import check
from abc_nb.certificates.checking.forward import Forward
from abc_nb.certificates.checking.geometry import Facts, Width
from abc_nb.certificates.contexts import Block
from abc_nb.certificates.reach import shapes
from abc_nb.common.config import to_data
from abc_nb.model.positions import NoPosition, PositionEncoding, Sinusoidal
from abc_nb.model.transformer import ModelConfig, Transformer
from abc_nb.problems.sampling import Sampler, make_batch
from abc_nb.problems.tasks import Task
from abc_nb.training.answers import answers
from abc_nb.training.evaluation import exact_match

NOWHERE = NoPosition()
CASES = [  # of every task and bias one position; the other one is long
    pytest.param(task, kind, position, marks=[] if (i + j + k) % 2 == 0 else [pytest.mark.long])
    for i, task in enumerate(TASKS)
    for j, kind in enumerate(BIASES)
    for k, position in enumerate(POSITIONS)
] + [pytest.param("n-by-2", "lines", NOWHERE)]


@pytest.mark.parametrize("task", [*TASKS, "listops-sm", "listops-min", "n-by-2"])
def test_the_automaton_writes_the_task_answers(task: str) -> None:
    sampler = sampler_of(task, aligned=False)
    batch, rules = problems(sampler, 30, 50), sampler.task.automaton()
    for row in range(50):
        operands = batch.operands(torch.tensor([row]), sampler.task)
        factor = [digits[0] for digits in operands if digits.shape[1] < 30]
        state = next(each for each in rules.start if not factor or (rules.factor[each] == factor[0]).all())
        long = [digits for digits in operands if digits.shape[1] == 30]
        for place in range(30):
            read = [digits[0, place] for digits in long]
            chosen = int(np.flatnonzero((rules.digits == read).all(1))[0])
            assert rules.output[state, chosen] == batch.target[row, place + 1]
            state = rules.following[state, chosen]


@pytest.mark.slow
@pytest.mark.parametrize(("task", "kind", "position"), CASES)
@torch.inference_mode()
def test_contexts_of_long_problems_are_enumerated_with_the_same_logits(
    task: str, kind: str, position: PositionEncoding
) -> None:
    sampler = sampler_of(task, aligned=kind == "window")
    model = model_of(sampler, bias_of(task, kind), position)
    found, listed = Contexts(model, sampler), shapes(model, sampler, sampler.task.automaton().settled)
    for width in {found.known.narrowest, found.known.narrowest + 1, found.known.widest + 7}:
        batch = problems(sampler, width, 12)
        logits = model(batch.source, batch.target[:, :-1], batch.layout)
        for step in range(batch.layout.target_length):
            shape, block = found.at(batch, step)
            assert shape in listed
            rows = np.column_stack([block.values, block.right]).tolist()
            assert {tuple(row) for row in rows} <= found.of(shape)
            torch.testing.assert_close(found.states.logits(shape, block), logits[:, step], atol=2e-4, rtol=1e-4)


def every_window(length: int) -> list[int]:
    """Digits in base 3 in which every sequence of so many digits occurs once (a de Bruijn sequence, greedily)."""
    digits, seen = [0] * length, {(0,) * length}
    while True:
        following = [(*digits[len(digits) - length + 1 :], digit) for digit in (2, 1, 0)]
        new = next((window for window in following if window not in seen), None)
        if new is None:
            return digits
        seen.add(new)
        digits.append(new[-1])


@torch.inference_mode()
def test_one_number_that_holds_every_window_of_digits_is_covered() -> None:
    """All windows of five digits, twice: an odd number of digits, so that residues differ."""
    sampler = sampler_of("successor", aligned=False)
    model = model_of(sampler, lines_of("successor"), Sinusoidal(2))
    windows = every_window(5)
    assert len({*zip(*(windows[i:] for i in range(5)), strict=False)}) == 3**5 and len(windows) % 2 == 1
    number = np.array([[*windows, *windows, 0]])
    batch, found = make_batch(sampler.task, [number], number.shape[1], "natural"), Contexts(model, sampler)
    logits, met = model(batch.source, batch.target[:, :-1], batch.layout)[0], {}
    for step in range(batch.layout.target_length):
        shape, block = found.at(batch, step)
        met.setdefault(shape, []).append((step, block))
    for shape, parts in met.items():
        block = Block(np.concatenate([block.values for _, block in parts]), np.array([-1]))
        rows = {(*one.values[0].tolist(), int(one.right[0])) for _, one in parts}
        assert rows <= found.of(shape)
        steps = [step for step, _ in parts]
        torch.testing.assert_close(found.states.logits(shape, block), logits[steps], atol=2e-4, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(("task", "kind", "position"), CASES)
def test_the_independent_check_agrees(task: str, kind: str, position: PositionEncoding) -> None:
    sampler = sampler_of(task, aligned=kind == "window")
    model = model_of(sampler, bias_of(task, kind), position)
    found = certify_model(model, sampler)
    checked = check(asdict(found), weights_of(model), to_data(model.config.bias))
    assert checked.agrees
    assert (checked.contexts, checked.wrong) == (found.contexts, found.wrong)
    assert found.wrong > 0  # weights are random


@pytest.mark.slow
@pytest.mark.parametrize("kind", BIASES)
def test_a_problem_is_right_exactly_if_all_its_contexts_are(kind: str) -> None:
    """Of a model that gets some problems right: the wrong contexts explain every failure and nothing else."""
    sampler = sampler_of("parity", aligned=False)
    model = model_of(sampler, bias_of("parity", kind), NoPosition())
    learn(model, sampler)
    found, batch = Contexts(model, sampler), problems(sampler, 20, 300, seed=1)
    right = torch.ones(300, dtype=torch.bool)
    with torch.inference_mode():
        for step in range(batch.layout.target_length):
            shape, block = found.at(batch, step)
            right &= found.states.logits(shape, block).argmax(-1) == torch.from_numpy(block.right)
    assert torch.equal(right, exact_match(model, batch))
    assert 0 < right.sum() < 300


def learn(model: Transformer, sampler: Sampler) -> None:
    """Train until some of 300 problems are right and some wrong."""
    optimizer, batch = torch.optim.AdamW(model.parameters(), lr=0.003), problems(sampler, 20, 300)
    for _ in range(300):
        if 0.1 < exact_match(model, batch).float().mean() < 0.9:
            return
        logits = model(batch.source, batch.target[:, :-1], batch.layout)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch.target[:, 1:].flatten()).backward()
        optimizer.step()


@pytest.mark.slow
@pytest.mark.parametrize("task", [*TASKS, "n-by-2"])
def test_counterexamples_are_wrong_when_decoded(task: str) -> None:
    sampler = sampler_of(task, aligned=False)
    model = model_of(sampler, lines_of(task), NoPosition())
    examples = certify_model(model, sampler).counterexamples
    assert examples
    for example in examples[:5]:
        sampler.task.read(example.problem)
        if not example.zeros:
            assert next(answers(model, sampler, [example.problem])) == example.answer
            assert sampler.task.right_answer(example.problem) == example.right


@pytest.mark.slow
def test_a_check_does_not_accept_other_weights_or_a_swapped_line() -> None:
    sampler = sampler_of("successor", aligned=False)
    model = model_of(sampler, lines_of("successor"), NoPosition())
    data, bias, weights = asdict(certify_model(model, sampler)), to_data(model.config.bias), weights_of(model)
    changed = {name: array.copy() for name, array in weights.items()}
    changed["head.bias"][0] += 1e-3
    with pytest.raises(InputError, match="other weights"):
        check(data, changed, bias)
    lines = [bias["lines"][1], bias["lines"][0], *bias["lines"][2:]]
    with pytest.raises(InputError, match="another bias"):
        check(data, weights, bias | {"lines": lines})
    assert not check(data | {"contexts": data["contexts"] - 1}, weights, bias).agrees
    assert not check(data | {"wrong": 0, "certified": True}, weights, bias).agrees
    with pytest.raises(InputError, match="no certificate"):
        check({"facts": {}}, weights, bias)


@pytest.mark.slow
def test_a_flipped_digit_of_the_enumeration_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    sampler = sampler_of("successor", aligned=False)
    model = model_of(sampler, lines_of("successor"), NoPosition())
    data, original = asdict(certify_model(model, sampler)), enumerating.contexts

    def flipped(question: enumerating.Question) -> Iterator[tuple[dict, np.ndarray]]:
        for values, right in original(question):
            other = right.copy()
            other[0] = (other[0] + 1) % 3
            yield values, other

    monkeypatch.setattr(checking, "contexts", flipped)
    assert not check(data, weights_of(model), to_data(model.config.bias)).agrees


def test_the_check_has_its_own_logits_right() -> None:
    """Every output of a whole problem, computed from its tree alone, against the model's pass in float64."""
    sampler = sampler_of("addition", aligned=True)
    model = model_of(sampler, Window(1), Sinusoidal(3)).double()
    batch = problems(sampler, 16, 5)
    with torch.inference_mode():
        logits = model(batch.source, batch.target[:, :-1], batch.layout)
    facts = Facts("addition", 3, "aligned", "right", 3, True, 2, 2, "pre", True, sampler.task.training_width)
    width, forward = Width(facts, to_data(Window(1)), 16, 3), Forward(weights_of(model), facts)
    for step in range(17):
        tree, values = width.tree(2, step), {}
        for atom in enumerating.atoms(tree):
            kind, _, place = atom
            column = batch.target[:, place + 1] if kind == "output" else batch.source[:, width.columns.index(atom)]
            values[atom] = column.numpy()
        np.testing.assert_allclose(forward.logits(tree, values, 5), logits[:, step].numpy(), atol=1e-5)


def refused(
    bias: Bias | None = None, position: PositionEncoding = NOWHERE, encoder: int = 0, task: str = "successor"
) -> str:
    sampler = Sampler(Task(task))
    config = ModelConfig(16, 2, 32, encoder, 2, position=position, bias=bias or Window(1))
    model = Transformer(config, len(sampler.task.vocabulary))
    with pytest.raises(InputError) as caught:
        certify_model(model, sampler)
    assert not can_be_certified(model, sampler)
    return str(caught.value)


def test_what_has_no_certificate_is_refused_in_a_sentence() -> None:
    assert "never repeat" in refused(position=Sinusoidal())
    assert "encoder layers" in refused(encoder=1)
    assert "looks at all keys" in refused(Causal())
    assert "looks at all keys" in refused(ALiBi())
    assert "looks at all keys" in refused(replace(lines_of("successor"), floor=-5.0))
    assert "looks at all keys" in refused(Lines(2, ()))
    assert "few states" in refused(task="direct-n-by-n")
    assert "few states" in refused(task="parity-classification")
    assert "few states" in refused(task="n-by-3")
    whole = [replace(line, span="whole", direction="diagonal", offset=1) for line in lines_of("successor").lines[:1]]
    assert "grows apart" in refused(Lines(2, (*lines_of("successor").lines, *whole), empty="closed"))
    with pytest.raises(InputError, match="needs a Transformer"):
        certify_model(None, None)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", BIASES)
@pytest.mark.parametrize("task", TASKS)
def test_that_a_model_can_be_certified_is_known_before_its_contexts_are_tried(task: str, kind: str) -> None:
    sampler = sampler_of(task, aligned=kind == "window")
    assert can_be_certified(model_of(sampler, bias_of(task, kind), NOWHERE), sampler)
    assert not can_be_certified(
        model_of(sampler, bias_of(task, kind), NOWHERE), replace(sampler, arrangement="as-written")
    )
