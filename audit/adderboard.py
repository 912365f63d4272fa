"""AdderBoard's sums, and longer ones, as a small adder writes them, in plain Python.

AdderBoard (github.com/anadim/AdderBoard, `verify.py`) judges models of sums of two numbers of at most ten digits by ten
edge cases and by ten thousand pairs of `random.Random(2025)`. `python -m audit.adderboard FILE ...` runs them.
"""

import json
import random
import sys
from collections.abc import Callable
from pathlib import Path

from audit.check_adder import model, unfold

EDGES = [(0, 0), (0, 1), (9999999999, 0), (9999999999, 1), (9999999999, 9999999999), (5000000000, 5000000000)]
EDGES += [(1111111111, 8888888889), (1234567890, 9876543210), (9999999999, 9999999999), (1, 9999999999)]


def add(logits: Callable[..., list[float]], ends: bool, a: int, b: int) -> int | None:
    """The sum as the model writes it, token after token behind both numbers; None if it does not end there."""
    width, edge = len(str(max(a, b))), 10 * ends
    first, second = ([int(digit) for digit in reversed(f"{x:0{width}}")] + [0] * ends for x in (a, b))
    sequence = [edge, *first, edge, edge, *second, edge]
    for place in range(width + 1 + ends):
        near, far = place + 1, place + len(first) + 3
        values = logits(sequence[near], sequence[far], sequence[near - 1], sequence[far - 1], sequence[-1])
        sequence.append(values.index(max(values)))
    tokens = sequence[2 * len(first) + 4 :]
    return sum(t * 10**i for i, t in enumerate(tokens[: width + 1])) if tokens[width + 1 :] == [edge] * ends else None


def tests(record: dict) -> dict[str, int]:
    """How many are right of AdderBoard's edge cases, of its random pairs, and of ten sums of a thousand digits."""
    logits, ends, rng = model(unfold(record["weights"])), record["shape"]["ends"], random.Random(2025)
    draw = lambda count, most: [(rng.randint(0, most), rng.randint(0, most)) for _ in range(count)]  # noqa: E731
    groups = {"edge cases": EDGES, "random pairs": draw(10**4, 10**10 - 1), "thousand digits": draw(10, 10**1000 - 1)}
    return {name: sum(add(logits, ends, a, b) == a + b for a, b in group) for name, group in groups.items()}


if __name__ == "__main__":
    for record in (json.loads(Path(file).read_text()) for file in sys.argv[1:]):
        print(record["name"], tests(record))
