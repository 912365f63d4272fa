"""Trains the page's model of products: one layer, one cell a head, as in js/wires.js, which says what it computes.

It learns from tables of factors of up to six digits. Then every context is tried in whole numbers, and it practises on
those that are wrong, in rounds, until none is. A token is a cell below 100, or BLANK where nothing stands.
"""

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

BLANK = END = 100
SHAPE = {"tokens": 101, "classes": 101, "heads": 4, "D": 32, "F": 384}


def right(contexts: np.ndarray) -> np.ndarray:
    """The cell that follows from a digit of each factor, the cell above and the cell before, (n, 4): (n,)."""
    a, b, above, before = contexts.T
    sums = above % BLANK % 10 + a % BLANK * b + before % BLANK // 10
    return np.where(b == BLANK, END, sums)


def tables(rng: np.random.Generator, count: int) -> np.ndarray:
    """The contexts of all cells of so many tables, of factors of one random size."""
    columns, rows = rng.integers(1, 7, 2)
    a, b = rng.integers(10, size=(count, columns)), rng.integers(10, size=(count, rows))
    blank, above, contexts = np.full(count, BLANK), [np.full(count, BLANK)] * (columns + 2), []
    for row in range(rows):
        cells = [blank]
        for column in range(columns + 1):
            digit = a[:, column] if column < columns else blank
            contexts.append(np.stack([digit, b[:, row], above[column + 1], cells[-1]], 1))
            cells.append(right(contexts[-1]))
        above = [*cells[1:], blank]
    contexts.append(np.stack([a[:, 0], blank, above[1], blank], 1))
    return np.concatenate(contexts)


def every_context() -> np.ndarray:
    """Those of js/products.js: all that a cell can see, and more, (n, 4)."""
    digit, cell, blank = range(10), range(100), [BLANK]
    seen = [*cell, BLANK]
    shapes = [(digit, digit, seen, seen), (blank, digit, blank, cell), (digit, blank, seen, blank)]
    return np.concatenate([np.array([*product(*shape)]) for shape in shapes])


class Wires(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        heads, tokens, classes, depth, inner = (SHAPE[name] for name in ("heads", "tokens", "classes", "D", "F"))
        self.T = nn.Parameter(torch.randn(heads, tokens, depth) / 2)
        self.U, self.u = nn.Parameter(torch.randn(inner, depth) / depth**0.5), nn.Parameter(torch.zeros(inner))
        self.W = nn.Parameter(torch.zeros(depth, inner))
        self.O, self.o = nn.Parameter(torch.randn(classes, depth) / depth**0.5), nn.Parameter(torch.zeros(classes))

    def forward(self, contexts: Tensor) -> Tensor:
        x = self.T[torch.arange(4), contexts].sum(1)
        y = x + torch.relu(self.u + x @ self.U.T) @ self.W.T
        return y @ self.O.T + self.o

    @torch.no_grad()
    def round(self) -> dict[str, float]:
        """Round matrices to 8 bits and biases to whole multiples of what they are added to; gives the units."""
        unit = {name: 2.0 ** np.ceil(np.log2(getattr(self, name).abs().max().item() / 127)) for name in "TUWO"}
        unit["u"] = unit["T"] * unit["U"]
        unit["o"] = unit["u"] * unit["W"] * unit["O"]
        for name, size in unit.items():
            part = getattr(self, name)
            part.copy_(torch.round(part / size) * size)
        return unit

    @torch.no_grad()
    def wrong(self, contexts: np.ndarray) -> np.ndarray:
        """The contexts in which another token leads, in float64, which is exact for these weights."""
        exact, found = Wires().double(), []
        exact.load_state_dict(self.state_dict())
        for some in np.array_split(contexts, 100):
            logits, label = exact(torch.from_numpy(some)), torch.from_numpy(right(some))[:, None]
            lead = logits.gather(1, label) - logits.scatter(1, label, -torch.inf).amax(1, keepdim=True)
            found.append(some[(lead[:, 0] <= 0).numpy()])
        return np.concatenate(found)


def batches(rng: np.random.Generator, extra: np.ndarray) -> Iterator[np.ndarray]:
    while True:
        drawn = np.concatenate([tables(rng, 16) for _ in range(6)])
        some = rng.choice(drawn, 512)
        yield np.concatenate([some, rng.choice(extra, 512)]) if len(extra) else some


def train(seed: int = 0) -> dict[str, Any]:
    """A model without a wrong context: its shape, its units and its weights in one list."""
    torch.manual_seed(seed)
    rng, model, contexts = np.random.default_rng(seed), Wires(), every_context()
    extra, wrong, number = np.empty((0, 4), int), contexts, 0
    while len(wrong):
        steps, rate = (2500, 3e-3) if number == 0 else (1000, 1.5e-3)
        optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98))
        for step, batch in zip(range(1, steps + 1), batches(rng, extra), strict=False):
            for group in optimizer.param_groups:
                group["lr"] = rate * min(1, step / 50, 2 - 2 * step / steps + 1e-3)
            loss = nn.functional.cross_entropy(model(torch.from_numpy(batch)), torch.from_numpy(right(batch)))
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        unit, number = model.round(), number + 1
        wrong = model.wrong(contexts)
        extra = np.concatenate([extra, wrong])
        print(f"round {number}: {len(wrong):,} of {len(contexts):,} contexts wrong", flush=True)
    weights = np.concatenate([getattr(model, name).detach().double().numpy().ravel() for name in "TUuWOo"])
    return {"shape": SHAPE, "unit": unit, "weights": weights.tolist()}
