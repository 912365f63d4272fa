"""Tasks whose operand is a list of items, written with the last item first in a digit array."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from abc_nb.common.errors import InputError
from abc_nb.problems.digits import Digits
from abc_nb.problems.tasks import FinalOnly, Task, Width, single

COMBINE: dict[str, Callable[..., np.ndarray]] = {  # the operators of lists, with their base
    "SM": lambda x, y, base: (x + y) % base,
    "MAX": lambda x, y, base: np.maximum(x, y),
    "MIN": lambda x, y, base: np.minimum(x, y),
}


class Lists(Task):
    """A list of digits, one column an item: a zero in front would be an item too."""

    unit, words = "items", tuple(COMBINE)

    def covered(self) -> str:
        return f"the list has exactly W {self.unit}"

    @property
    def items(self) -> dict[str, str]:
        """The token of an item, by how it is typed."""
        return {digit: digit for digit in self.digits}

    def parsed(self, text: str) -> list[Digits]:
        """The tokens of a list, with or without its operator in front."""
        items = [item.upper() if item.upper() in COMBINE else item for item in text.split()]
        if items[:1] == [self.operator]:
            items = items[1:]
        if strange := [item for item in items if item not in self.items]:
            raise InputError(f"{strange[0]!r} is no item")
        if not items:
            raise InputError("there is no item")
        return [np.array([[self.token(self.items[item]) for item in reversed(items)]])]

    def typed(self, operands: Sequence[Digits], zeros: bool = False) -> str:
        names = {token: name for name, token in self.items.items()}
        return " ".join(names[symbol] for symbol in self.text(operands[0][0, ::-1].tolist()))

    def said(self, digits: Sequence[str]) -> str:
        return digits[-1]


class ListOps(Lists):
    """One operator over all items, written as a running value."""

    example = "3 9 4"

    def step(self, value: np.ndarray, item: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        value = COMBINE[self.operator](value, item, self.base)
        return value, value


class ListOpsSum(ListOps, name="listops-sm"):
    title, operator = "ListOps SM", "SM"


class ListOpsMaximum(ListOps, name="listops-max"):
    title, operator = "ListOps MAX", "MAX"


class ListOpsMinimum(ListOps, name="listops-min"):
    title, operator = "ListOps MIN", "MIN"

    @property
    def start(self) -> int:
        return self.base - 1


class CycleNavigation(Lists, name="cycle-navigation"):
    """Steps around a ring of five places, written as the place after each (Deletang et al. 2023, appendix A)."""

    title, example, unit, bases = "Cycle navigation", "1 -1 0 1", "steps", (5,)
    words = ()
    takes, inputs = "steps -1, 0 and 1", np.array([0, 1, 4])
    items = {"0": "0", "1": "1", "-1": "4"}  # noqa: RUF012 (a step back is four steps on)

    def step(self, place: np.ndarray, move: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        place = (place + move) % self.base
        return place, place


class DirectNested(FinalOnly, Lists, name="direct-listops-nested"):
    """A list of two, each element a digit or a list, in prefix notation without brackets: n items are 2n - 1 tokens."""

    title, example = "ListOps, nested, no trace", "SM 3 MAX 2 5"

    @property
    def items(self) -> dict[str, str]:
        return super().items | {name: name for name in COMBINE}

    def places(self, length: int) -> int:
        return 2 * super().places(length) - 1

    def draw(self, pool: np.ndarray, count: int, width: Width, rng: np.random.Generator) -> list[Digits]:
        """A list's items fall on its two sides at random."""
        operators = [self.token(name) for name in COMBINE]

        def tokens(items: int) -> list[int]:
            if items == 1:
                return [int(rng.integers(self.base))]
            left = int(rng.integers(1, items))
            return [*tokens(items - left), *tokens(left), operators[rng.integers(len(operators))]]

        return [np.array([tokens((single(width) + 1) // 2) for _ in range(count)])]

    def test_operands(self, length: Width, samples: int, width: Width, rng: np.random.Generator) -> list[Digits]:
        """Repeated lists are left out."""
        return [np.unique(self.draw(np.empty(0), samples, width, rng)[0], axis=0)]

    def parsed(self, text: str) -> list[Digits]:
        operands = super().parsed(text)
        elements = np.cumsum([-1 if symbol in COMBINE else 1 for symbol in self.text(operands[0][0].tolist())])
        if (elements < 1).any() or elements[-1] > 1:  # read from the right, as in `answer`
            raise InputError("its operators and items do not make one list")
        return operands

    def answer(self, operands: Sequence[Digits]) -> Digits:
        """Read from the right, a stack holds the elements that wait for their operator."""
        combine = {self.token(name): function for name, function in COMBINE.items()}
        values = []
        for tokens in operands[0].tolist():
            stack: list[Any] = []
            for token in tokens:
                stack.append(combine[token](stack.pop(), stack.pop(), self.base) if token in combine else token)
            values.append(stack)
        return np.array(values)
