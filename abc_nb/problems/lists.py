"""Tasks whose operand is a list of items, written with the last item first in a digit array."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from abc_nb.problems.digits import Digits
from abc_nb.problems.tasks import PAD, SYMBOLS, FinalOnly, Regime, Task, Unreadable, Width, single

COMBINE: dict[str, Callable[..., np.ndarray]] = {  # the operators of lists, with their base
    "SM": lambda x, y, base: (x + y) % base,
    "MAX": lambda x, y, base: np.maximum(x, y),
    "MIN": lambda x, y, base: np.minimum(x, y),
}


class Lists(Task):
    """A list of digits, one column an item: a zero in front would be an item too."""

    unit = "items"

    @property
    def words(self) -> tuple[str, ...]:
        return tuple(COMBINE)

    def covered(self, narrowest: int, zeros: bool) -> str:
        return f"the list has exactly W {self.unit}"

    @property
    def items(self) -> dict[str, str]:
        """The token of an item, by how it is typed."""
        return {digit: digit for digit in self.digits}

    def parsed(self, text: str) -> list[Digits]:
        """The tokens of a list, with or without its operator in front."""
        own = self.operator.lower()
        written = re.sub(rf"^{own}(?![a-z])", "", text.strip(" ()")) if own else text
        parts = re.split(r"[\s,()]+", written.strip(" ,()"))
        parts = [part.upper() if part.upper() in COMBINE else part for part in parts]
        if strange := [part for part in parts if part not in self.items]:
            raise Unreadable(f"{strange[0]!r} is no item" if strange[0] else "there is no item")
        return [np.array([[self.token(self.items[part]) for part in reversed(parts)]])]

    def typed(self, operands: Sequence[Digits], zeros: bool = False) -> str:
        names = {token: name for name, token in self.items.items()}
        return " ".join(names[symbol] for symbol in self.text(operands[0][0, ::-1].tolist()))

    def said(self, digits: list[str]) -> str:
        return digits[-1]

    def joined(self, digits: Iterable[str]) -> str:
        """A list from its items."""
        return " ".join(digits)


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
    takes = "steps -1, 0 and 1"
    items = {"0": "0", "1": "1", "-1": "4"}  # noqa: RUF012 (a step back is four steps on)

    @property
    def inputs(self) -> np.ndarray:
        return np.array([0, 1, 4])

    def step(self, place: np.ndarray, move: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        place = (place + move) % self.base
        return place, place


class Nested(Lists):
    """Lists of two, each element a digit or a list; in prefix notation, `SM 3 MAX 2 5`, no brackets are needed.

    Where there are more columns than tokens, blanks stand in front of the list.
    """

    example = "SM 3 MAX 2 5"

    def columns(self, items: int) -> int:
        """The columns of a list of so many items."""
        return 2 * items - 1

    def items_of(self, width: int) -> int:
        """The items of a list of so many columns."""
        return (width + 1) // 2

    @property
    def inputs(self) -> np.ndarray:
        return np.array([*range(self.base), *(self.token(symbol) for symbol in (PAD, *COMBINE))])

    @property
    def operators(self) -> dict[int, Callable[..., np.ndarray]]:
        """What the tokens of operators do."""
        return {self.base + len(SYMBOLS) + i: combine for i, combine in enumerate(COMBINE.values())}

    def width_for(self, places: int, regime: Regime) -> Width:
        return self.columns(places)

    def width_of(self, operands: Sequence[Digits], regime: Regime | None = None) -> Width:
        return self.columns((operands[0].shape[1] + 1) // 2)

    def widen(self, operands: Sequence[Digits], width: Width) -> list[Digits]:
        more = single(width) - operands[0].shape[1]
        return [np.pad(operands[0], [(0, 0), (0, more)], constant_values=self.token(PAD))]

    def draw(self, pool: np.ndarray, count: int, width: Width, rng: np.random.Generator) -> list[Digits]:
        """A list's items fall on its two sides at random."""
        operators = [*self.operators]

        def tokens(items: int) -> list[int]:
            if items == 1:
                return [int(rng.integers(self.base))]
            left = int(rng.integers(1, items))
            return [*tokens(items - left), *tokens(left), operators[rng.integers(len(operators))]]

        items = self.items_of(single(width))
        return self.widen([np.array([tokens(items) for _ in range(count)])], width)

    def test_operands(self, length: Width, samples: int, width: Width, rng: np.random.Generator) -> list[Digits]:
        """Repeated lists are left out."""
        return [np.unique(self.draw(np.empty(0), samples, width, rng)[0], axis=0)]

    @property
    def items(self) -> dict[str, str]:
        return super().items | {name: name for name in COMBINE}

    def parsed(self, text: str) -> list[Digits]:
        operands = super().parsed(text)
        if not is_one_list(self.text(operands[0][0, ::-1].tolist())):
            raise Unreadable("its operators and items do not make one list")
        return operands


def is_one_list(symbols: Sequence[str]) -> bool:
    """Whether operators and elements in prefix notation make one list, and nothing is left over."""
    wanted = 1
    for symbol in symbols:
        if wanted == 0:
            return False
        wanted += 1 if symbol in COMBINE else -1
    return wanted == 0


class DirectNested(FinalOnly, Nested, name="direct-listops-nested"):
    """The value of a nested list, without the table that leads to it."""

    title = "ListOps, nested, no trace"

    def answer(self, operands: Sequence[Digits]) -> Digits:
        """Read from the right, a stack holds the elements that wait for their operator."""
        values = []
        for tokens in operands[0].tolist():
            stack: list[Any] = []
            for token in tokens:
                combine = self.operators.get(token)
                stack.append(combine(stack.pop(), stack.pop(), self.base) if combine else token)
            values.append(stack)
        return np.array(values)
