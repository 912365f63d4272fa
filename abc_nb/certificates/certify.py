"""Certify a model: try every context of every shape of a step.

If each gives the right next token, then greedy decoding is right on every problem of every width, by
induction over its steps: as long as what was written is right, the next step stands in one of the
contexts that were tried. `reach`, `tables` and `spans` prove that the shapes are all that occur.
"""

import math
import time
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from tqdm.auto import tqdm

from abc_nb.certificates.alike import Alike
from abc_nb.certificates.checksum import checksum
from abc_nb.certificates.contexts import Block, Context, Contexts, Shape
from abc_nb.certificates.counterexamples import Counterexample
from abc_nb.certificates.places import NumberContexts
from abc_nb.certificates.rounding import AtOnce, Rounding, Unbounded, check_finite
from abc_nb.certificates.states import States
from abc_nb.certificates.sums import exact_sums
from abc_nb.certificates.tables import TableContexts
from abc_nb.common.config import sha256_of, to_data
from abc_nb.common.devices import one_thread
from abc_nb.common.errors import InputError
from abc_nb.model.transformer import ModelConfig, Transformer
from abc_nb.problems.sampling import Sampler
from abc_nb.training.evaluation import evaluating, in_float64

MOST_CONTEXTS = 2 * 10**9  # at some millionths of a second each they take hours
MARGIN_KEPT = 0.5  # of a margin that rounding has to leave
MANY_CONTEXTS = 8  # times as many contexts as states of a part are reason to compute all of these
FEW = 0.1  # of some contexts
LOOKED_AT = 2**11  # contexts that say whether float32 is enough for a shape
WRONG = 200  # wrong contexts that are kept of each shape; all are counted
IN_FLOAT32 = (
    "This holds in float32 on a processor and in float64, in whatever order numbers are summed, and in exact "
    "arithmetic. TF32 and bfloat16 are not covered."
)
IN_FLOAT64 = (
    "This holds in float64, in whatever order numbers are summed, and in exact arithmetic. Float32 is not covered: "
    "rounding there is too large for a proof in some contexts."
)
NOTHING_ROUNDED = (
    " In float64 no number is rounded at all, on any processor: each sum is a whole multiple of a power of two, "
    "and less than 2^53 of them."
)
SampledContexts = NumberContexts | TableContexts  # of a sampler's problems


@dataclass(frozen=True)
class Certificate:
    """What trying every context of a model gave.

    `certified` means: no context is wrong, and rounding cannot make one wrong. `margin` is the right logit minus the
    best other one. `rounding` is over all contexts: the `bits` of the arithmetic that it is about, the largest `bound`
    on what rounding can change the margin of any context by, in the arithmetic in which that one was tried, the least
    that is `left` of a margin, and how many are proven for `float64` alone.
    Where float64 rounds nothing it has the `unit` of logits, too, and the most `units` that a sum has of its own.
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
    facts: dict[str, Any]  # what an independent check takes as given: of the problems alone
    weights: str  # checksum of their numbers, which is another than that of a run's file
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
    margin: float = math.inf  # the smallest
    bound: float = 0.0  # the most that rounding can change a margin by
    left: float = math.inf  # the least that it leaves of one
    wide: int = 0  # contexts that are proven for float64 alone
    examples: list[Context] = field(default_factory=list)  # wrong ones

    def add(self, block: Block, margins: "Margins") -> None:
        """Count a block whose right tokens lead by these margins."""
        margin, left, wide = margins
        wrong = np.flatnonzero(~(margin > 0))
        self.contexts += len(margin)
        self.wrong += len(wrong)
        self.wide += int(wide.sum())
        self.examples += [block[row] for row in wrong[: WRONG - len(self.examples)]]
        self.bound = max(self.bound, float((margin - left).max()))
        self.left = min(self.left, float(left.min()))
        self.margin = min(self.margin, float(margin.min()))


class Margins(NamedTuple):
    """By how much right tokens lead, what rounding leaves of that, and whether that is for float64 alone: (N,) each."""

    margin: np.ndarray
    left: np.ndarray
    wide: np.ndarray


def contexts_of(model: Transformer | ModelConfig, sampler: Sampler) -> SampledContexts:
    """What the steps of a model can look at, whatever its weights; InputError where finitely many do not cover it."""
    config = model.config if isinstance(model, Transformer) else model
    if not isinstance(config, ModelConfig) or not isinstance(sampler, Sampler):
        raise InputError("a certificate needs a Transformer and the Sampler of its problems")
    if config.encoder_layers:
        raise InputError("no certificate for a model with encoder layers: each of them looks at the whole source")
    return (TableContexts if sampler.task.table else NumberContexts)(config, sampler)


def certify_model(model: Transformer, sampler: Sampler) -> Certificate:
    """Try every context in which a model can be asked for a token; InputError for one that has no certificate."""
    return certify_contexts(model, contexts_of(model, sampler))


def certify_contexts(model: Transformer, contexts: Contexts) -> Certificate:
    """The same for contexts of any kind."""
    start, results, task = time.perf_counter(), results_of(model, contexts), contexts.task
    count, wrong, wide = (sum(getattr(result, name) for result in results) for name in ("contexts", "wrong", "wide"))
    left, bound = min(result.left for result in results), max(result.bound for result in results)
    shown = [(result.shape, context) for result in results for context in result.examples]
    sums, arithmetic = exact_sums(model, contexts), IN_FLOAT64 if wide else IN_FLOAT32
    return Certificate(
        task=task.name,
        base=task.base,
        statement=f"{contexts.statement} {arithmetic}{NOTHING_ROUNDED * (sums is not None)}",
        certified=wrong == 0 and left > 0,
        contexts=count,
        wrong=wrong,
        margin=min(result.margin for result in results),
        counterexamples=tuple(contexts.counterexamples(model, shown)),
        rounding={"bits": 64 if wide else 32, "bound": bound, "left": left, "float64": wide}
        | ({} if sums is None else {"unit": sums.unit, "units": sums.units}),
        seconds=round(time.perf_counter() - start, 2),
        device=model.head.weight.device.type,
        facts={"task": task.name, "base": task.base} | contexts.facts,
        weights=checksum(weights_of(model)),
        bias=sha256_of(to_data(model.config.bias)),
    )


def weights_of(model: Transformer) -> dict[str, np.ndarray]:
    return {name: tensor.cpu().numpy() for name, tensor in model.state_dict().items()}


class Passes:
    """Forward passes over contexts of one model, each with a bound on rounding.

    rules      computed in                                  the bound is for every evaluation in
    unbounded  float32                                      (none: for looks, which are no proof)
    single     float32                                      float32
    closer     float64; float32 is once E from it, not 2 E  float32
    mixed      float64, but the last layer in float32       float64
    double     float64                                      float64

    Contexts go from one row to the next as long as too little of their margins is left. Where float32 leaves many open,
    they begin with `mixed`; where float64 rounds nothing, all are `closer`.
    """

    def __init__(self, model: Transformer, contexts: Contexts, threads: int = 1) -> None:
        double = in_float64(model)
        model = deepcopy(model).to(double.head.weight.device)
        self.contexts, self.threads, self.wide = contexts, threads, dict[Shape, bool]()
        self.unbounded, self.single, self.double = Unbounded(model), Rounding(model), Rounding(double)
        self.closer = Rounding(double, self.single.u)
        self.mixed = AtOnce(model), AtOnce(double)
        self.nothing_rounds = exact_sums(model, contexts) is not None
        self.known: dict[tuple[Rounding, ...], tuple[Shape, States]] = {}

    def __call__(self, shape: Shape, block: Block) -> Margins:
        if self.nothing_rounds:  # what is computed in float64; evaluations in float32 are near it
            margin, left = self.margins(shape, block, self.closer)
            wide = ~(left > 0)
            return Margins(margin, np.where(wide, margin, left), wide)
        count = len(block)
        margin, left, wide = np.zeros(count), np.full(count, -np.inf), np.zeros(count, bool)

        def again(chosen: np.ndarray, *rules: Rounding) -> None:
            if len(chosen):
                margin[chosen], left[chosen] = self.margins(shape, block.part(chosen), *rules)

        if not self.needs_float64(shape, block):
            again(np.arange(count), self.single)
            rest = np.flatnonzero(unclear(margin, left, MARGIN_KEPT))
            if len(rest) <= FEW * count:
                again(rest, self.closer)
        rest = np.flatnonzero(unclear(margin, left))
        wide[rest] = True
        again(rest, *self.mixed)
        again(rest[unclear(margin[rest], left[rest], MARGIN_KEPT)], self.double)
        return Margins(margin, left, wide)

    def needs_float64(self, shape: Shape, block: Block) -> bool:
        """Whether float32 leaves many contexts of a shape open, by a few of its first block."""
        if shape not in self.wide:
            some = block.part(np.linspace(0, len(block) - 1, min(LOOKED_AT, len(block))).astype(int))
            self.wide[shape] = unclear(*self.margins(shape, some, self.single)).mean() > FEW
        return self.wide[shape]

    def margins(self, shape: Shape, block: Block, *rules: Rounding) -> tuple[np.ndarray, np.ndarray]:
        """Margins and what is left of them; what is not a number leaves nothing."""
        states = self.states(shape, *rules).take(block.values)
        right = torch.from_numpy(block.right).to(states.device)
        margin, left = (torch.cat(part).double() for part in zip(*states.margins(shape.root, right), strict=True))
        return margin.cpu().numpy(), left.nan_to_num(-torch.inf, neginf=-torch.inf).cpu().numpy()

    def states(self, shape: Shape, *rules: Rounding) -> States:
        """What computes the states of a shape; those of the shape before are forgotten."""
        known = self.known.get(rules)
        if known is None or known[0] != shape:
            most, base = self.contexts.counts[shape] / MANY_CONTEXTS, self.contexts.task.base
            below = self.states(shape, *rules[1:]) if rules[1:] else None
            known = self.known[rules] = shape, States(rules[0], shape.atoms, base, most, below, self.threads)
        return known[1]


def unclear(margin: np.ndarray, left: np.ndarray, kept: float = 0.0) -> np.ndarray:
    """Where rounding leaves too little of a margin, and the token is not wrong for sure."""
    return ~(left > kept * margin) & ~(2 * margin < left)


def results_of(model: Transformer, contexts: Contexts) -> list[Result]:
    """The result of every shape; InputError where there are too many contexts, or numbers that are not finite."""
    total = sum(contexts.counts.values())
    if total > MOST_CONTEXTS:
        raise InputError(f"no certificate: there are {total:,} contexts, and at most {MOST_CONTEXTS:,} are tried")
    check_finite(model)
    passes, alike = Passes(model, contexts, torch.get_num_threads()), Alike(contexts, model)
    with (
        one_thread(),  # for what is not split among threads by us
        evaluating(model),
        tqdm(total=total, unit=" contexts", unit_scale=True, delay=3, mininterval=1, leave=False) as bar,
    ):
        results = {shape: Result(shape) for shape in contexts.counts}
        for shape in alike.order:
            result, count = results[shape], contexts.counts[shape]
            for block in filter(len, contexts.blocks(shape)):
                rest = alike.rest(shape, block)
                settled = len(block) - len(rest)
                result.contexts += settled
                result.wide += settled * alike.wide.get(alike.trees[shape], False)
                if len(rest):
                    margins = passes(shape, rest)
                    result.add(rest, margins)
                    alike.add(shape, rest, margins.left > 0, margins.wide)
                bar.update(len(block))
            bar.update(count - result.contexts)
        return [result for result in results.values() if result.contexts]
