"""The decoder in whole numbers, of models without norms whose heads see one key each: nothing can round.

Numbers have 64 bits. That no sum is too large for them is asserted with all signs made positive.
"""

from collections.abc import Mapping
from math import isqrt

import numpy as np

from oracle.forward import Values
from oracle.geometry import Facts, Tree

ROWS = 2**12  # contexts computed at once
LARGEST = 2.0**62
Whole = tuple[np.ndarray, int]  # integers, and the exponent of the power of two that they are times


def whole(array: np.ndarray) -> Whole:
    """The same numbers, which are finite."""
    ratios = [float(number).as_integer_ratio() for number in array.ravel()]
    finest = max(below for _, below in ratios)
    numbers = np.array([above * (finest // below) for above, below in ratios]).reshape(array.shape)
    assert numbers.dtype == np.int64, "a weight is too large"
    return numbers, 1 - finest.bit_length()


def plus(x: Whole, y: Whole) -> Whole:
    low = min(x[1], y[1])
    assert sum(float(abs(numbers).max()) * 2.0 ** (by - low) for numbers, by in (x, y)) < LARGEST, "a sum is too large"
    return x[0] * 2 ** (x[1] - low) + y[0] * 2 ** (y[1] - low), low


def tokens(tree: Tree, values: Values, count: int) -> np.ndarray:
    kind, token, _ = tree[1]
    return np.full(count, token) if kind == "token" else values[tree[1]]


class InWhole:
    """Logits of contexts from weights by name, as `oracle.forward.Forward` gives them, rounded only in the end."""

    def __init__(self, weights: Mapping[str, np.ndarray], facts: Facts) -> None:
        self.weights = {name: whole(array) for name, array in weights.items()}
        self.facts, self.width = facts, weights["embedding.weight"].shape[1]
        assert not facts.cyclic and isqrt(self.width) ** 2 == self.width, "the root of the width is a whole number"
        numbers, exponent = self.weights["embedding.weight"]
        self.embedded = numbers * isqrt(self.width), exponent

    def linear(self, name: str, x: Whole) -> Whole:
        weight, bias = (self.weights[f"{name}.{part}"] for part in ("weight", "bias"))
        largest = abs(x[0]).astype(float) @ abs(weight[0].T).astype(float)
        assert largest.max() < LARGEST, "a sum of products is too large"
        return plus((x[0] @ weight[0].T, x[1] + weight[1]), bias)

    def logits(self, tree: Tree, values: Values, count: int) -> tuple[np.ndarray, float]:
        found = np.empty((count, len(self.weights["head.bias"][0])))
        for start in range(0, count, ROWS):
            some = {leaf: column[start : start + ROWS] for leaf, column in values.items()}
            numbers, exponent = self.linear("head", self.state(tree, some, len(found[start : start + ROWS])))
            found[start : start + ROWS] = np.ldexp(numbers, exponent)
        return found, 0.0

    def state(self, tree: Tree, values: Values, count: int) -> Whole:
        if tree[0] == "in":
            return self.embedded[0][tokens(tree, values, count)], self.embedded[1]
        name, alone = f"decoder.{tree[0] - 1}", self.facts.alone
        x = self.state(tree[1], values, count)
        x = plus(x, self.seen(f"{name}.self_attention", (*tree[2], *(tree[3] if alone else ())), values, count))
        x = x if alone else plus(x, self.seen(f"{name}.cross_attention", tree[3], values, count))
        numbers, exponent = self.linear(f"{name}.feed_forward.0", x)
        return plus(x, self.linear(f"{name}.feed_forward.3", (np.maximum(numbers, 0), exponent)))

    def seen(self, name: str, keys: tuple[tuple[tuple[float, ...], Tree], ...], values: Values, count: int) -> Whole:
        """What an attention adds: each head has the value of its one key, since the softmax over one number is 1."""
        opened = np.isfinite([bias for bias, _ in keys]).reshape(-1, self.facts.heads).astype(int)
        assert (opened.sum(0) <= 1).all(), "a head sees one key at most: its softmax is 1"
        mixed: Whole = np.zeros((count, self.width), np.int64), 0
        for mask, (_, key) in zip(opened, keys, strict=True):
            token = key[0] == "in"  # of which there are few, so that each has its value once
            state = self.embedded if token else self.state(key, values, count)
            numbers, exponent = self.linear(f"{name}.value", state)
            numbers = numbers[tokens(key, values, count)] if token else numbers
            mixed = plus(mixed, (numbers * mask.repeat(self.width // self.facts.heads), exponent))
        return self.linear(f"{name}.out", mixed)
