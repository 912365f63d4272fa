"""Certify a model: try every context of every shape of a step.

If each gives the right next token, then greedy decoding is right on every problem of every width, by
induction over its steps: as long as what was written is right, the next step stands in one of the
contexts that were tried. `reach`, `tables` and `text` prove that the shapes are all that occur.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from tqdm.auto import tqdm

from abc_nb.certificates.checksum import checksum
from abc_nb.certificates.contexts import Block, Context, Contexts, Shape
from abc_nb.certificates.counterexamples import Counterexample
from abc_nb.certificates.exact_sums import exact_sums
from abc_nb.certificates.places import NumberContexts
from abc_nb.certificates.rounding import Rounding, check_finite
from abc_nb.certificates.states import States
from abc_nb.certificates.tables import TableContexts
from abc_nb.certificates.tried import TriedContexts
from abc_nb.common.config import sha256_of, to_data
from abc_nb.common.devices import one_thread
from abc_nb.common.errors import InputError
from abc_nb.model.transformer import ModelConfig, Transformer
from abc_nb.problems.sampling import Sampler
from abc_nb.training.evaluation import evaluating, in_float64

MOST_CONTEXTS = 2 * 10**9  # at some millionths of a second each they take hours
MANY_CONTEXTS = 8  # all states of a part are computed if there are so many times as many contexts
WRONG_KEPT = 200  # wrong contexts that are kept of each shape; all are counted
NARROW_KEPT, NARROW_MARGIN = 100, 0.5  # contexts kept of each block with a margin below this
ARITHMETIC = (
    "This holds in float64, in which answers are computed, in whatever order numbers are summed, and in exact "
    "arithmetic. Float32 is not covered."
)
NOTHING_ROUNDED = (
    " In float64 no number that an answer depends on is rounded, on any processor: each sum is a whole multiple of a "
    "power of two, and less than 2^53 of them."
)
SampledContexts = NumberContexts | TableContexts  # of a sampler's problems


@dataclass(frozen=True)
class Certificate:
    """The result of trying every context of a model.

    `certified` means: no context is wrong, and rounding cannot make one wrong. `margin` is the right logit minus the
    best other one. `rounding` has the largest `bound` on the error of a margin, and the smallest that is `left` when a
    margin's bound is subtracted. Where nothing is rounded it also has the `unit` of logits, and the most `units` that
    any sum has of its own unit (see `exact_sums`).
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
    """The result of trying the contexts of one shape."""

    shape: Shape
    contexts: int = 0
    wrong: int = 0
    margin: float = math.inf  # the smallest
    bound: float = 0.0  # the most that rounding can change a margin by
    left: float = math.inf  # the least that it leaves of one
    wrong_examples: list[Context] = field(default_factory=list)  # some that are wrong
    narrow: list[Context] = field(default_factory=list)  # some that are right by less than `NARROW_MARGIN`

    def add(self, block: Block, margin: np.ndarray, left: np.ndarray) -> None:
        """Count a block whose right tokens lead by a margin, of which rounding leaves so much: (N,) each."""
        wrong = np.flatnonzero(~(margin > 0))
        self.contexts += len(margin)
        self.wrong += len(wrong)
        self.wrong_examples += [block[row] for row in wrong[: WRONG_KEPT - len(self.wrong_examples)]]
        self.narrow += [block[row] for row in np.flatnonzero((margin > 0) & (margin < NARROW_MARGIN))[:NARROW_KEPT]]
        self.bound = max(self.bound, float((margin - left).max()))
        self.left = min(self.left, float(left.min()))
        self.margin = min(self.margin, float(margin.min()))


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
    start, total = time.perf_counter(), sum(contexts.counts.values())
    with tqdm(total=total, unit=" contexts", unit_scale=True, delay=3, mininterval=1, leave=False) as bar:
        return certificate_of(model, contexts, results_of(model, contexts, count=bar.update), start)


def certificate_of(model: Transformer, contexts: Contexts, results: list[Result], start: float) -> Certificate:
    """The certificate that follows from the results of all contexts, which were tried from `start` on."""
    task = contexts.task
    wrong = sum(result.wrong for result in results)
    left, bound = min(result.left for result in results), max(result.bound for result in results)
    examples = [(result.shape, context) for result in results for context in result.wrong_examples]
    sums = exact_sums(model, contexts)
    return Certificate(
        task=task.name,
        base=task.base,
        statement=f"{contexts.statement} {ARITHMETIC}{NOTHING_ROUNDED * (sums is not None)}",
        certified=wrong == 0 and left > 0,
        contexts=sum(result.contexts for result in results),
        wrong=wrong,
        margin=min(result.margin for result in results),
        counterexamples=tuple(contexts.counterexamples(model, examples)),
        rounding={"bound": bound, "left": left} | ({} if sums is None else {"unit": sums.unit, "units": sums.units}),
        seconds=round(time.perf_counter() - start, 2),
        device=model.head.weight.device.type,
        facts={"task": task.name, "base": task.base} | contexts.facts,
        weights=checksum(weights_of(model)),
        bias=sha256_of(to_data(model.config.bias)),
    )


def weights_of(model: Transformer) -> dict[str, np.ndarray]:
    return {name: tensor.cpu().numpy() for name, tensor in model.state_dict().items()}


class Margins:
    """By how much right tokens lead, and what rounding leaves of that, in the arithmetic of `rounding`."""

    def __init__(self, rounding: Rounding, contexts: Contexts, threads: int = 1) -> None:
        self.rounding, self.contexts, self.threads = rounding, contexts, threads
        self.current: tuple[Shape, States] | None = None

    def __call__(self, shape: Shape, block: Block) -> tuple[np.ndarray, np.ndarray]:
        """Of each context, (N,) both; minus infinity where a number is undefined."""
        states = self.states(shape).take(block.values)
        right = torch.from_numpy(block.right).to(states.device)
        margins = (margin.double() for margin in states.margins(shape.root, right))
        margin, left = (x.nan_to_num(-torch.inf, torch.inf, -torch.inf).cpu().numpy() for x in margins)
        return margin, left

    def states(self, shape: Shape) -> States:
        """What computes the states of a shape; those of the shape before are forgotten."""
        if self.current is None or self.current[0] != shape:
            most_shared, base = self.contexts.counts[shape] / MANY_CONTEXTS, self.contexts.task.base
            self.current = shape, States(self.rounding, shape.leaves, base, most_shared, self.threads)
        return self.current[1]


def results_of(
    model: Transformer,
    contexts: Contexts,
    wrong_limit: float = math.inf,
    count: Callable[[int], object] = lambda _: None,
) -> list[Result]:
    """The result of every shape, or of the first ones, until `wrong_limit` wrong contexts are kept.

    `count` is told how many more contexts are settled. InputError where there are too many contexts, or numbers that
    are not finite.
    """
    total = sum(contexts.counts.values())
    if total > MOST_CONTEXTS:
        raise InputError(f"no certificate: there are {total:,} contexts, and at most {MOST_CONTEXTS:,} are tried")
    check_finite(model)
    tried, results = TriedContexts(contexts, model), list[Result]()
    margins = Margins(Rounding(in_float64(model)), contexts, torch.get_num_threads())
    wrong_kept = 0  # of the shapes before
    with one_thread(), evaluating(model):  # for what `States` does not split among threads itself
        for shape in tried.order:
            result = Result(shape)
            results.append(result)
            for block in filter(len, contexts.blocks(shape)):
                untried = tried.untried(shape, block)
                result.contexts += len(block) - len(untried)
                if len(untried):
                    margin, left = margins(shape, untried)
                    result.add(untried, margin, left)
                    tried.add(shape, untried, left > 0)
                count(len(block))
                if wrong_kept + len(result.wrong_examples) >= wrong_limit:
                    return results
            wrong_kept += len(result.wrong_examples)
            count(contexts.counts[shape] - result.contexts)
    return [result for result in results if result.contexts]
