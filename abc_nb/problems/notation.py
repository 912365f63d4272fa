"""How people write problems of a rule, and the answers: numbers, lists of items, or symbols side by side.

Operands stand in digit arrays (samples, places), place 0 first.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from abc_nb.common.errors import InputError
from abc_nb.problems.digits import DIGITS, Digits, is_less, written_number
from abc_nb.problems.rules import Rule


def in_writing_order(rule: Rule, number: int, symbols: Sequence[Any]) -> Sequence[Any]:
    """Symbols by place, in the order in which people write them; or symbols as they are written, by place."""
    return symbols if rule.inputs[number].from_left else symbols[::-1]


def answer_text(rule: Rule, places: Sequence[str]) -> str:
    """An answer as people write it, from the symbols at its places."""
    symbols = in_writing_order(rule, 0, places)
    if rule.notation == "number":
        return written_number(symbols)
    return space(rule).join(symbols)


def space(rule: Rule) -> str:
    """What stands between two symbols: a space, or nothing where they are written side by side."""
    return " " if rule.notation == "items" or max(map(len, rule.alphabet)) > 1 else ""


def problem_text(rule: Rule, operands: Iterable[Sequence[str]]) -> str:
    """A problem from the symbols of each operand."""
    return f"{space(rule)}{rule.sign}{space(rule)}".join(space(rule).join(symbols) for symbols in operands)


def example(rule: Rule) -> str:
    """The rule's example, with digits that its base has; without one, symbols of each operand."""
    if rule.example:
        highest = rule.base - 1
        return "".join(str(min(int(sign), highest)) if sign.isdigit() else sign for sign in rule.example)
    return problem_text(rule, ([rule.alphabet[token] for token in input_.alphabet[:3]] for input_ in rule.inputs))


def read_problem(rule: Rule, text: str) -> list[Digits]:
    """The operands of a problem as they are typed, (1, places) each; InputError with what is wrong with it."""
    if rule.stacked:
        return read_stacked(rule, text)
    if rule.notation == "items" and len(rule.inputs) == 1:
        return [read_list(rule, text)]
    numbers = rule.notation == "number"
    parts = parts_of(text, rule.sign if len(rule.inputs) > 1 else "", rule)
    if len(parts) != len(rule.inputs):
        raise InputError(f"{'numbers' if numbers else 'operands'} in it: {len(parts)}, needed: {len(rule.inputs)}")
    if rule.short_digits and len(parts[-1]) > rule.short_digits:
        raise InputError(f"the second number has {len(parts[-1])} digits, which is more than {rule.short_digits}")
    places = [in_writing_order(rule, number, part) for number, part in enumerate(parts)]
    operands = [np.array([[rule.alphabet.index(symbol) for symbol in symbols]]) for symbols in places]
    if not all(np.isin(digits, input_.alphabet).all() for input_, digits in zip(rule.inputs, operands, strict=True)):
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
    names = {*rule.alphabet, *rule.typed}
    signs = [part.split() if space(rule) else [*part] for part in parts]
    symbol, operand = ("digit", "a number") if rule.notation == "number" else ("symbol", "an operand")
    if unknown := [sign for part in signs for sign in part if not {sign, sign.lower()} & names]:
        raise InputError(f"{unknown[0]!r} is no {symbol}")
    if not all(signs):
        raise InputError(f"{operand} is missing")
    recognized = [[sign if sign in names else sign.lower() for sign in part] for part in signs]
    return [[rule.typed.get(name, name) for name in part] for part in recognized]


def read_list(rule: Rule, text: str) -> Digits:
    """The tokens of a list, with or without its operator in front."""
    items = [item.upper() if item.upper() in rule.words else item for item in text.split()]
    if rule.sign and items[:1] == [rule.sign]:
        items = items[1:]
    alphabet = rule.inputs[0].alphabet.tolist()
    tokens = dict(zip(typed_symbols(rule, alphabet), alphabet, strict=True))
    if unknown := [item for item in items if item not in tokens]:
        raise InputError(f"{unknown[0]!r} is no item")
    if not items:
        raise InputError("there is no item")
    operand = np.array([[tokens[item] for item in in_writing_order(rule, 0, items)]])
    if rule.whole and not rule.whole.fits(operand):
        raise InputError("its operators and items do not make one list")
    return operand


def typed_symbols(rule: Rule, tokens: Sequence[int]) -> list[str]:
    """How each token of a list, or of symbols, is typed."""
    names = {symbol: name for name, symbol in rule.typed.items()}
    return [names.get(rule.vocabulary[token], rule.vocabulary[token]) for token in tokens]


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


def unstack(rule: Rule, operand: Digits) -> np.ndarray:
    """The numbers (samples, numbers, digits) of a stacked operand."""
    columns = 1 + int((operand[0] == rule.inputs[0].mark).argmax())
    rows = operand.reshape(len(operand), -1, columns)
    return rows[:, :, : columns - rule.wider(rows.shape[1])]


def typed(rule: Rule, operands: Sequence[Digits], room: int | None) -> str:
    """The first problem as a person types it; with `room` zeros in front are kept, as many as leave so many places."""
    if rule.stacked:
        numbers = unstack(rule, operands[0])[0, ::-1, ::-1]
        texts = [[rule.vocabulary[token] for token in tokens] for tokens in numbers]
        return "+".join(map(written_number if room is None else "".join, texts))
    places = [in_writing_order(rule, number, digits[0]) for number, digits in enumerate(operands)]
    if rule.notation != "number":
        return problem_text(rule, (typed_symbols(rule, tokens) for tokens in places))
    texts = [[rule.vocabulary[token] for token in tokens] for tokens in places]
    if room is None:
        return rule.sign.join(map(written_number, texts))
    return rule.sign.join("".join(text[room * (len(text) == len(texts[0])) :]) for text in texts)


def table_answer(rule: Rule, cells: np.ndarray) -> str:
    """The answer that a table (rows, columns) leads to; `?` where it has a token that is no cell."""
    if not cells.size or (cells < 0).any():
        return "?"
    return answer_text(rule, [rule.alphabet[token] for token in rule.result(cells[None])[0]])


def table_text(rule: Rule, first: Sequence[str], second: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table as people write it: the first operand, and the rows below it, each behind a symbol of the second."""
    size = max(len(name) for row in rows for name in (*row, ""))
    sign = rule.sign.replace("*", "x") + " " if rule.notation == "number" else ""
    head = [*first, *[""] * (len(rows[0]) - len(first))]
    texts = [" ".join(f"{name:>{size}}" for name in in_writing_order(rule, 0, row)) for row in (head, *rows)]
    starts = [" " * len(f"{sign}0 | "), *(f"{sign}{symbol} | " for symbol in second)]
    return "\n".join(start + text for start, text in zip(starts, texts, strict=False))
