"""Every context of a step, by counting through digits place by place with plain arithmetic."""

from collections.abc import Iterator

import numpy as np

from oracle.geometry import LISTS, Facts, Leaf, Tree, Width, leaves, renamed

MOST_ROWS = 2**22  # rows at once
Question = tuple[Width, int, Tree]  # a step of one width, which stands for all of its shape, and its tree


def place_once(facts: Facts, run: np.ndarray, factor: np.ndarray, digits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The output digit and what is carried on, from what was carried and the digits (rows, operands) of a place."""
    if facts.task in LISTS or facts.task == "parity":
        combine = {"listops-max": np.maximum, "listops-min": np.minimum}.get(facts.task)
        value = (run + digits[:, 0]) % facts.base if combine is None else combine(run, digits[:, 0])
        return value, value
    if facts.task == "subtraction":
        total = digits[:, 0] - digits[:, 1] - run
        return total % facts.base, -(total // facts.base)
    total = run + (factor * digits[:, 0] if facts.short else digits.sum(1))
    return total % facts.base, total // facts.base


def beginning(facts: Facts) -> tuple[np.ndarray, np.ndarray]:
    """What is carried into the units, and the short factor: zero where there is none."""
    count = facts.base**facts.short
    run = {"successor": 1, "listops-min": facts.base - 1}.get(facts.task, 0)
    return np.full(count, run), np.arange(count)


def inputs(facts: Facts, kind: str) -> np.ndarray:
    """The digits that a place can hold: (choices, operands)."""
    one = np.array([0, 1, 4]) if facts.task == "cycle-navigation" else np.arange(facts.base)  # a step back is four on
    grid = np.stack(np.meshgrid(*[one] * facts.long, indexing="ij"), -1).reshape(-1, facts.long)
    return grid if kind == "any" else grid[:1]


def questions(width: Width, settled: int) -> dict[Tree, Question]:
    """The steps of one width by their shape: the tree, the gaps between its places and what they can hold."""
    found: dict[Tree, Question] = {}
    for step in range(width.width + 1):
        tree = width.tree(width.facts.layers, step)
        seen = sorted({place for kind, _, place in leaves(tree) if kind != "factor"} | ({step} - {width.width}))
        gaps, before = [], -1
        for place in seen:
            free = sum(width.kind(unseen) == "any" for unseen in range(before + 1, place))
            other = tuple(width.kind(unseen) for unseen in range(before + 1, place) if width.kind(unseen) != "any")
            gaps.append((min(free, settled), other, width.kind(place), place == step))
            before = place
        names = {place: number for number, place in enumerate(seen)}
        found.setdefault((renamed(tree, names), tuple(gaps), step == width.width), (width, step, tree))
    return found


def radix(facts: Facts) -> int:
    """What is carried is less than this, and so is the factor."""
    return facts.base ** max(facts.short, 1)


def settled(facts: Facts) -> int:
    """After how many places of any digits the states that can follow a state no longer change, whatever the factor."""
    run, factor = beginning(facts)
    states, steps = factor * radix(facts) + run, inputs(facts, "any")
    while True:
        before, digits = np.repeat(states, len(steps)), np.tile(steps, (len(states), 1))
        own = before // radix(facts)
        after = own * radix(facts) + place_once(facts, before % radix(facts), own, digits)[1]
        if np.isin(after, states).all():
            break
        states = np.union1d(states, after)
    following = np.zeros((len(states), len(states)), np.float32)
    following[np.searchsorted(states, before), np.searchsorted(states, after)] = 1
    power, places = following, 1
    while not np.array_equal(further := np.minimum(power @ following, 1), power):
        power, places = further, places + 1
        assert places <= len(states) + 1, "the states of this task do not settle"
    return places


def contexts(question: Question) -> Iterator[tuple[dict[Leaf, np.ndarray], np.ndarray]]:
    """The tokens of every context, each once, and the token that is right there, in parts."""
    width, asked, tree = question
    facts, seen = width.facts, leaves(tree)
    last = max([place for kind, _, place in seen if kind != "factor"] + [asked if asked < width.width else -1])
    order: list[Leaf] = sorted(leaf for leaf in seen if leaf[0] == "factor")
    for place in range(last + 1):
        order += [("digit", number, place) for number in range(facts.long) if ("digit", number, place) in seen]
        order += [("output", 0, place)] * (("output", 0, place) in seen) + [("right", 0, place)] * (place == asked)
    run, factor = beginning(facts)
    code = np.zeros_like(factor)
    for _, _, place in [leaf for leaf in order if leaf[0] == "factor"]:
        code = code * facts.base + factor // facts.base**place % facts.base
    new = np.argsort(code, kind="stable")
    for found in spread(width, order, 0, code[new], factor[new], run[new]):
        values = {}
        for leaf in reversed(order):
            found, values[leaf] = np.divmod(found, facts.base)
        right = values.pop(("right", 0, asked), None)
        yield values, np.full(len(found), facts.token("&")) if right is None else right


def spread(width: Width, order: list[Leaf], place: int, *ways: np.ndarray) -> Iterator[np.ndarray]:
    """What is seen on every way on from a place, as one number, each once; some at a time where they are many."""
    code, factor, run = ways  # what was seen, the factor and what is carried
    if all(where < place for kind, _, where in order if kind != "factor"):
        yield np.unique(code)
        return
    facts, digits = width.facts, inputs(width.facts, width.kind(place))
    new = np.flatnonzero(np.diff(code, prepend=-1))  # equal codes are neighbours, and stay together
    if len(new) > 1 and len(code) * len(digits) > MOST_ROWS:
        for part in np.split(np.arange(len(code)), [new[len(new) // 2]]):
            yield from spread(width, order, place, *(own[part] for own in ways))
        return
    rows, choice = np.divmod(np.arange(len(code) * len(digits)), len(digits))
    output, after = place_once(facts, run[rows], factor[rows], digits[choice])
    code = code[rows]
    for kind, number, where in order:
        if where == place and kind != "factor":
            code = code * facts.base + (digits[choice, number] if kind == "digit" else output)
    size = radix(facts)
    whole = np.unique((code * size + factor[rows]) * size + after)
    yield from spread(width, order, place + 1, whole // size**2, whole // size % size, whole % size)
