"""Certify a model: try every context of every shape of a step.

If each gives the right next token, then greedy decoding is right on every problem of every width, by
induction over its steps: as long as what was written is right, the next step stands in one of the
contexts that were tried. `reach` proves that the shapes are all that occur.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from abc_nb.certificates import tables
from abc_nb.certificates.all_contexts import try_all
from abc_nb.certificates.checksum import checksum, checksum_of_data
from abc_nb.certificates.contexts import count
from abc_nb.certificates.counterexamples import Counterexample, counterexamples
from abc_nb.certificates.reach import Reach, check, period, reach, shapes
from abc_nb.certificates.rounding import rounding
from abc_nb.certificates.shared_queries import Shared
from abc_nb.certificates.tried import Tried
from abc_nb.common.config import to_data
from abc_nb.common.errors import InputError
from abc_nb.model.positions import NoPosition
from abc_nb.model.transformer import Transformer
from abc_nb.problems.sampling import Sampler
from abc_nb.problems.tables import Tables
from abc_nb.training.evaluation import evaluating

EXAMPLES = 64  # counterexamples that are looked for


@dataclass(frozen=True)
class Certificate:
    """What trying every context of a model gave.

    `certified` means: no context is wrong, and rounding cannot make one wrong, see `rounding`. `margin` is
    the right logit minus the best other one.
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


def certify_model(
    model: Transformer, sampler: Sampler, zeros: bool = True, examples: int = EXAMPLES, path: Path | None = None
) -> Certificate:
    """Try every context of a model in which it can be asked for a token.

    With `zeros`, operands may have any number of zeros in front at every width; without, only in the
    narrowest one, as `abc-nb compute` writes problems. What is done of many contexts is kept in the file `path`,
    from which a killed process goes on. InputError for a model that has no such certificate.
    """
    start = time.perf_counter()
    results = try_model(model, sampler, zeros, path)
    found = certificate_of(model, sampler, results, zeros, examples)
    return replace(found, seconds=round(time.perf_counter() - start, 2))


def try_model(model: Transformer, sampler: Sampler, zeros: bool = True, path: Path | None = None) -> list[Tried]:
    """What every context of a model gave, by shape; InputError as in `certify_model`."""
    if not isinstance(model, Transformer) or not isinstance(sampler, Sampler):
        raise InputError("a certificate needs a Transformer and the Sampler of its problems")
    refuse(model, sampler)
    if isinstance(sampler.task, Tables):
        with evaluating(model):
            return tables.try_all(model, sampler)
    rules = sampler.task.automaton()
    found = shapes(model, sampler, rules.settled, zeros)
    key = f"{checksum(weights_of(model))} {checksum_of_data(to_data(model.config.bias))} {zeros}"
    with evaluating(model):
        return try_all(Shared(model, rules), found, path, key)


def refuse(model: Transformer, sampler: Sampler) -> None:
    """InputError for a model that can have no certificate of this kind, whatever its weights are; it says why."""
    if isinstance(sampler.task, Tables):
        tables.check(model, sampler)
        return
    if sampler.arrangement not in ("natural", "aligned"):
        raise InputError(
            f"no certificate for problems written {sampler.arrangement}: its contexts go from the units up"
        )
    check(model, sampler, sampler.task.automaton().settled)


def can_be_certified(model: Transformer, sampler: Sampler) -> bool:
    """Whether finitely many contexts cover every length, so that all could be tried; weights make no difference."""
    try:
        refuse(model, sampler)
    except InputError:
        return False
    return True


def count_contexts(model: Transformer, sampler: Sampler) -> int:
    """How many contexts a certificate of a model has to try; its weights make no difference. InputError as there."""
    rules = sampler.task.automaton()
    return sum(count(shape, rules) for shape in shapes(model, sampler, rules.settled))


def certificate_of(
    model: Transformer, sampler: Sampler, results: list[Tried], zeros: bool = True, examples: int = EXAMPLES
) -> Certificate:
    """The certificate that follows from what every context gave."""
    if isinstance(sampler.task, Tables):
        return certificate_of_table(model, sampler, results, examples)
    start, rules = time.perf_counter(), sampler.task.automaton()
    known = reach(model, sampler, rules.settled)
    error = rounding(model, rules, results)
    wrong = counterexamples(model, sampler, rules, results, examples, zeros)
    margin, count = min(each.margin for each in results), sum(each.wrong for each in results)
    return Certificate(
        task=sampler.task.name,
        base=sampler.task.base,
        statement=statement(sampler, known, zeros),
        certified=count == 0 and error["left"] > 0,
        contexts=sum(each.contexts for each in results),
        wrong=count,
        margin=margin,
        where=narrowest(min(results, key=lambda each: each.margin)),
        counterexamples=tuple(wrong),
        reach=to_plain(known),
        shapes=len(results),
        rounding=error,
        seconds=round(time.perf_counter() - start, 2),
        device=model.head.weight.device.type,
        facts=facts(model, sampler, known.narrowest, zeros),
        weights=checksum(weights_of(model)),
        bias=checksum_of_data(to_data(model.config.bias)),
    )


def certificate_of_table(model: Transformer, sampler: Sampler, results: list[Tried], examples: int) -> Certificate:
    """The same of a model that writes a table, of whose problems zeros in front are always a part."""
    start, task = time.perf_counter(), tables.table_task(sampler)
    error = rounding(model, tables.RADIX, results)
    margin, count = min(each.margin for each in results), sum(each.wrong for each in results)
    return Certificate(
        task=task.name,
        base=task.base,
        statement=tables.statement(task),
        certified=count == 0 and error["left"] > 0,
        contexts=sum(each.contexts for each in results),
        wrong=count,
        margin=margin,
        where=tables.narrowest(min(results, key=lambda each: each.margin), task),
        counterexamples=tuple(tables.counterexamples(model, sampler, min(examples, count))),
        reach={"furthest": tables.furthest(model)},
        shapes=len(results),
        rounding=error,
        seconds=round(time.perf_counter() - start, 2),
        device=model.head.weight.device.type,
        facts=facts(model, sampler, narrowest=1, zeros=True),
        weights=checksum(weights_of(model)),
        bias=checksum_of_data(to_data(model.config.bias)),
    )


def weights_of(model: Transformer) -> dict[str, np.ndarray]:
    return {name: tensor.cpu().numpy() for name, tensor in model.state_dict().items()}


def facts(model: Transformer, sampler: Sampler, narrowest: int, zeros: bool) -> dict[str, Any]:
    """What an independent check takes from the certificate: nothing that it could work out from weights and bias."""
    config = model.config
    return {
        "task": sampler.task.name,
        "base": sampler.task.base,
        "arrangement": sampler.arrangement,
        "source_index": config.source_index,
        "kind": config.kind,
        "period": period(model),
        "cyclic": not isinstance(config.position, NoPosition),
        "heads": config.heads,
        "layers": config.decoder_layers,
        "norm": config.norm,
        "zeros": zeros,
        "narrowest": narrowest,
    }


def to_plain(known: Reach) -> dict[str, int]:
    return {name: value for name, value in to_data(known).items() if name != "type"}


def narrowest(tried: Tried) -> dict[str, Any]:
    """Where the smallest margin is; places are numbered as the shape keeps them, units first."""
    _, values, right = tried.narrow[0]
    width, step = tried.where[0]
    forms = {"factor": "digit {p} of the factor", "digit": "digit {n} of place {p}", "output": "output {p}"}
    names = [forms[kind].format(n=number + 1, p=place) for kind, number, place in tried.shape.atoms]
    return {"width": width, "step": step, "right": right, "tokens": dict(zip(names, values.tolist(), strict=True))}


def statement(sampler: Sampler, known: Reach, zeros: bool) -> str:
    """What is proven, in words, if no context is wrong."""
    task, narrowest = sampler.task, known.narrowest
    return (
        f"Greedy decoding writes every token right for every problem of {task.title} in base {task.base} "
        f"at every width W >= {narrowest} ({sampler.regime}): {task.covered(narrowest, zeros)}."
    )
