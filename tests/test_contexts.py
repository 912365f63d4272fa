"""What a certificate tries, beside all contexts that are met in all small problems: none is missing, none is wrong."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import product

import numpy as np
import pytest
import torch
from certifying import UNNEEDED, bias_of, logits_of, model_of, rows, sampler_of, table_model
from torch.testing import assert_close

from abc_nb import InputError, Task
from abc_nb.bias import Line, Lines
from abc_nb.bias.lines import lines_of_keys, problem_keys
from abc_nb.bias.text import ITSELF
from abc_nb.certificates.contexts import Contexts, Node, Shape
from abc_nb.certificates.fingerprints import determined
from abc_nb.certificates.places import NumberContexts, PlaceContexts
from abc_nb.certificates.rounding import Unbounded
from abc_nb.certificates.states import States
from abc_nb.certificates.tables import TableContexts
from abc_nb.certificates.text import SpanContexts
from abc_nb.model.transformer import Transformer
from abc_nb.problems.catalogue import carried
from abc_nb.problems.machines import elementary
from abc_nb.problems.rules import Input, Rule
from abc_nb.problems.sampling import Batch, Sampler
from abc_nb.problems.tasks import Width
from abc_nb.problems.text import END, VOCABULARY, Pattern, text_tokens
from abc_nb.taught import spec_of
from abc_nb.training.evaluation import evaluating

Seen = dict[tuple[object, ...], set[int]]  # the tokens that are right where a step sees this, by how far away it is


def every_operand(task: Task, places: Sequence[int]) -> list[np.ndarray]:
    """All operands of so many places."""
    alphabets = [given.alphabet for given, count in zip(task.rule.inputs, places, strict=True) for _ in range(count)]
    grid = np.array(np.meshgrid(*alphabets, indexing="ij")).reshape(len(alphabets), -1).T
    return np.split(grid, np.cumsum(places)[:-1], axis=1)


def name_of(contexts: PlaceContexts, site: tuple[Width, int]) -> tuple[Node, tuple[object, ...]]:
    """A step's tree and what it depends on, by how far away that stands."""
    kept, shape = contexts.step(site)[2], contexts.shape(site)
    return named(shape, tuple(place - site[1] for place in kept))


@cache
def named(shape: Shape, kept: tuple[int, ...]) -> tuple[Node, tuple[object, ...]]:
    away = tuple((kind, n, place if kind == "factor" else kept[place]) for kind, n, place in shape.leaves)
    return shape.root.renamed(dict(enumerate(kept))), away


def tried(contexts: PlaceContexts) -> Seen:
    found: Seen = defaultdict(set)
    for shape, sites in contexts.shapes.items():
        rows = [row for block in contexts.blocks(shape) for row in zip(block.values.tolist(), block.right, strict=True)]
        for name in {name_of(contexts, site) for site in sites}:
            for values, right in rows:
                found[name, tuple(values)].add(int(right))
    return found


def met(contexts: PlaceContexts, batches: Iterator[Batch]) -> Seen:
    found: Seen = defaultdict(set)
    for batch in batches:
        for step in range(batch.target.shape[1] - 1):
            name = name_of(contexts, (contexts.width(batch.layout), step))
            _, block = contexts.contexts_at(batch, step)
            for values, right in zip(block.values.tolist(), block.right.tolist(), strict=True):
                found[name, tuple(values)].add(right)
    return found


# ---- numbers and lists


PLACED = ["successor", "addition", "subtraction", "n-by-1", "parity", "listops-max", "cycle-navigation"]


@pytest.mark.parametrize("kind", ["window", "lines", "decoder-only"])
@pytest.mark.parametrize("task", PLACED)
def test_contexts_of_places_are_those_of_all_problems(task: str, kind: str) -> None:
    """Of the widths that are possible; where the first number must be larger, all others are tried as well."""
    sampler = sampler_of(task, aligned=kind == "window")
    contexts = NumberContexts(model_of(sampler, bias_of(task, kind)).config, sampler)
    contexts.narrowest = 1 + sampler.task.grows
    widths = range(contexts.narrowest, 5 if len(sampler.task.rule.inputs) > 1 else 6)
    contexts.widest = widths[-1]

    def batches() -> Iterator[Batch]:
        for width in widths:
            places = [given.digits or width - sampler.task.grows for given in sampler.task.rule.inputs]
            yield sampler.batch(sampler.task.widen(every_operand(sampler.task, places), width), width)

    assert met(contexts, batches()) == tried(contexts)


SHIFTED = Rule("shifted", lambda before, here: (before, here), (Input("place", 3),), "abc", notation="symbols")
CARRIED = carried(2, lambda carry, a, b: carry + a + b)  # what is left over after the last place is not written
SUMMED = Rule("summed", CARRIED, (Input("place", 2), Input("place", 2)), "01", notation="items")


@pytest.mark.parametrize("rule", [SHIFTED, SUMMED], ids=lambda rule: rule.name)
def test_contexts_of_a_readers_rule_in_one_row_are_those_of_all_problems(rule: Rule) -> None:
    """Whose output has as many places as its operands, though there is something left over to hand on."""
    spec, count = spec_of(rule), len(rule.inputs)
    contexts = NumberContexts(spec.model, spec.sampler)
    contexts.widest = 5
    every = ((width, every_operand(spec.task, [width] * count)) for width in range(contexts.narrowest, 6))
    assert spec.task.grows == 0
    assert met(contexts, (spec.sampler.batch(operands, width) for width, operands in every)) == tried(contexts)


# ---- in a text


FORMS = [("addition", "{a}+{b}="), ("n-by-1", "{a}*{d}="), ("successor", "s({a})="), ("parity", "p({b})=")]
FORMS += [("subtraction", "{a}-{b}="), ("division", "{a}//{d}="), ("n-by-2", "{a}*{d}=")]
TEXTS = [(task, form, 2, places) for task, form in FORMS for places in (1, 2, 3)]
TEXTS = [case for case in TEXTS if case[0] not in ("addition", "subtraction") or case[3] < 3]  # two determine them
FORMS[3] = "comparison", "{a}?{b}="  # three states, in three digits
TEXTS += [(task, form, 3, places) for task, form in FORMS[:-1] for places in (1, 2)]


@pytest.mark.parametrize(("task", "form", "base", "places"), TEXTS)
def test_contexts_in_a_text_are_those_of_all_problems(task: str, form: str, base: int, places: int) -> None:
    """Under lines that show so many places of each number; results can be two digits longer."""
    pattern = Pattern(Task(task, base), form)
    lengths = tuple(pattern.task.rule.short_digits if short else 4 for short in pattern.short)
    dealt = problem_keys(pattern.layout(lengths), places)
    contexts = SpanContexts(lines_of_keys(dealt, ITSELF, len(dealt), 1), 1, pattern)
    found = tried(contexts)
    longest = (5 if base == 2 else 4) if len(pattern.short) > 1 and not pattern.short[-1] else 6
    assert met(contexts, problems_in_a_text(pattern, longest)) == found
    # Where a head sees the token written last beside a digit, both look like one if they are equal.
    assert not determined(contexts) and not one_token_each(contexts, len(VOCABULARY))
    alone = SpanContexts(lines_of_keys(dealt, ITSELF[:1], len(dealt), 1), 1, pattern)
    by_tree = all(len(right) == 1 for right in found.values())
    assert determined(alone) == one_token_each(alone, len(VOCABULARY)) == by_tree
    assert by_tree or places < (3 if task == "n-by-2" else 2)
    if by_tree:
        assert_problems_hold_their_contexts(contexts, pattern)


def assert_problems_hold_their_contexts(contexts: SpanContexts, pattern: Pattern) -> None:
    """The token that is right in a context stands in the answer to its problem."""
    for shape, sites in contexts.shapes.items():
        block = next(contexts.blocks(shape))
        for values, token in zip(block.values[::7], block.right[::7].tolist(), strict=True):
            operands = contexts.problem(shape, (values, token), sites[0])
            assert operands is not None
            assert text_tokens(pattern.answer(contexts.written(operands)) + END)[sites[0][1]] == token


def one_token_each(contexts: Contexts, tokens: int) -> bool:
    """Whether contexts in which a model of random weights has the same logits have the same right token."""
    torch.manual_seed(0)
    config = replace(contexts.config, width=8 * contexts.config.heads, feed_forward=32)
    model, right = Transformer(config, tokens).double().eval(), defaultdict(set)
    with torch.inference_mode():
        for shape in contexts.shapes:
            for block in filter(len, contexts.blocks(shape)):
                logits = States(Unbounded(model), shape.leaves).take(block.values).logits(shape.root)
                for name, token in zip(logits.numpy().round(6) + 0.0, block.right.tolist(), strict=True):
                    right[name.tobytes()].add(token)
    return all(len(tokens) == 1 for tokens in right.values())


def problems_in_a_text(pattern: Pattern, longest: int) -> Iterator[Batch]:
    """All problems with numbers up to a length, and those in which a number is taken from a smaller one."""
    lengths = [[pattern.task.rule.short_digits] if short else range(1, longest + 1) for short in pattern.short]
    alphabets = [[*map(str, given.alphabet)] for given in pattern.task.rule.inputs]
    for chosen in product(*lengths):
        layout = pattern.layout(chosen)
        of_length: dict[int, list[tuple[list[int], list[int]]]] = defaultdict(list)
        for operands in product(*(product(own, repeat=count) for own, count in zip(alphabets, chosen, strict=True))):
            numbers = ["".join(digits) for digits in operands]
            answer = text_tokens("=" + pattern.answer(numbers) + END)
            of_length[len(answer)].append((text_tokens(pattern.problem(numbers)[:-1]), answer))
        for same in of_length.values():
            sources, targets = zip(*same, strict=True)
            yield Batch(torch.tensor(sources), torch.tensor(targets), layout)


def test_a_form_whose_rule_says_too_little_is_refused() -> None:
    task = Task("addition", 3)
    less = Task.of(replace(task.rule, grows=0, name="sum"))
    pattern = Pattern(less, "{a}+{b}=")
    with pytest.raises(InputError, match="can have 1 more place than its operands, and its rule says 0"):
        SpanContexts(lines_of_keys(problem_keys(pattern.layout((2, 2)), 2), ITSELF, 4, 1), 1, pattern)


# ---- tables


TABLES: list[tuple[Task, list[Width], int, tuple[Line, ...]]] = [
    (Task("n-by-n", 2), [*product(range(1, 5), repeat=2)], 0, ()),
    (Task("n-by-n", 2), [(3, 3), (2, 4)], 0, UNNEEDED),
    (Task("n-by-n", 3), [*product(range(1, 4), repeat=2)], 0, ()),
    (Task("n-by-n", 2), [(9, 3), (3, 14), (16, 15)], 100, ()),
    (Task("n-by-n", 2), [(1, 4), (3, 9), (7, 5), (5, 14), (16, 15)], 3, UNNEEDED),
    (Task("n-by-n", 3), [(4, 5), (2, 9)], 3, UNNEEDED[:3]),
    (Task("n-by-n", 2), [(3, 6), (7, 5)], 3, (Line("cross", 0, 2, "antidiagonal", "operand 2", 1, 0.0),)),
    (Task("sum-of-many", 2), [(2, 1), (1, 5), (3, 12), (6, 20)], 200, ()),
    (Task("sum-of-many", 3), [(2, 3), (4, 9)], 300, (Line("cross", 0, 0, "antidiagonal", "operand 1", -1, 0.0),)),
    (Task.of(elementary(110)), [*product(range(1, 7), range(1, 5))], 0, ()),
    (Task.of(elementary(30)), [*product(range(1, 6), range(1, 4))], 0, ()),
]


@pytest.mark.parametrize(("task", "widths", "drawn", "more"), TABLES)
def test_contexts_of_tables_are_among_those_that_are_tried(
    task: Task, widths: list[Width], drawn: int, more: tuple[Line, ...]
) -> None:
    """Of all problems of some sizes, or of some that are `drawn`; and no context is tried with two tokens.

    A context alone gives the logits that it has in a problem.
    """
    sampler, rng, model = Sampler(task), np.random.default_rng(0), table_model(task, more)
    contexts = TableContexts(model.config, sampler)
    known = {shape: {row for block in contexts.blocks(shape) for row in rows(block)} for shape in contexts.shapes}
    assert sum(map(len, known.values())) <= sum(contexts.counts.values())
    for width in widths:
        some = partial(sampler.draw, np.empty(0, np.int64), drawn, width, rng)
        operands = some() if drawn else every_operand(task, task.operand_places(width))
        batch = sampler.batch(operands, width)
        with evaluating(model):
            logits = model(batch.source, batch.target[:, :-1], batch.layout)
        for step in range(batch.layout.target_length):
            shape, block = contexts.contexts_at(batch, step)
            assert {*rows(block)} <= known[shape]
            digits = [leaf for leaf in shape.leaves if task.name == "n-by-n" and leaf[0].startswith("by")]
            assert len({contexts.steps(width).digit(leaf, step) for leaf in digits}) == len(digits)  # one name each
            assert_close(logits_of(model, contexts, shape, block), logits[:, step], atol=1e-4, rtol=1e-4)
    assert determined(contexts)


def test_a_token_that_follows_from_a_cell_out_of_sight_is_not_determined() -> None:
    """Three cells above, the first row, and the zeros, which say where the table ends."""
    task = Task.of(elementary(110))
    config = table_model(task, ()).config
    assert isinstance(config.bias, Lines)
    for line in (line for line in config.bias.lines if line.attention != "source"):
        others = tuple(other for other in config.bias.lines if replace(other, head=0) != replace(line, head=0))
        contexts = TableContexts(replace(config, bias=replace(config.bias, lines=others)), Sampler(task))
        assert not determined(contexts)
