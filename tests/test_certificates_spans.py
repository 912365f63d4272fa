"""Certificates of answers inside of text: their contexts are all that problems have, and texts change nothing."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from test_spans import PATTERNS, model

from abc_nb import InputError, Task
from abc_nb.bias.spans import SpanLines
from abc_nb.certificates.certify import attempt
from abc_nb.certificates.spans import SpanContexts, lead_at
from abc_nb.language.mixture import draw, piece, texts
from abc_nb.problems.spans import END, Pattern, tokens_of
from abc_nb.training.writer import Writer

SMALL = (
    Pattern(Task("addition", 3), "{a}+{b}="),
    Pattern(Task("n-by-1", 3), "{a}*{d}="),
    Pattern(Task("successor", 3), "succ({a})="),
    Pattern(Task("parity"), "parity({bits})="),
)

Context = tuple[tuple[tuple[str, int, int], int], ...]  # what is seen, by operand and places below the step; the token


def by_hand(
    pattern: Pattern, problems: Iterable[Sequence[str]], without: tuple[int, int] | None = None
) -> dict[Context, set[int]]:
    """What each token of an answer sees in some problems, and the tokens that are right there.

    `without` is a number, and how many places below the step, that it does not see.
    """
    found: dict[Context, set[int]] = defaultdict(set)
    for operands in problems:
        answer = pattern.answer(operands) + END
        for step, right in enumerate(answer):
            seen = {("before", 0, 0): answer[step - 1] if step else "="}
            for which, (number, few) in enumerate(zip(operands, pattern.few, strict=True)):
                for below in (0,) if few else (0, 1):
                    place = 0 if few else step - below
                    if 0 <= place < len(number) and (which, below) != without:
                        seen["digit", which, below] = number[len(number) - 1 - place]
            context = tuple(sorted((name, tokens_of(digit)[0]) for name, digit in seen.items()))
            found[context].add(tokens_of(right)[0])
    return found


def every_problem(pattern: Pattern, longest: int = 4) -> Iterator[tuple[str, ...]]:
    """All problems with numbers of a few digits."""
    digits = pattern.task.digits
    return product(
        *(
            ["".join(own) for length in range(1, 2 if few else longest + 1) for own in product(digits, repeat=length)]
            for few in pattern.few
        )
    )


def enumerated(contexts: SpanContexts) -> dict[Context, set[int]]:
    """The same from the certificate's shapes and blocks."""
    found: dict[Context, set[int]] = defaultdict(set)
    for shape, sites in contexts.shapes.items():
        step, kept = sites[0][1], contexts.step(sites[0])[2]
        for block in contexts.blocks(shape):
            for values, right in zip(block.values.tolist(), block.right.tolist(), strict=True):
                seen = {("before", 0, 0): tokens_of("=")[0]}
                for (kind, number, place), value in zip(shape.atoms, values, strict=True):
                    if kind == "output":
                        seen["before", 0, 0] = value
                    elif kind == "factor":
                        seen["digit", 1, 0] = value
                    else:
                        seen["digit", number, step - kept[place]] = value
                found[tuple(sorted(seen.items()))].add(right)
    return found


@pytest.mark.parametrize("pattern", SMALL, ids=lambda pattern: pattern.task.name)
def test_contexts_are_those_of_all_problems(pattern: Pattern) -> None:
    """In base 3, problems of four digits show every context; so many have one right token each."""
    contexts = SpanContexts.of(model(SpanLines.one_key_per_head((pattern,), 5, 2)), pattern)
    known, found = by_hand(pattern, every_problem(pattern)), enumerated(contexts)
    assert found == known
    assert {len(right) for right in known.values()} == {1}
    assert sum(map(contexts.count, contexts.shapes)) >= len(known)
    rng = np.random.default_rng(0)
    long = [draw(pattern, [int(rng.integers(1, 90)) for _ in pattern.few], rng) for _ in range(100)]
    assert all(right <= found[context] for context, right in by_hand(pattern, long).items())


@pytest.mark.parametrize("pattern", SMALL, ids=lambda pattern: pattern.task.name)
def test_an_answer_is_determined_where_no_two_problems_contradict_each_other(pattern: Pattern) -> None:
    whole, found = SpanLines.one_key_per_head((pattern,), 5, 2), []
    for which, few in enumerate(pattern.few):
        for below in (0,) if few else (0, 1):
            kept = [
                line
                for line in whole.lines[0].lines
                if (line.span, abs(line.offset)) != (f"operand {which + 1}", below)
            ]
            bias = replace(whole, lines=(replace(whole.lines[0], lines=tuple(kept)),))
            tokens = by_hand(pattern, every_problem(pattern, 3), (which, below)).values()
            found.append(SpanContexts.of(model(bias), pattern).determined())
            assert found[-1] == all(len(right) == 1 for right in tokens)
    assert SpanContexts.of(model(whole), pattern).determined() and not all(found)


@pytest.mark.parametrize("pattern", SMALL, ids=lambda pattern: pattern.task.name)
def test_a_problem_holds_its_context(pattern: Pattern) -> None:
    contexts = SpanContexts.of(model(SpanLines.one_key_per_head((pattern,), 5, 2)), pattern)
    for shape, sites in contexts.shapes.items():
        block = next(contexts.blocks(shape))
        for row in range(0, len(block.right), 7):
            context, step = (block.values[row], int(block.right[row])), sites[0][1]
            operands = contexts.problem(shape, context, sites[0])
            assert operands is not None
            answer = pattern.answer(contexts.written(operands)) + END
            assert tokens_of(answer)[step] == context[1]


@pytest.mark.parametrize(
    "problem", ["123+989=", "7+12345=253", "7+12345=25321", "12345*7=", "12345*7=51", "succ(99)=00", "parity(1)="]
)
def test_the_lead_from_the_context_is_that_of_the_problem_in_any_text(problem: str) -> None:
    """Up to the bound on rounding, in float32 and in float64, where that can change next to nothing."""
    own, pattern, rng = (
        model(seed=1),
        next(each for each in PATTERNS if next(filter(None, each.literals))[0] in problem),
        np.random.default_rng(0),
    )
    operands = pattern.operands(problem.partition("=")[0] + "=")
    right = tokens_of((pattern.answer(operands) + END)[len(problem.partition("=")[2])])
    before = ["", "so ", *(piece(texts()[0], int(rng.integers(1, 60)), rng) + "\n" for _ in range(30))]
    for judge, most in ((own, 1e-2), (own.double(), 1e-6)):
        lead, bound = lead_at(judge, problem)
        assert 0 < bound < most
        for text in before:
            logits = Writer(judge).after(text + problem)
            found = logits[right[0]] - logits.scatter(0, torch.tensor(right), -torch.inf).max()
            assert float(found) == pytest.approx(lead, abs=bound, rel=0)


@pytest.mark.parametrize("problem", ["12+34", "so 12+34=", "12+34=64; and", "12+34=65", "words", ""])
def test_a_lead_is_that_of_a_problem_whose_answer_is_right_so_far(problem: str) -> None:
    with pytest.raises(InputError, match=r"is no problem|not right so far"):
        lead_at(model(), problem)


def test_a_model_that_knows_nothing_is_wrong_and_shows_it() -> None:
    own = model()
    contexts = SpanContexts.of(own, PATTERNS[2])
    results, certificate = attempt(own, contexts)
    assert not certificate.certified and certificate.wrong == sum(each.wrong for each in results) > 0
    for example in certificate.counterexamples:
        operands = PATTERNS[2].operands(example.problem)
        assert PATTERNS[2].task.said(PATTERNS[2].answer(operands)) == example.right != example.answer


def test_what_cannot_be_certified_is_refused() -> None:
    with pytest.raises(InputError, match="at one position"):
        SpanContexts.of(model(SpanLines.whole(PATTERNS, 5, 3)), PATTERNS[0])
    lines = SpanLines.one_key_per_head(PATTERNS, 5, 2).lines[0]
    before = replace(next(line for line in lines.lines if line.attention == "source"), offset=-1)
    with pytest.raises(InputError, match="others than themselves"):
        SpanContexts(replace(lines, lines=(*lines.lines, before)), 2, PATTERNS[0])
