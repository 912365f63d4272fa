"""`examples/minimal.py`: contexts by brute force, logits in Python's own integers, rules by plain Python."""

import copy
import io
import random
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from itertools import chain, product
from pathlib import Path
from typing import Any

import pytest
import torch

from abc_nb.certificates.certify import contexts_of
from abc_nb.certificates.contexts import Leaf, Shape
from abc_nb.problems import catalogue
from abc_nb.problems.machines import elementary
from abc_nb.problems.rules import Rule
from abc_nb.taught import spec_of

FILE = Path(__file__).parents[1] / "examples" / "minimal.py"
sys.path.insert(0, str(FILE.parent))
import minimal  # noqa: E402

pytestmark = pytest.mark.xdist_group("minimal")  # one worker trains what its tests share

RULES = {rule.name: rule for rule in minimal.RULES}
TWO, ONE = (range(3), range(3)), (range(3),)
SMALL = [  # rules of all kinds in base 3 or 2, with a width up to which all problems can be tried
    (minimal.Rule("sum", 3, TWO, lambda carry, a, b: divmod(a + b + carry, 3), extra=1), 4),
    (minimal.Rule("product", 3, ONE, lambda c, a, b: divmod(a * b + c, 3), constants=ONE, extra=2), 6),
    (minimal.Rule("quotient", 3, ONE, lambda c, a, b: divmod(3 * c + a, b)[::-1], constants=(range(1, 3),)), 6),
    (minimal.Rule("order", 3, TWO, lambda c, a, b: (c if a == b else 2 * (a > b),) * 2, recall=0, start=1), 3),
    (minimal.Rule("cells", 2, (range(2),), lambda _, *near: (0, sum(near) % 2), range(-1, 2), recall=0), 9),
    (minimal.Rule("ahead", 3, ONE, lambda c, *a: ((c + a[0]) % 2, (c + a[2]) % 3), range(3), 2, extra=1), 8),
]


def plainly(rule: Any, columns: list[tuple[int, ...]], constants: tuple[int, ...]) -> list[tuple[tuple[int, ...], int]]:
    """Contexts and right tokens of one problem, by indices alone."""
    places, mark = [*columns, *[(0,) * len(rule.rows)] * rule.extra], (-1,) * len(rule.rows)
    state, last, solution = rule.start, -1, []
    for place in range(len(places) + 1):
        sight = range(place + rule.reads.start - rule.recall, place + rule.reads.stop)
        tokens = [token for i in sight for token in (places[i] if 0 <= i < len(places) else mark)]
        read, token = tokens[rule.recall * len(rule.rows) :], rule.tokens
        if place < len(places):
            state, token = rule.step(state, *read, *constants)
        solution.append(((*tokens, *constants, last), token))
        last = token
    return solution


@pytest.mark.parametrize("rule, most", SMALL, ids=lambda value: getattr(value, "name", None))
def test_contexts_are_those_of_all_small_problems(rule: Any, most: int) -> None:
    problems = chain.from_iterable(product(product(*rule.rows), repeat=width) for width in range(1, most + 1))
    pairs = (plainly(rule, list(rows), by) for rows, by in product(problems, product(*rule.constants)))
    assert rule.contexts() == dict(chain.from_iterable(pairs))  # none is missing, and none is superfluous


@pytest.mark.parametrize("rule", minimal.RULES, ids=list(RULES))
def test_long_problems_hold_no_other_contexts(rule: Any) -> None:
    contexts, problems = rule.contexts(), [rule.draw(random.Random(seed), 50) for seed in range(20)]
    assert all(contexts[context] == token for problem in problems for context, token in plainly(rule, *problem))


def test_rules_write_what_python_computes() -> None:
    number = lambda digits: sum(digit * 10**place for place, digit in enumerate(digits))  # noqa: E731
    written = lambda name, *problem: [token for _, token in RULES[name].solve(*problem)][:-1]  # noqa: E731
    for width in (1, 2, 7, 40):
        columns, by = RULES["addition"].draw(random.Random(width), width)[0], width % 9 + 1
        first, a, b = [column[:1] for column in columns], *map(number, zip(*columns, strict=True))
        assert number(written("addition", columns)) == a + b
        assert number(written("subtraction", columns)) == (a - b) % 10 ** (width + 1)
        assert written("comparison", columns)[-1] == 1 + (a > b) - (a < b)
        assert number(written("n-by-1", first, [by])) == a * by
        assert number(written("division", first[::-1], [by])[::-1]) == a // by
    row = 0b1011100101111000011
    cells = [(row >> i & 1,) for i in range(18, -1, -1)]
    assert written("rule-110", cells) == [110 >> (2 * row >> i & 7) & 1 for i in range(18, -1, -1)]


def test_the_machine_halts_as_a_plain_simulator_says() -> None:
    tape, at, state, moves = [0] * 40, 20, "A", 0
    cells = [0] * at + [minimal.CELLS.index("A0")] + [0] * 19
    while state != "H":
        symbol, way, state = minimal.BEAVER[f"{state}{tape[at]}"]
        tape[at], at, moves = int(symbol), at + (1 if way == "R" else -1), moves + 1
        cells = [token for _, token in RULES["beaver"].solve([(cell,) for cell in cells])][:-1]
        assert cells == [minimal.CELLS.index((state if i == at else " ") + str(bit)) for i, bit in enumerate(tape)]
    assert (moves, sum(tape)) == (107, 13)


def test_what_cannot_be_proven_is_refused() -> None:
    with pytest.raises(ValueError, match="let recall be larger"):
        minimal.Rule("sum", 3, TWO, lambda carry, a, b: divmod(a + b + carry, 3), recall=0).contexts()
    with pytest.raises(ValueError, match="more than 1,000 contexts"):
        RULES["addition"].contexts(most=1000)
    with pytest.raises(ValueError, match="There is no rule 'product'; take one of addition"):
        minimal.main("product")


def contexts_of_package(rule: Rule) -> Iterator[tuple[Shape, dict[Leaf, int], int]]:
    """Every context under the lines of `teach`: the shape of its step, its tokens and the right one."""
    spec = spec_of(rule)
    contexts = contexts_of(spec.model, spec.sampler)
    for shape in contexts.shapes:
        for block in contexts.blocks(shape):
            for values, right in zip(block.values.tolist(), block.right.tolist(), strict=True):
                yield shape, dict(zip(shape.leaves, values, strict=True)), right


def test_the_package_has_the_same_contexts_of_addition() -> None:
    """Where nothing stands in one row, the package's trees have symbols, which are no part of a context."""
    contexts = {}
    for shape, leaves, right in contexts_of_package(catalogue.addition(10)):
        last = max((place for kind, _, place in leaves if kind == "output"), default=-1)
        digits = [leaves.get(("digit", number, place), -1) for place in (last, last + 1) for number in (0, 1)]
        contexts[*digits, leaves.get(("output", 0, last), -1)] = 10 if shape.label is not None else right
    assert contexts == RULES["addition"].contexts()


def test_the_package_has_the_same_contexts_of_rule_110() -> None:
    """It writes a row from its right end, so its rule is the mirror image, 124; of a row there is always one above."""
    contexts = {}
    for shape, leaves, right in contexts_of_package(elementary(124)):
        if not shape.case.first_row and shape.label is None:  # neither the first row nor the end
            above = [leaves.get(leaf, -1) for leaf in shape.case.reads[2::-1]]  # from the other side
            contexts[*above, -1 if shape.case.first_column else leaves["cell", 0, -1]] = right
    assert contexts == {context: token for context, token in RULES["rule-110"].contexts().items() if token < 2}


@pytest.fixture(scope="module")
def whole_run() -> tuple[Any, str]:
    """The model of `python examples/minimal.py`, and what that prints."""
    models, prove, out = list[Any](), minimal.prove, io.StringIO()
    with pytest.MonkeyPatch.context() as patched, redirect_stdout(out):
        patched.setattr(minimal, "prove", lambda rule: models.append(prove(rule)) or models[0])
        minimal.main()
    return models[0], out.getvalue()


@pytest.fixture(scope="module")
def model(whole_run: tuple[Any, str]) -> Any:
    return whole_run[0]


def whole_logits(model: Any, context: tuple[int, ...]) -> list[int]:
    """The logits in units of UNIT^5, in Python's own integers."""
    scale = round(1 / minimal.UNIT)
    weights = {name: (weight / minimal.UNIT).long() for name, weight in model.named_parameters()}
    embedding, values, up, up_bias, down, down_bias, head, head_bias = (weight.tolist() for weight in weights.values())
    times = lambda rows, x: [sum(map(int.__mul__, row, x)) for row in rows]  # noqa: E731
    x = [scale * x_i for x_i in embedding[context[-1]]]
    for token, value in zip(context[:-1], values, strict=True):
        x = list(map(sum, zip(x, times(zip(*value, strict=True), embedding[token]), strict=True)))
    hidden = [max(0, y + scale**2 * bias) for y, bias in zip(times(up, x), up_bias, strict=True)]
    mixed = [y + scale**3 * bias for y, bias in zip(times(down, hidden), down_bias, strict=True)]
    x = [scale**2 * x_i + y for x_i, y in zip(x, mixed, strict=True)]
    return [y + scale**4 * bias for y, bias in zip(times(head, x), head_bias, strict=True)]


def test_margins_are_those_of_pythons_integers_and_a_disturbed_model_is_wrong(model: Any) -> None:
    contexts = RULES["addition"].contexts()
    wrong, margin, power = minimal.check(model, contexts)
    best, second = model(torch.tensor(list(contexts))).topk(2).values.T
    some = [list(contexts)[int((best - second).argmin())], *random.Random(0).sample(list(contexts), 100)]
    exact = [whole_logits(model, context) for context in some]
    assert model(torch.tensor(some)).tolist() == [[y * minimal.UNIT**5 for y in logits] for logits in exact]
    assert [logits.index(max(logits)) for logits in exact] == [contexts[context] for context in some]
    assert margin == (sorted(exact[0])[-1] - sorted(exact[0])[-2]) * minimal.UNIT**5
    assert not wrong and max(map(abs, chain(*exact))) < 2**power < 2**53
    disturbed, right = copy.deepcopy(model), contexts[some[0]]  # to a tie, by the bias of a token that comes second
    with torch.no_grad():
        disturbed.head.bias[exact[0].index(sorted(exact[0])[-2])] += margin
    assert minimal.check(disturbed, contexts)[0] == [(some[0], right)]


def test_a_context_stands_for_attention_with_one_open_key(model: Any) -> None:
    """A decoder that sees the whole sequence, with any queries and keys, under a mask of one key per head."""
    sequence = [-1, 4, 9, 5, 0, -1, -1, 9, 0, 5, 0, -1]  # 594 + 509, units first, with a zero in front
    for place, (context, token) in enumerate(RULES["addition"].solve([(4, 9), (9, 0), (5, 5)])):
        mask = torch.full((4, 1, len(sequence)), -torch.inf).double()
        mask[range(4), 0, [place, place + 6, place + 1, place + 7]] = 0.0  # both digits before this place, and at it
        queries, keys = torch.randn(4, 1, 8).double(), torch.randn(4, len(sequence), 8).double()
        values = torch.einsum("sd,hde->hse", model.embedding[sequence], model.value)
        heads = torch.nn.functional.scaled_dot_product_attention(queries, keys, values, mask)
        x = model.embedding[sequence[-1]] + heads.sum((0, 1))
        logits = model.head(x + model.down(torch.relu(model.up(x))))
        torch.testing.assert_close(logits, model(torch.tensor([context]))[0])
        assert int(logits.argmax()) == token
        sequence.append(token)


def test_the_whole_run_adds_sixty_digits(whole_run: tuple[Any, str]) -> None:
    *_, proof, a, b, _, total = whole_run[1].splitlines()
    assert proof.startswith("Right at every length.") and len(a.strip()) == len(b.strip()) == 60
    assert int(total) == int(a) + int(b)
