"""Tasks that are no rules of few states: they are learned without a trace, and have no certificate. Known by name."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from abc_nb.problems.catalogue import COMBINE, REGISTRY, Words, known_as
from abc_nb.problems.digits import DIGITS, Digits
from abc_nb.problems.layouts import SYMBOLS
from abc_nb.problems.rules import Input, Rule, Whole

PROGRAM = "python -m audit"  # the command that knows the audit's tasks and models


@known_as("parity-classification", bases=(2,), program=PROGRAM)
def parity_classification(base: int) -> Rule:
    words = Words(name="parity-classification", title="Parity (classification)", unit="digits")
    return replace(REGISTRY["parity"].make(base), final_only=True, **words)


@known_as("direct-n-by-n", program=PROGRAM)
def direct_product(base: int) -> Rule:
    """The product of two long numbers, without the table that leads to it."""

    def answer(operands: Sequence[Digits]) -> Digits:
        a, b = operands
        result, carry = np.empty_like(a), np.zeros(len(a), a.dtype)
        for place in range(a.shape[1]):
            total = (a[:, : place + 1] * b[:, place::-1]).sum(1) + carry
            result[:, place], carry = total % base, total // base
        return result

    whole, inputs = Whole(answer, output_places=lambda places: 2 * places), (Input("place", base),) * 2
    words = Words(title="N x N, no trace", example="123*456")
    return Rule("direct-n-by-n", no_step, inputs, DIGITS[:base], grows=0, whole=whole, **words)


@known_as("direct-listops-nested", program=PROGRAM)
def nested(base: int) -> Rule:
    """A list of two, each element a digit or a list, in prefix notation without brackets: n items are 2n - 1 tokens."""
    operators = {base + len(SYMBOLS) + number: name for number, name in enumerate(COMBINE)}

    def draw(count: int, width: int, rng: np.random.Generator) -> Digits:
        """A list's items fall on its two sides at random."""

        def tokens(items: int) -> list[int]:
            if items == 1:
                return [int(rng.integers(base))]
            left = int(rng.integers(1, items))
            return [*tokens(items - left), *tokens(left), [*operators][rng.integers(len(operators))]]

        return np.array([tokens((width + 1) // 2) for _ in range(count)])

    def fits(operand: Digits) -> bool:
        """Whether operators and items make one list, read from the right as in `answer`."""
        elements = np.cumsum([-1 if token in operators else 1 for token in operand[0].tolist()])
        return bool((elements >= 1).all() and elements[-1] == 1)

    def answer(operands: Sequence[Digits]) -> Digits:
        """Read from the right, a stack holds the elements that wait for their operator."""
        values = []
        for tokens in operands[0].tolist():
            stack: list[Any] = []
            for token in tokens:
                name = operators.get(token)
                stack.append(COMBINE[name](stack.pop(), stack.pop(), base) if name else token)
            values.append(stack)
        return np.array(values)

    whole = Whole(answer, item_places=lambda items: 2 * items - 1, draw=draw, fits=fits)
    words = Words(title="ListOps, nested, no trace", example="SM 3 MAX 2 5", unit="items", words=tuple(COMBINE))
    settings = Words(notation="items", said="last", final_only=True)
    inputs = (Input("place", (*range(base), *operators)),)
    return Rule("direct-listops-nested", no_step, inputs, DIGITS[:base], grows=0, whole=whole, **settings, **words)


def no_step(state: Any, *values: Any) -> tuple[Any, Any]:
    raise NotImplementedError("a task of this file is answered as a whole")
