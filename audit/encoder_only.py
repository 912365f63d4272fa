"""An encoder that writes all digits of a sum at once, as the model of the paper's row RPE* (Jelassi et al. 2023).

It has one layer, which all tokens go through several times, and Shaw's vectors of the offset on keys; with `values`, on
values, too (Shaw et al. 2018, equation 3). Both numbers and the answer have room for twenty digits, most significant
first, and empty room is filled with a token of its own: so a digit is as far from those of its place at every length.
What else the quoted model had (its size, training, clip) is not in the paper; these choices are ours, and so are the
training's numbers, which have one to five digits. `python -m audit.encoder_only` writes results/encoder_only.csv.
"""

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from abc_nb.bias.base import Added
from abc_nb.common.devices import device_name, one_thread
from abc_nb.common.files import write_text
from abc_nb.common.paths import SHIPPED
from abc_nb.model.attention import Keep, KeysValues, MultiHeadAttention
from abc_nb.model.layers import Layer, ModelConfig
from abc_nb.model.positions.relative import Relative, offsets
from abc_nb.problems.sampling import TEST, TRAIN, generator
from abc_nb.specs.spec import SEEDS
from abc_nb.training.evaluation import evaluating
from abc_nb.training.fit import fit
from abc_nb.training.recipe import TrainingConfig
from audit.results import Results

FILE = SHIPPED / "encoder_only.csv"
TRAINED, ROOM, LOOPS = 5, 20, 4  # digits in training and at most, and how often a token goes through the layer
PLUS, EQUALS, EMPTY, ASKED = range(10, 14)  # tokens after the ten digits
LENGTHS, PROBLEMS = (5, 6, 10, 15, 20), 500
CONFIG = ModelConfig(width=64, heads=4, decoder_layers=1, position=Relative(clip=3 * ROOM))
RECIPE = TrainingConfig(steps=600, hold=420, learned=2.0, held_batch=64, validation=256, validate_every=200)


class OnValues(MultiHeadAttention):
    """Attention with vectors of the offset on keys and on values."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config.width, config.heads, 0.0, config.position)
        self.clip = config.position.clip if isinstance(config.position, Relative) else 0
        self.near = nn.Parameter(torch.randn(2 * self.clip + 1, config.head_size) * config.head_size**-0.5)

    def attend(
        self, x: Tensor, keys_values: KeysValues, bias: Added, index: tuple[Tensor, Tensor], keep: Keep | None = None
    ) -> Tensor:
        query, (key, value) = self.split(self.query(x)), keys_values
        logits = query @ key.mT / query.shape[-1] ** 0.5 + self.encoding.logits(self.position, query, index)
        vectors = self.near[offsets(index).clamp(-self.clip, self.clip) + self.clip]  # (query, key, d)
        weights = logits.softmax(-1)
        mixed = weights @ value + torch.einsum("bhqk,qkd->bhqd", weights, vectors)
        return self.out(mixed.transpose(1, 2).flatten(2))


class SharedEncoder(nn.Module):
    """Logits of every token (B, tokens, 14)."""

    def __init__(self, values: bool) -> None:
        super().__init__()
        self.embedding, self.encoder = nn.Embedding(14, CONFIG.width), Layer(CONFIG)
        if values:
            self.encoder.self_attention = OnValues(CONFIG)
        self.norm, self.head = nn.LayerNorm(CONFIG.width), nn.Linear(CONFIG.width, 14)

    def forward(self, tokens: Tensor) -> Tensor:
        x, index = self.embedding(tokens), torch.arange(tokens.shape[1])
        for _ in range(LOOPS):
            x = self.encoder(x, index)
        return self.head(self.norm(x))


def sums(rng: np.random.Generator, lengths: tuple[int, int], rows: int) -> tuple[Tensor, Tensor]:
    """Tokens of random sums (rows, 3 ROOM + 3), and of their answers (rows, ROOM + 1).

    Each number has a random length of its own. Its first digit can be 0, which is not written: so of numbers of one
    length, as in tests, one in ten is shorter.
    """
    sizes = rng.integers(lengths[0], lengths[1] + 1, (rows, 2))
    numbers = [[int("".join(map(str, rng.integers(0, 10, size)))) for size in row] for row in sizes]
    tokens = [
        [*right_aligned(a, ROOM), PLUS, *right_aligned(b, ROOM), EQUALS, *[ASKED] * (ROOM + 1)] for a, b in numbers
    ]
    return torch.tensor(tokens), torch.tensor([right_aligned(a + b, ROOM + 1) for a, b in numbers])


def right_aligned(number: int, room: int) -> list[int]:
    """The digits of a number, behind empty tokens."""
    digits = [int(digit) for digit in str(number)]
    return [EMPTY] * (room - len(digits)) + digits


def exact_match(model: nn.Module, tokens: Tensor, answers: Tensor) -> float:
    """The share of answers that are right in every digit."""
    with evaluating(model):
        return float((model(tokens)[:, -ROOM - 1 :].argmax(-1) == answers).all(1).double().mean())


def train(seed: int, values: bool) -> SharedEncoder:
    """A model after its training."""
    torch.manual_seed(seed)
    model = SharedEncoder(values)

    def losses(step: int, rows: int) -> Iterator[Tensor]:
        tokens, answers = sums(generator(seed, TRAIN, step), (1, TRAINED), rows)
        yield F.cross_entropy(model(tokens)[:, -ROOM - 1 :].flatten(0, 1), answers.flatten())

    def validate() -> dict[str, float]:
        return {"accuracy": exact_match(model, *sums(generator(seed, TEST, 0), (1, TRAINED), RECIPE.validation))}

    fit(model, losses, RECIPE, seed, validate)
    return model


def study() -> None:
    """Train five models of either kind, and test them: one row a model, in percent."""
    rows = list[dict[str, object]]()
    with one_thread():
        for values, seed in product((False, True), SEEDS):
            model = train(seed, values)
            row: dict[str, object] = {"values": values, "seed": seed}
            for length in LENGTHS:
                problems = sums(generator(seed, TEST, length), (length, length), PROBLEMS)
                row[f"at_{length}"] = round(100 * exact_match(model, *problems), 1)
            rows.append(row | {"device": device_name()})
            write_text(FILE, pd.DataFrame(rows).to_csv(index=False))


def rows(results: Results) -> list[dict[str, Any]]:
    """The models as rows of a measure (claim C31)."""
    if results.profile != "quick":
        return []
    frame = pd.read_csv(FILE).assign(task="addition", base=10, regime="padded-20")
    models = frame["values"].map({False: "on-keys", True: "on-keys-and-values"})
    records: list[dict[Any, Any]] = frame.assign(model=models, validation=frame[f"at_{TRAINED}"]).to_dict("records")
    return records


if __name__ == "__main__":
    study()
