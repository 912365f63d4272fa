"""A model of another make, trained on Successor: a bias read out of its own attention carries it past its training.

The three steps of docs/transformers.md, with PyTorch's attention: read the bias, take the index modulo 3, train on
under it.
"""

from collections.abc import Sequence

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from abc_nb.bias.base import Attention
from abc_nb.calibration.calibrate import Calibration
from abc_nb.calibration.calibrate_model import bias_from_attention
from abc_nb.problems.layouts import unary

WIDTH, HEADS, LAYERS, TRAINED = 64, 4, 2, 7  # places, the first of which is zero
SOS, EOS, TOKENS = 10, 11, 12
Masks = Sequence[Tensor]  # of each layer, (head, query, key)


class Model(nn.Module):
    """Cross-attention and feed-forward in each layer; a token of the output also sees itself, which is the last digit.

    Sines and cosines of the index, modulo the period if there is one; the source is counted from its right end.
    """

    def __init__(self, period: int | None = None) -> None:
        super().__init__()
        self.period = period
        self.embedding, self.head = nn.Embedding(TOKENS, WIDTH), nn.Linear(WIDTH, TOKENS)
        self.attention = nn.ModuleList(nn.MultiheadAttention(WIDTH, HEADS, batch_first=True) for _ in range(LAYERS))
        self.feed = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH))
            for _ in range(LAYERS)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(LAYERS))

    def position(self, count: int) -> Tensor:
        index = torch.arange(count) if self.period is None else torch.arange(count) % self.period
        angle = index[:, None] * 10000 ** (-torch.arange(0, WIDTH, 2) / WIDTH)
        return torch.stack([angle.sin(), angle.cos()], -1).flatten(1)

    def forward(self, source: Tensor, target: Tensor, masks: Masks | None = None) -> tuple[Tensor, list[Tensor]]:
        """Logits, and the weights (batch, head, query, key) of every layer."""
        memory = self.embedding(source) + self.position(source.shape[1]).flip(0)
        x = self.embedding(target) + self.position(target.shape[1])
        found = []
        for number, (norm, attention, feed) in enumerate(zip(self.norms, self.attention, self.feed, strict=True)):
            mask = None if masks is None else masks[number].repeat(len(x), 1, 1)
            change, weights = attention(norm(x), memory, memory, attn_mask=mask, average_attn_weights=False)
            x = x + change
            x = x + feed(x)
            found.append(weights)
        return self.head(x), found


def problems(count: int, places: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Numbers and their successors; half of them end in nines."""
    digits = torch.randint(10, (count, places), generator=generator)  # units first
    nines = torch.arange(places) < torch.randint(places, (count, 1), generator=generator)
    digits = torch.where(nines & (torch.rand(count, 1, generator=generator) < 0.5), 9, digits)
    digits[:, -1] = 0
    carry = torch.cat([torch.ones(count, 1, dtype=torch.long), (digits == 9).long().cumprod(1)[:, :-1]], 1)
    start, end = (torch.full((count, 1), token) for token in (SOS, EOS))
    return torch.cat([start, digits.flip(1), end], 1), torch.cat([start, (digits + carry) % 10, end], 1)


def train(model: Model, steps: int, rate: float, masks: Masks | None = None) -> Model:
    generator = torch.Generator().manual_seed(steps)
    optimizer = torch.optim.AdamW(model.parameters(), rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=steps)
    for _ in range(steps):
        source, target = problems(64, TRAINED, generator)
        logits, _ = model(source, target[:, :-1], masks)
        optimizer.zero_grad()
        F.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten()).backward()
        optimizer.step()
        schedule.step()
    return model


@torch.no_grad()
def right(model: Model, places: int, masks: Masks | None = None) -> float:
    """The share of 200 problems that are answered without a mistake."""
    source, target = problems(200, places, torch.Generator().manual_seed(places))
    logits, _ = model(source, target[:, :-1], masks)
    return (logits.argmax(-1) == target[:, 1:]).all(1).float().mean().item()


def carried(learning: int, retraining: int, period: int | None, places: int = 60) -> tuple[Model, float]:
    """The plain model, and the share of long problems that it has right after more steps under its own bias."""
    torch.manual_seed(0)
    model = train(Model(), learning, 3e-3)
    source, target = problems(500, TRAINED, torch.Generator().manual_seed(1))
    with torch.no_grad():
        averaged = [weights.mean(0) for weights in model(source, target[:, :-1])[1]]
    attention: dict[tuple[Attention, int], Tensor] = {("cross", layer): mean for layer, mean in enumerate(averaged)}
    bias = bias_from_attention(attention, unary(TRAINED), Calibration(floor=-1e4))

    def masks(places: int) -> Masks:
        return [bias.dense(unary(places), *where) for where in attention]

    child = Model(period)
    child.load_state_dict(model.state_dict())
    return model, right(train(child, retraining, 2e-3, masks(TRAINED)), places, masks(places))


@pytest.mark.parametrize(
    ("steps", "learned", "share"),
    [pytest.param(240, 0.9, 0.8, marks=pytest.mark.slow), pytest.param(600, 0.99, 0.95, marks=pytest.mark.long)],
)
def test_a_bias_from_pytorchs_attention_carries_it_from_six_digits_to_sixty(
    steps: int, learned: float, share: float
) -> None:
    model, carried_on = carried(steps, steps // 2, period=3)
    assert right(model, TRAINED) > learned
    assert right(model, 20) < 0.05, "plain, it has learned six digits and no more"
    assert carried_on > share
    if steps == 600:
        assert right(model, 20) < 0.01
        assert carried(steps, steps // 2, period=None)[1] < 0.05, "with a plain index the bias alone is not enough"
