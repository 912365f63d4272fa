"""Certify a model: try every context of every shape of a step.

If each gives the right next token, then greedy decoding is right on every problem of every width, by
induction over its steps: as long as what was written is right, the next step stands in one of the
contexts that were tried. `reach` and `tables` prove that the shapes are all that occur.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from abc_nb.certificates.checksum import checksum, checksum_of_data
from abc_nb.certificates.contexts import Contexts
from abc_nb.certificates.counterexamples import Counterexample
from abc_nb.certificates.places import PlaceContexts
from abc_nb.certificates.tables import TableContexts
from abc_nb.certificates.tried import Tried, try_all
from abc_nb.common.config import to_data
from abc_nb.common.errors import InputError
from abc_nb.model.transformer import Transformer
from abc_nb.problems.sampling import Sampler
from abc_nb.problems.tables import Tables

EXAMPLES = 64  # counterexamples that are looked for
ARITHMETIC = {  # by the bits that `Tried` notes
    32: "This holds in float32 on a processor, in whatever order numbers are summed, and in exact arithmetic. "
    "TF32 and bfloat16 are not covered.",
    64: "This holds in float64, in whatever order numbers are summed, and in exact arithmetic. In float32 rounding is "
    "too large for a proof: there every context was tried with one order of summation, and none was wrong.",
}


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
    where: dict[str, Any]  # the step with the smallest margin: width, step and the tokens it looks at
    counterexamples: tuple[Counterexample, ...]
    reach: dict[str, int]
    shapes: int
    rounding: dict[str, float]
    seconds: float
    device: str
    facts: dict[str, Any]  # what a check needs to know of problems and model
    weights: str  # checksum
    bias: str  # checksum

    def __repr__(self) -> str:
        words = "certified" if self.certified else f"not certified, {self.wrong:,} wrong"
        return f"<Certificate: {words}, {self.contexts:,} contexts, margin {self.margin:.3g}>"


def contexts_of(model: Transformer, sampler: Sampler, zeros: bool = True) -> Contexts:
    """What the steps of a model can look at; InputError for a model that can have no certificate of this kind."""
    if not isinstance(model, Transformer) or not isinstance(sampler, Sampler):
        raise InputError("a certificate needs a Transformer and the Sampler of its problems")
    if model.config.norm != "pre":
        raise InputError("no certificate for a model whose LayerNorms come after its sums: choose one of norm 'pre'")
    if model.config.encoder_layers:
        raise InputError("no certificate for a model with encoder layers: each of them looks at the whole source")
    if isinstance(sampler.task, Tables):
        return TableContexts(model, sampler)
    return PlaceContexts(model, sampler, zeros)


def can_be_certified(model: Transformer, sampler: Sampler) -> bool:
    """Whether finitely many shapes cover every length, so that all could be tried; weights make no difference."""
    try:
        return bool(contexts_of(model, sampler).shapes)
    except InputError:
        return False


def certify_model(model: Transformer, sampler: Sampler, zeros: bool = True, examples: int = EXAMPLES) -> Certificate:
    """Try every context of a model in which it can be asked for a token.

    With `zeros`, operands may have any number of zeros in front at every width; without, only in the
    narrowest one, as `abc-nb compute` writes problems. InputError for a model that has no such certificate.
    """
    return tried_and_certified(contexts_of(model, sampler, zeros), examples).certificate


class Try(NamedTuple):
    """What every context gave, and the certificate that follows from it."""

    results: list[Tried]
    certificate: Certificate


def tried_and_certified(contexts: Contexts, examples: int = EXAMPLES) -> Try:
    start, results = time.perf_counter(), try_all(contexts)
    model, task = contexts.model, contexts.task
    wrong, left = sum(each.wrong for each in results), min(each.left for each in results)
    least = min(results, key=lambda each: each.margin)
    (_, (values, right)), (width, step) = least.narrow[0], contexts.shapes[least.shape][0]
    where = {"width": width, "step": step, "right": contexts.symbol(right)}
    shown = [(each.shape, context) for each in results for context in each.examples]
    certificate = Certificate(
        task=task.name,
        base=task.base,
        statement=f"{contexts.statement()} {ARITHMETIC[results[0].bits]}",
        certified=wrong == 0 and left > 0,
        contexts=sum(each.contexts for each in results),
        wrong=wrong,
        margin=least.margin,
        where=where | {"tokens": contexts.named(least.shape, values)},
        counterexamples=tuple(contexts.counterexamples(shown, examples)),
        reach=contexts.reach,
        shapes=len(results),
        rounding={"bits": results[0].bits, "bound": max(each.bound for each in results), "left": left},
        seconds=round(time.perf_counter() - start, 2),
        device=model.head.weight.device.type,
        facts=contexts.facts,
        weights=checksum(weights_of(model)),
        bias=checksum_of_data(to_data(model.config.bias)),
    )
    return Try(results, certificate)


def weights_of(model: Transformer) -> dict[str, np.ndarray]:
    return {name: tensor.cpu().numpy() for name, tensor in model.state_dict().items()}
