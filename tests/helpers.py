"""Digit arrays from Python integers and back, independent of the package; models that are half right."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F

from abc_nb.evaluation import exact_match
from abc_nb.model import ModelConfig, Transformer
from abc_nb.sampling import Batch


def places_of(number: int, base: int) -> int:
    """How many digits a number has; zero has one."""
    places = 1
    while number >= base**places:
        places += 1
    return places


def array(numbers: Sequence[int], base: int, places: int) -> np.ndarray:
    """Digits (numbers, places), least significant first."""
    return np.array([[number // base**place % base for place in range(places)] for number in numbers])


def integer(digits: Sequence[int], base: int) -> int:
    """The number whose digits are given, least significant first."""
    return sum(int(digit) * base**place for place, digit in enumerate(digits))


def integers(digits: np.ndarray, base: int) -> list[int]:
    return [integer(row, base) for row in digits.tolist()]


def half_trained(config: ModelConfig, batch: Batch, vocabulary_size: int, seed: int = 0) -> Transformer:
    """A model that has learned between 20% and 80% of one batch by heart."""
    torch.manual_seed(seed)
    model = Transformer(config, vocabulary_size)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for _ in range(600):
        share = exact_match(model, batch).float().mean().item()
        if share > 0.2:
            break
        logits = model(batch.source, batch.target[:, :-1], batch.layout)
        optimizer.zero_grad()
        F.cross_entropy(logits.flatten(0, 1), batch.target[:, 1:].flatten()).backward()
        optimizer.step()
    assert 0.2 < share < 0.8, f"the model knows {share:.0%} of the batch"
    return model
