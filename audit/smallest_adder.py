"""The smallest trained Transformers that add numbers of every length, proven over all contexts.

A sequence holds both numbers, units first, each between two edge tokens, and then the sum as far as it is written. The
model has one layer and no norms. Its mask opens four keys: the two digits of the place that is written, and the two
of the place before. With the token written last, these are a context, and there are some 20,000 of them at any length.

    e(t)    an embedding, which is also the head: free numbers, or points on an arc, r (cos(s + t d), sin(s + t d))
    x     = e(last) + A (e(a) + e(b)) + B (e(a') + e(b'))      four heads, of which two and two share their matrix
    y     = x + W relu(U x + c)
    logit = y e(t), plus a bias for each token in the largest two models

With `keys=2` two heads see a place's two digits each, with weights softmax(e(last) M e(key)), so that nothing of the
softmax is given by hand. A model with an end token (`ends`) writes one digit more than the numbers have, then the end.
Without it the edge token is the digit 0, and whoever asks stops after that digit, as AdderBoard's format has it.

Sixteen seeds, 100 to 115, are trained side by side on random sums of at most six digits. Then, in every round, all
contexts are tried, and the 512 narrowest of each seed are practised besides more of these sums. The shapes, steps and
rounds were chosen with seeds below 32, and every seed is counted. `python -m audit.smallest_adder` writes
results/smallest_adder/: for each shape the weights of the seed with the widest margin in any round, rounded to as few
decimals as leave half of it, and a table.
"""

import csv
import json
import random
import sys
import time
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from audit.check_adder import check, tests

HERE = Path(__file__).parents[1] / "results" / "smallest_adder"
SEEDS = range(100, 116)
ROUNDS = 24  # of practice
STEPS, PRACTICE = 3000, 600  # of the first training, and of a round
KEYS = 4  # the mask gives four numbers by hand: how far each open key is from the place that is written
Weights = dict[str, Tensor]  # each of shape (seeds, ...)


@dataclass(frozen=True)
class Shape:
    """What a model is made of."""

    name: str
    width: int = 2
    hidden: int = 4
    arc: bool = True  # an embedding of three numbers instead of one number per token and coordinate
    ends: bool = False  # the model writes an end token, which is an edge token, too
    bias: bool = False  # of the logits
    keys: int = 1  # open keys per head
    rotate: bool = False  # A and B are rotations with a factor (two numbers each) instead of matrices (four)

    @property
    def tokens(self) -> int:
        return 10 + self.ends


SHAPES = (
    Shape("arc-31"),
    Shape("arc-26", hidden=3),
    Shape("arc-35-softmax", keys=2),
    Shape("free-61-end", arc=False, ends=True, bias=True),
    Shape("arc-33-end", ends=True),
    Shape("free-104-end", width=3, hidden=6, arc=False, ends=True, bias=True),
    Shape("arc-27-rotations", rotate=True),
    Shape("arc-21", hidden=2),
)


def contexts(ends: bool) -> Tensor:
    """(contexts, 6): both digits of a place and of the place before, the token written last, the right token."""
    rows, edge = [], 10 * ends
    for a, b, carry in product(range(10), range(10), (0, 1)):
        last, carry = (a + b + carry) % 10, (a + b + carry) // 10
        rows += [(c, d, a, b, last, (c + d + carry) % 10) for c, d in product(range(10), range(10))]
    if ends:  # the first place, and the end after a place of two zeros
        rows += [(a, b, edge, edge, edge, (a + b) % 10) for a, b in product(range(10), range(10))]
        rows += [(edge, edge, 0, 0, last, edge) for last in (0, 1)]
    return torch.tensor(rows)


def sums(ends: bool, problems: int = 20_000) -> Tensor:
    """The contexts, as `contexts` gives them, that random sums of one to six digits meet."""
    rng, edge, rows = random.Random(0), 10 * ends, []
    for _ in range(problems):
        width, carry, before, last = rng.randint(1, 6), 0, (edge, edge), edge
        for place in range(width + 1):
            a, b = (rng.randrange(10), rng.randrange(10)) if place < width else (0, 0)
            carry, right = divmod(a + b + carry, 10)
            rows.append((a, b, *before, last, right))
            before, last = (a, b), right
        if ends:
            rows.append((edge, edge, *before, last, edge))
    return torch.tensor(rows)


def begin(shape: Shape, seeds: range) -> Weights:
    """Weights before training; what a seed gets doesn't depend on the others."""

    def weights_of(seed: int) -> Weights:
        generator, width = torch.Generator().manual_seed(seed), shape.width

        def normal(*size: int, scale: float = 1.0) -> Tensor:
            return torch.randn(*size, generator=generator) * scale

        weights = {"embedding": normal(shape.tokens, width)}
        if shape.arc:
            weights = {"arc": torch.tensor([1.0, 0.0, 0.3]) + normal(3) * torch.tensor([0.3, 1.0, 0.1])}
            weights |= {"edge": normal(width)} if shape.ends else {}
        weights["heads"] = normal(2, width, 1 if shape.rotate else width, scale=width**-0.5)
        weights["up"], weights["up_bias"] = normal(shape.hidden, width, scale=width**-0.5), normal(shape.hidden) / 2
        weights["down"] = normal(width, shape.hidden, scale=shape.hidden**-0.5)
        weights |= {"bias": torch.zeros(shape.tokens)} if shape.bias else {}
        return weights | ({"softmax": normal(width, width, scale=0.3)} if shape.keys == 2 else {})

    by_seed = [weights_of(seed) for seed in seeds]
    return {name: torch.stack([weights[name] for weights in by_seed]).requires_grad_() for name in by_seed[0]}


def embedding(weights: Weights) -> Tensor:
    """(seeds, tokens, width)."""
    if "embedding" in weights:
        return weights["embedding"]
    radius, start, step = weights["arc"].T[:, :, None]
    angle = start + step * torch.arange(10)
    points = torch.stack([radius * angle.cos(), radius * angle.sin()], -1)
    return torch.cat([points, weights["edge"][:, None]], 1) if "edge" in weights else points


def matrices(heads: Tensor) -> Tensor:
    """(seeds, 2, width, width): A and B."""
    if heads.shape[-1] > 1:
        return heads
    cos, sin = heads[:, :, 0], heads[:, :, 1]
    return torch.stack([torch.cat([cos, -sin], -1), torch.cat([sin, cos], -1)], -2)


def logits(weights: Weights, inputs: Tensor) -> Tensor:
    """(seeds, contexts, tokens) from the same contexts for all seeds (contexts, 5), or from (seeds, contexts, 5)."""
    table = embedding(weights)
    tokens = table[torch.arange(len(table))[:, None, None], inputs.expand(len(table), -1, -1)]
    pairs, last = tokens[:, :, :4].unflatten(2, (2, 2)), tokens[:, :, 4]
    if "softmax" in weights:
        scores = torch.einsum("snd,sde,snhke->snhk", last, weights["softmax"], pairs)
        pairs = pairs * scores.softmax(-1)[..., None]
    x = last + torch.einsum("snhke,shde->snd", pairs, matrices(weights["heads"]))
    hidden = torch.relu(torch.einsum("snd,sfd->snf", x, weights["up"]) + weights["up_bias"][:, None])
    y = x + torch.einsum("snf,sdf->snd", hidden, weights["down"])
    bias = weights["bias"][:, None] if "bias" in weights else 0
    return torch.einsum("snd,std->snt", y, table) + bias


@torch.no_grad()
def margins(weights: Weights, rows: Tensor) -> Tensor:
    """(seeds, contexts) in float64: how far the right token leads, in rows of `contexts`."""
    weights, parts = {name: weight.double() for name, weight in weights.items()}, []
    for part in rows.split(2000):
        values = logits(weights, part[:, :5])
        right = part[:, 5].expand(len(values), -1)[..., None]
        parts.append(values.gather(-1, right)[..., 0] - values.scatter(-1, right, -torch.inf).amax(-1))
    return torch.cat(parts, 1)


def fit(weights: Weights, examples: Tensor, hard: Tensor | None, steps: int, rate: float) -> None:
    """Adam on the cross-entropy of 384 examples a step, and of 192 hard ones (seeds, contexts, 6) of each seed."""
    optimizer = torch.optim.Adam(weights.values(), betas=(0.9, 0.99))
    seeds = len(weights["heads"])
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = rate * min(1, (step + 1) / 100, 2 - 2 * step / steps)
        rows = examples[torch.randint(len(examples), (384,))].expand(seeds, -1, -1)
        if hard is not None:
            indices = torch.randint(hard.shape[1], (seeds, 192))
            rows = torch.cat([rows, hard[torch.arange(seeds)[:, None], indices]], 1)
        loss = cross_entropy(logits(weights, rows[..., :5]).transpose(1, 2), rows[..., 5], reduction="none")
        optimizer.zero_grad()
        loss.mean(1).sum().backward()
        clip(weights)
        optimizer.step()


def clip(weights: Weights) -> None:
    """Shorten the gradient of each seed to length 1."""
    gradients = [weight.grad for weight in weights.values() if weight.grad is not None]
    length = sum(gradient.flatten(1).square().sum(1) for gradient in gradients) ** 0.5
    for gradient in gradients:
        gradient /= torch.as_tensor(length).clamp(min=1).view(-1, *[1] * (gradient.dim() - 1))


def until_proven(shape: Shape, seeds: range) -> tuple[Weights, Tensor, list[int]]:
    """Weights of every seed where its margin was widest, these margins (seeds,), and seeds proven after each round."""
    torch.manual_seed(0)
    weights, rows, examples = begin(shape, seeds), contexts(shape.ends), sums(shape.ends)
    widest = torch.full((len(seeds),), -torch.inf, dtype=torch.double)
    best, proven, hard = Weights(), [], None
    for number in range(1 + ROUNDS):
        fit(weights, examples, hard, PRACTICE if number else STEPS, 0.005 if number else 0.01)
        leads = margins(weights, rows)
        hard = rows[leads.topk(512, 1, largest=False).indices]
        is_wider = leads.amin(1) > widest
        widest = torch.maximum(widest, leads.amin(1))
        for name, weight in weights.items():
            mask = is_wider.view(-1, *[1] * (weight.dim() - 1))
            best[name] = torch.where(mask, weight.detach(), best.get(name, weight.detach()))
        proven.append(int((widest > 0).sum()))
        wrong = (leads <= 0).sum(1).sort().values[:8].tolist()
        print(f"{shape.name}, round {number}: {proven[-1]} of {len(seeds)} proven; wrong {wrong}", flush=True)
    return best, widest, proven


def study(shape: Shape) -> dict:
    """Train a shape in all seeds, write its best model if one is proven, and give its row of the table."""
    start = time.process_time()
    weights, widest, proven = until_proven(shape, SEEDS)
    seconds, values = time.process_time() - start, sum(weight[0].numel() for weight in weights.values())
    row = {"model": shape.name, "values": values, "values with the mask": values + KEYS, "seeds": len(SEEDS)}
    row |= {"proven without practice": proven[0], "proven": proven[-1], "processor seconds": round(seconds)}
    if proven[-1]:
        best = int(widest.argmax())
        record = {"name": shape.name, "shape": asdict(shape), "seed": SEEDS[best]}
        record["weights"] = rounded_weights(record, {name: weight[best] for name, weight in weights.items()})
        (HERE / f"{shape.name}.json").write_text(json.dumps(record, indent=1) + "\n")
        row |= {"seed": SEEDS[best], **check(record), **tests(record)}
    return row


def rounded_weights(record: dict, weights: Weights) -> dict[str, Any]:
    """The weights with as few decimals as leave at least half of the margin."""

    def lists(decimals: int) -> dict[str, Any]:
        return {name: rounded(weight.double().tolist(), decimals) for name, weight in weights.items()}

    half = check(record | {"weights": lists(12)})["margin"] / 2
    enough = (decimals for decimals in range(1, 12) if check(record | {"weights": lists(decimals)})["margin"] > half)
    return lists(next(enough, 12))


def rounded(numbers: list | float, decimals: int) -> list | float:
    return [rounded(x, decimals) for x in numbers] if isinstance(numbers, list) else round(numbers, decimals)


def main(names: list[str]) -> None:
    """Study the shapes of these names, or all, and write their rows into the table, where other rows stay."""
    torch.set_num_threads(1)
    HERE.mkdir(parents=True, exist_ok=True)
    table = HERE / "table.csv"
    for shape in [shape for shape in SHAPES if shape.name in names or not names]:
        rows = list(csv.DictReader(table.read_text().splitlines())) if table.exists() else []
        rows = [row for row in rows if row["model"] != shape.name] + [study(shape)]
        columns = list(dict.fromkeys(name for row in rows for name in row))
        with table.open("w", newline="") as file:
            writer = csv.DictWriter(file, columns, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main(sys.argv[1:])
