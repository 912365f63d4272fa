"""How people write problems of a rule, and the answers: numbers, lists of items, or symbols side by side.

Operands stand in digit arrays (samples, places), place 0 first.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from abc_nb.common.errors import InputError
from abc_nb.problems.digits import DIGITS, Digits, is_less, written_number
from abc_nb.problems.rules import Rule


def from_left(rule: Rule, number: int, symbols: Sequence[Any]) -> Sequence[Any]:
    """What stands at the places of an operand, in the order in which people write it; or that back at its places."""
    return symbols if rule.inputs[number].from_left else symbols[::-1]


def joined(rule: Rule, places: Sequence[str]) -> str:
    """The symbols of an answer as people write them, from those at its places."""
    symbols = from_left(rule, 0, places)
    if rule.notation == "number":
        return written_number(symbols)
    return " ".join(symbols) if spaced(rule) else "".join(symbols)


def spaced(rule: Rule) -> bool:
    return rule.notation == "items" or max(map(len, rule.alphabet)) > 1


def example(rule: Rule) -> str:
    """The rule's example, with digits that its base has; without one, symbols of each operand."""
    if rule.example:
        highest = rule.base - 1
        return "".join(str(min(int(sign), highest)) if sign.isdigit() else sign for sign in rule.example)
    operands = ([rule.alphabet[token] for token in given.alphabet[:3]] for given in rule.inputs)
    space = " " if spaced(rule) else ""
    return f"{space}{rule.sign}{space}".join(space.join(symbols) for symbols in operands)


def read_problem(rule: Rule, vocabulary: Sequence[str], text: str) -> list[Digits]:
    """The operands of a problem as they are typed, (1, places) each; InputError with what is wrong with it."""
    if rule.stacked:
        return read_stacked(rule, text)
    if rule.notation == "items" and len(rule.inputs) == 1:
        return [read_list(rule, vocabulary, text)]
    numbers = rule.notation == "number"
    parts = parts_of(text, rule.sign if len(rule.inputs) > 1 else "", rule)
    if len(parts) != len(rule.inputs):
        raise InputError(f"{'numbers' if numbers else 'operands'} in it: {len(parts)}, needed: {len(rule.inputs)}")
    if rule.short_digits and len(parts[-1]) > rule.short_digits:
        raise InputError(f"the second number has {len(parts[-1])} digits, which is more than {rule.short_digits}")
    places = [from_left(rule, number, part) for number, part in enumerate(parts)]
    operands = [np.array([[rule.alphabet.index(symbol) for symbol in symbols]]) for symbols in places]
    for given, digits in zip(rule.inputs, operands, strict=True):
        if not np.isin(digits, given.alphabet).all():
            raise InputError("a symbol stands where it cannot")
    lengths = [digits.shape[1] for digits in operands[: rule.long_operands]]
    if not (numbers or rule.table) and len({*lengths}) > 1:
        raise InputError(f"its operands have {' and '.join(map(str, lengths))} symbols, and need as many")
    if rule.larger_first and is_less(*operands)[0]:
        raise InputError("the second number is larger than the first")
    return operands


def parts_of(text: str, operator: str, rule: Rule) -> list[list[str]]:
    """The symbols between operators; without an operator, the text is one operand. InputError if one is missing."""
    parts = [part.strip() for part in (text.split(operator) if operator else [text])]
    apart, known = spaced(rule), [*rule.alphabet, *rule.typed]
    signs = [part.split() if apart else [*part] for part in parts]
    names = [[sign if sign in known else sign.lower() for sign in part] for part in signs]
    symbols = [[rule.typed.get(name, name) for name in part] for part in names]
    kind = ("digit", "number") if rule.notation == "number" else ("symbol", "operand")
    if strange := [sign for part in signs for sign in part if not {sign, sign.lower()} & {*known}]:
        raise InputError(f"{strange[0]!r} is no {kind[0]}")
    if not all(symbols):
        raise InputError(f"{'an' if kind[1] == 'operand' else 'a'} {kind[1]} is missing")
    return symbols


def read_list(rule: Rule, vocabulary: Sequence[str], text: str) -> Digits:
    """The tokens of a list, with or without its operator in front."""
    items = [item.upper() if item.upper() in rule.words else item for item in text.split()]
    if rule.sign and items[:1] == [rule.sign]:
        items = items[1:]
    tokens = names_of(rule, vocabulary)
    if strange := [item for item in items if item not in tokens]:
        raise InputError(f"{strange[0]!r} is no item")
    if not items:
        raise InputError("there is no item")
    operand = np.array([[tokens[item] for item in from_left(rule, 0, items)]])
    if rule.whole and not rule.whole.fits(operand):
        raise InputError("its operators and items do not make one list")
    return operand


def names_of(rule: Rule, vocabulary: Sequence[str]) -> dict[str, int]:
    """The tokens of a list's items, by how they are typed."""
    other = {symbol: name for name, symbol in rule.typed.items()}
    tokens = rule.inputs[0].alphabet.tolist()
    return {other.get(vocabulary[token], vocabulary[token]): token for token in tokens}


def read_stacked(rule: Rule, text: str) -> list[Digits]:
    """Numbers with a plus between them, as rows of a table, the last one first."""
    parts = parts_of(text, "+", rule)
    size = max(map(len, parts))
    rows = [[DIGITS.index(digit) for digit in reversed([*"0" * (size - len(part)), *part])] for part in parts[::-1]]
    return [stack(rule, np.array([rows]))]


def stack(rule: Rule, numbers: np.ndarray) -> Digits:
    """The operand of numbers (samples, numbers, digits), the last one of a problem first, with marks between them."""
    samples, rows, _ = numbers.shape
    zeros = np.zeros((samples, rows, rule.wider(rows) - 1), np.int64)
    marks = np.full((samples, rows, 1), rule.inputs[0].mark)
    return np.concatenate([numbers, zeros, marks], axis=2).reshape(samples, -1)


def typed(
    rule: Rule, vocabulary: Sequence[str], operands: Sequence[Digits], size: tuple[int, int], room: int | None
) -> str:
    """The first problem as a person types it; with `room` zeros in front are kept, as many as leave so many places.

    `size` is that of the numbers that are stacked: their digits, and how many there are.
    """
    places = [from_left(rule, number, digits[0]) for number, digits in enumerate(operands)]
    texts = [[vocabulary[token] for token in tokens] for tokens in places]
    if rule.stacked:
        rows = [[*row] for row in np.reshape([*reversed(texts[0])], (size[1], -1))[::-1, : size[0]]]
        return "+".join("".join(row[::-1]) if room is not None else written_number(row[::-1]) for row in rows)
    if rule.notation != "number":
        names = {symbol: name for name, symbol in rule.typed.items()}
        signs = [[names.get(symbol, symbol) for symbol in text] for text in texts]
        space = " " if spaced(rule) else ""
        return f"{space}{rule.sign}{space}".join(space.join(text) for text in signs)
    if room is None:
        return rule.sign.join(map(written_number, texts))
    return rule.sign.join("".join(text[room * (len(text) == len(texts[0])) :]) for text in texts)


def of_table(rule: Rule, cells: np.ndarray) -> str:
    """The answer that a table (rows, columns) leads to; `?` where it has a token that is no cell."""
    if not cells.size or (cells < 0).any():
        return "?"
    return joined(rule, [rule.alphabet[token] for token in rule.result(cells[None])[0]])


def side_by_side(rule: Rule, first: Sequence[str], second: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table as people write it: the first operand, and the rows below it, each behind a symbol of the second."""
    size = max(len(name) for row in rows for name in (*row, ""))
    sign = rule.sign.replace("*", "x") + " " if rule.notation == "number" else ""
    head = [*first, *[""] * (len(rows[0]) - len(first))]
    texts = [" ".join(f"{name:>{size}}" for name in from_left(rule, 0, row)) for row in (head, *rows)]
    starts = (f"{sign}{symbol} | " for symbol in second)
    lines = [start + text for start, text in zip(starts, texts[1:], strict=False)]
    return "\n".join([" " * len(f"{sign}0 | ") + texts[0], *lines])
