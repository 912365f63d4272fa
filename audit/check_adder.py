"""Check small adders from their listed weights, over all contexts and on AdderBoard's sums, in plain Python.

`python audit/check_adder.py FILE ...` reads records that `audit.smallest_adder` wrote; it says what the model is.
AdderBoard (github.com/anadim/AdderBoard, `verify.py`) judges models of sums of two numbers of at most ten digits by ten
edge cases and by ten thousand pairs of `random.Random(2025)`.
"""

import json
import random
import sys
from collections.abc import Callable
from functools import cache
from itertools import product
from math import cos, exp, sin
from pathlib import Path

EDGES = [(0, 0), (0, 1), (9999999999, 0), (9999999999, 1), (9999999999, 9999999999), (5000000000, 5000000000)]
EDGES += [(1111111111, 8888888889), (1234567890, 9876543210), (9999999999, 9999999999), (1, 9999999999)]


def times(matrix: list[list[float]], x: list[float]) -> list[float]:
    return [sum(m * x_i for m, x_i in zip(row, x, strict=True)) for row in matrix]


def plus(*vectors: list[float]) -> list[float]:
    return [sum(parts) for parts in zip(*vectors, strict=True)]


def largest(numbers: list | float) -> float:
    return max(map(largest, numbers)) if isinstance(numbers, list) else abs(numbers)


def unfold(weights: dict) -> dict:
    """The same weights with an embedding for every token, and a matrix for every head."""
    full = {**weights}
    if "arc" in full:
        r, s, d = full["arc"]
        points = [[r * cos(s + d * t), r * sin(s + d * t)] for t in range(10)]
        full["embedding"] = points + [full.get("edge")] * ("edge" in full)
    full["heads"] = [m if len(m[0]) > 1 else [[m[0][0], -m[1][0]], [m[1][0], m[0][0]]] for m in full["heads"]]
    return full


def model(weights: dict) -> Callable[..., list[float]]:
    """Logits of a context: both digits here, both digits at the place before, the token written last."""
    table = weights["embedding"]

    @cache
    def logits(*context: int) -> list[float]:
        *keys, last = (table[token] for token in context)
        x, share = last, [1.0, 1.0]
        for matrix, pair in zip(weights["heads"], (keys[:2], keys[2:]), strict=True):
            if "softmax" in weights:
                score = [sum(map(float.__mul__, last, times(weights["softmax"], key))) for key in pair]
                share = [1 / sum(exp(s - score_i) for s in score) for score_i in score]
            x = plus(x, *(times(matrix, [s * k for k in key]) for s, key in zip(share, pair, strict=True)))
        hidden = [max(0.0, h) for h in plus(times(weights["up"], x), weights["up_bias"])]
        y = plus(x, times(weights["down"], hidden))
        return plus(times(table, y), weights.get("bias", [0.0] * len(table)))

    return logits


def contexts(ends: bool) -> dict[tuple[int, ...], int]:
    """Every context with its right token: any digits here, and before them any digits, to which a carry may come."""
    edge, right = 10 * ends, dict[tuple[int, ...], int]()
    for a, b, carry, c, d in product(range(10), range(10), (0, 1), range(10), range(10)):
        right[c, d, a, b, (a + b + carry) % 10] = (c + d + (a + b + carry) // 10) % 10
        right |= {(c, d, edge, edge, edge): (c + d) % 10, (edge, edge, 0, 0, carry): edge} if ends else {}
    return right


def check(record: dict) -> dict[str, float]:
    """How many contexts there are and are wrong, the smallest margin, and a bound on how far rounding can move it."""
    weights, right, leads = unfold(record["weights"]), contexts(record["shape"]["ends"]), []
    logits, width, hidden = model(weights), len(weights["down"]), len(weights["up"])
    for context, token in right.items():
        values = [*logits(*context)]
        leads.append(values.pop(token) - max(values))
    bound = {"bias": 0, "softmax": 0} | {name: largest(weight) for name, weight in weights.items()}
    embedding, share = bound["embedding"], 1 + 2 * bound["softmax"] * (width * bound["embedding"]) ** 2
    x = embedding * (1 + 4 * width * bound["heads"] * share)  # this and the next bound sums of absolute values
    y = x + hidden * bound["down"] * (width * bound["up"] * x + bound["up_bias"])
    error = (width * embedding * y + bound["bias"]) * 2**-42  # of under 2^10 operations, 2^-53 in each
    return {"contexts": len(leads), "wrong": sum(x <= error for x in leads), "margin": min(leads), "error": error}


def add(logits: Callable[..., list[float]], ends: bool, a: int, b: int) -> int | None:
    """The sum as the model writes it, token after token behind both numbers; None if it does not end there."""
    width, edge = len(str(max(a, b))), 10 * ends
    first, second = ([int(digit) for digit in reversed(f"{x:0{width}}")] + [0] * ends for x in (a, b))
    sequence = [edge, *first, edge, edge, *second, edge]
    for place in range(width + 1 + ends):
        i, j = place + 1, place + len(first) + 3  # of both digits
        values = logits(sequence[i], sequence[j], sequence[i - 1], sequence[j - 1], sequence[-1])
        sequence.append(values.index(max(values)))
    tokens = sequence[2 * len(first) + 4 :]
    return sum(t * 10**i for i, t in enumerate(tokens[: width + 1])) if tokens[width + 1 :] == [edge] * ends else None


def tests(record: dict) -> dict[str, int]:
    """How many are right of AdderBoard's edge cases, of its random pairs, and of ten sums of a thousand digits."""
    logits, ends, rng = model(unfold(record["weights"])), record["shape"]["ends"], random.Random(2025)
    draw = lambda count, bound: [(rng.randint(0, bound), rng.randint(0, bound)) for _ in range(count)]  # noqa: E731
    groups = {"edge cases": EDGES, "random pairs": draw(10**4, 10**10 - 1), "thousand digits": draw(10, 10**1000 - 1)}
    return {name: sum(add(logits, ends, a, b) == a + b for a, b in group) for name, group in groups.items()}


if __name__ == "__main__":
    for record in (json.loads(Path(file).read_text()) for file in sys.argv[1:]):
        print(record["name"], check(record) | tests(record))
