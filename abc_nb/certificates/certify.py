"""Certify a model: try every context of every shape of a step.

If each gives the right next token, then greedy decoding is right on every problem of every width, by
induction over its steps: as long as what was written is right, the next step stands in one of the
contexts that were tried. `reach` and `tables` prove that the shapes are all that occur.
"""

import math
import time
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from tqdm.auto import tqdm

from abc_nb.certificates.checksum import checksum
from abc_nb.certificates.contexts import Block, Context, Contexts, Shape
from abc_nb.certificates.counterexamples import Counterexample
from abc_nb.certificates.places import NumberContexts
from abc_nb.certificates.rounding import Rounding
from abc_nb.certificates.states import States
from abc_nb.certificates.tables import TableContexts
from abc_nb.common.config import sha256_of, to_data
from abc_nb.common.devices import one_thread
from abc_nb.common.errors import InputError
from abc_nb.model.transformer import ModelConfig, Transformer
from abc_nb.problems.sampling import Sampler
from abc_nb.training.evaluation import evaluating

MOST = 2 * 10**9  # contexts: at three millionths of a second each they take 100 minutes
KEPT = 0.5  # of a margin that a pass has to leave
MANY = 8  # times as many contexts as states of a part are reason to compute all of these
FEW = 0.1  # of the contexts of a block
NARROW = 64  # contexts with small margins that are kept of each block and in the end
WRONG = 200  # wrong contexts that are kept of each shape; all are counted
ARITHMETIC = {  # by the bits that `Result` notes
    32: "This holds in float32 on a processor, in whatever order numbers are summed, and in exact arithmetic. "
    "TF32 and bfloat16 are not covered.",
    64: "This holds in float64, in whatever order numbers are summed, and in exact arithmetic. In float32 rounding is "
    "too large for a proof: there every context was tried with one order of summation, and none was wrong.",
}
SampledContexts = NumberContexts | TableContexts  # of a sampler's problems


@dataclass(frozen=True)
class Certificate:
    """What trying every context of a model gave.

    `certified` means: no context is wrong, and rounding cannot make one wrong. `margin` is the right logit minus the
    best other one. `rounding` is over all contexts: the `bits` of the arithmetic that it is about, the `bound` on what
    rounding can change a margin by, and the least that is `left` of a margin.
    """

    task: str
    base: int
    statement: str
    certified: bool
    contexts: int
    wrong: int
    margin: float
    counterexamples: tuple[Counterexample, ...]
    rounding: dict[str, float]
    seconds: float
    device: str
    facts: dict[str, Any]  # what a check needs to know of problems and model
    weights: str  # checksum
    bias: str  # checksum

    def __repr__(self) -> str:
        words = "certified" if self.certified else f"not certified, {self.wrong:,} wrong"
        return f"<Certificate: {words}, {self.contexts:,} contexts, margin {self.margin:.3g}>"


@dataclass
class Result:
    """What trying the contexts of one shape gave."""

    shape: Shape
    contexts: int = 0
    wrong: int = 0
    narrow: list[tuple[float, Context]] = field(default_factory=list)  # the smallest margins, the smallest first
    bound: float = 0.0  # the most that rounding can change a margin by
    left: float = math.inf  # the least that it leaves of one
    bits: int = 32  # of the arithmetic that this is about: see `Passes`
    examples: list[Context] = field(default_factory=list)  # wrong ones

    @property
    def margin(self) -> float:
        return self.narrow[0][0]

    def add(self, block: Block, margin: np.ndarray, left: np.ndarray) -> None:
        """Count a block whose right tokens lead by these margins."""
        wrong = np.flatnonzero(~(margin > 0))
        self.contexts += len(margin)
        self.wrong += len(wrong)
        self.examples += [block[row] for row in wrong[: WRONG - len(self.examples)]]
        self.bound = max(self.bound, float((margin - left).max()))
        self.left = min(self.left, float(left.min()))
        least = np.argpartition(margin, NARROW)[:NARROW] if len(margin) > NARROW else np.arange(len(margin))
        self.narrow += [(float(margin[row]), block[row]) for row in least]
        self.narrow = sorted(self.narrow, key=lambda each: each[0])[:NARROW]


def contexts_of(model: Transformer | ModelConfig, sampler: Sampler) -> SampledContexts:
    """What the steps of a model can look at, whatever its weights; InputError where finitely many do not cover it."""
    config = model.config if isinstance(model, Transformer) else model
    if not isinstance(config, ModelConfig) or not isinstance(sampler, Sampler):
        raise InputError("a certificate needs a Transformer and the Sampler of its problems")
    if config.encoder_layers:
        raise InputError("no certificate for a model with encoder layers: each of them looks at the whole source")
    return (TableContexts if sampler.task.table else NumberContexts)(config, sampler)


def can_be_certified(model: Transformer, sampler: Sampler) -> bool:
    """Whether finitely many shapes cover every length, so that all could be tried; weights make no difference."""
    try:
        return bool(contexts_of(model, sampler).shapes)
    except InputError:
        return False


def certify_model(model: Transformer, sampler: Sampler) -> Certificate:
    """Try every context in which a model can be asked for a token; InputError for one that has no certificate."""
    return attempt(model, contexts_of(model, sampler)).certificate


class Attempt(NamedTuple):
    """The result of every shape, and the certificate that follows from them."""

    results: list[Result]
    certificate: Certificate


def attempt(model: Transformer, contexts: Contexts) -> Attempt:
    start, results, task = time.perf_counter(), results_of(model, contexts), contexts.task
    wrong, left = sum(each.wrong for each in results), min(each.left for each in results)
    shown = [(each.shape, context) for each in results for context in each.examples]
    certificate = Certificate(
        task=task.name,
        base=task.base,
        statement=f"{contexts.statement} {ARITHMETIC[results[0].bits]}",
        certified=wrong == 0 and left > 0,
        contexts=sum(each.contexts for each in results),
        wrong=wrong,
        margin=min(each.margin for each in results),
        counterexamples=tuple(contexts.counterexamples(model, shown)),
        rounding={"bits": results[0].bits, "bound": max(each.bound for each in results), "left": left},
        seconds=round(time.perf_counter() - start, 2),
        device=model.head.weight.device.type,
        facts={"task": task.name, "base": task.base} | contexts.facts,
        weights=checksum(weights_of(model)),
        bias=sha256_of(to_data(model.config.bias)),
    )
    return Attempt(results, certificate)


def weights_of(model: Transformer) -> dict[str, np.ndarray]:
    return {name: tensor.cpu().numpy() for name, tensor in model.state_dict().items()}


class Passes:
    """Forward passes over contexts of one model, in one of two ways.

    In float32, with a bound for every evaluation in float32. Or, where `exact` is, with lower layers in float64: then
    the bound is for this computation, exact arithmetic and every evaluation in float64. Contexts of which that leaves
    too little are computed again, all in float64; an evaluation is once E from that, and not 2 E.
    """

    def __init__(self, model: Transformer, contexts: Contexts, threads: int = 1) -> None:
        model = deepcopy(model).cpu() if model.head.weight.device.type == "mps" else model  # which has no float64
        self.contexts, self.threads, double = contexts, threads, deepcopy(model).double()
        self.single, self.double, self.exact = Rounding(model), Rounding(double), False
        self.closer = Rounding(double, self.single.u)
        self.known: dict[tuple[Rounding, Rounding | None], tuple[Shape, States]] = {}

    def __call__(self, shape: Shape, block: Block) -> tuple[np.ndarray, np.ndarray]:
        """Margins and what is left of them: (contexts,) each."""
        margin, left = self.leads(shape, block, self.single, self.double if self.exact else None)
        again = np.flatnonzero(~(left > KEPT * margin * self.exact) & ~(2 * margin < left))
        if len(again) and (self.exact or len(again) <= FEW * len(margin)):
            closer = self.double if self.exact else self.closer
            margin[again], left[again] = self.leads(shape, block.part(again), closer)
        return margin, left

    def leads(
        self, shape: Shape, block: Block, rules: Rounding, below: Rounding | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        states = self.states(shape, rules, below).take(block.values)
        right = torch.from_numpy(block.right).to(states.device)
        margin, left = zip(*states.leads(shape.root, right), strict=True)
        return torch.cat(margin).double().cpu().numpy(), torch.cat(left).double().cpu().numpy()

    def states(self, shape: Shape, rules: Rounding, below: Rounding | None) -> States:
        """What computes the states of a shape; those of the shape before are forgotten."""
        known = self.known.get((rules, below))
        if known is None or known[0] != shape:
            most, base = self.contexts.counts[shape] / MANY, self.contexts.task.base
            lower = None if below is None else self.states(shape, below, None)
            states = States(rules, shape.atoms, base, most, lower, self.threads)
            known = self.known[rules, below] = shape, states
        return known[1]


def results_of(model: Transformer, contexts: Contexts) -> list[Result]:
    """The result of every shape; InputError where there are too many contexts."""
    total = sum(contexts.counts.values())
    if total > MOST:
        raise InputError(f"no certificate: there are {total:,} contexts, and at most {MOST:,} are tried")
    passes = Passes(model, contexts, torch.get_num_threads())
    with (
        one_thread(),  # for what is not split among threads by us
        evaluating(model),
        tqdm(total=total, unit=" contexts", unit_scale=True, delay=3, mininterval=1, leave=False) as bar,
    ):
        return in_one_way(contexts, passes, bar)


def in_one_way(contexts: Contexts, passes: Passes, bar: "tqdm[Any]") -> list[Result]:
    """The same; all again in the exact way as soon as rounding in float32 leaves it open whether one is right."""
    found = []
    for shape, count in contexts.counts.items():
        each = Result(shape, bits=64 if passes.exact else 32)
        for block in filter(len, contexts.blocks(shape)):
            margin, left = passes(shape, block)
            if not passes.exact and ((margin > 0) & ~(left > 0)).any():
                passes.exact, bar.n, bar.last_print_n = True, 0, 0  # `reset` would draw the bar at once
                return in_one_way(contexts, passes, bar)
            each.add(block, margin, left)
            bar.update(len(block))
        bar.update(count - each.contexts)
        found += [each] * (each.contexts > 0)
    return found
