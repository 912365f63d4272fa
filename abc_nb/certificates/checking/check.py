"""Check a certificate: every context again, enumerated and computed independently in float64."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from tqdm.auto import tqdm

from abc_nb.certificates.checking.enumerate import Question, contexts, questions, settled
from abc_nb.certificates.checking.forward import Forward, State, Values
from abc_nb.certificates.checking.geometry import KINDS, TABLE, Facts, Tree, Width
from abc_nb.certificates.checking.tables import steps
from abc_nb.certificates.checksum import checksum, checksum_of_data
from abc_nb.common.config import fits
from abc_nb.common.errors import InputError

ROWS = 2**19  # contexts computed at once
SAID = ("task", "base", "arrangement", "narrowest")  # what a statement is about
FIELDS = {"facts": dict, "certified": bool, "contexts": int, "wrong": int, "margin": float, "weights": str, "bias": str}
MARGIN = 2  # places that a key can be further away than a line's offset
FURTHEST = 64  # columns
CHECKED = "exact arithmetic and float64, sums in any order; a bound for float32 is not checked again"
CLOSE = 1e-3  # how near the smallest margins in float32 and float64 must be
Contexts = Iterator[tuple[Values, np.ndarray]]  # their tokens, and the right ones


@dataclass(frozen=True)
class Check:
    """What a check found; `agrees` says whether the certificate says the same."""

    agrees: bool
    contexts: int
    wrong: int
    margin: float
    left: float  # the least that rounding in float64 leaves of a margin
    statement: str  # what was tried, in words
    seconds: float


def check(certificate: Mapping[str, Any], weights: Mapping[str, np.ndarray], model: Mapping[str, Any]) -> Check:
    """Verify a certificate against the weights by name and a model's configuration as plain data.

    InputError where it is no certificate, or where it belongs to other weights or another bias.
    """
    start, bias = time.perf_counter(), model["bias"]
    if not all(fits(certificate.get(name), kind) for name, kind in FIELDS.items()):
        raise InputError("this is no certificate: a field is missing or not of its type")
    facts = Facts(**{name: certificate["facts"].get(name) for name in SAID}, **of_model(weights, model))
    if checksum(weights) != certificate["weights"] or checksum_of_data(bias) != certificate["bias"]:
        raise InputError("this certificate belongs to other weights or another bias: certify the model again")
    count, wrong, margin, left = 0, 0, float("inf"), float("inf")
    forward = Forward(weights, facts)
    with tqdm(unit=" contexts", unit_scale=True, delay=3, mininterval=1, leave=False) as bar:
        for tree, parts in asked(facts, dict(bias)):
            for found, bound in margins(forward, tree, parts):
                count, wrong = count + len(found), wrong + int((~(found > 0)).sum())
                margin, left = min(margin, float(found.min())), min(left, float((found - bound).min()))
                bar.update(len(found))
    agrees = (count, wrong) == (certificate["contexts"], certificate["wrong"])
    agrees = agrees and abs(margin - certificate["margin"]) < CLOSE and (left > 0) >= certificate["certified"]
    return Check(agrees, count, wrong, margin, left, said(facts), round(time.perf_counter() - start, 2))


def said(facts: Facts) -> str:
    """What was tried, in words: of the certificate it takes what the statement is about, and nothing else."""
    if facts.task == TABLE:
        return f"{facts.task} in base {facts.base}, factors of any lengths: {CHECKED}"
    return f"{facts.task} in base {facts.base}, every width from {facts.narrowest} on, zeros in front or not: {CHECKED}"


def of_model(weights: Mapping[str, np.ndarray], model: Mapping[str, Any]) -> dict[str, Any]:
    """What weights and configuration say of a model."""
    layers = [name for name in weights if name.startswith("decoder.") and name.endswith(".self_attention.query.weight")]
    crosses = any(".cross_attention." in name for name in weights)
    if "decoder_norm.weight" not in weights:
        raise InputError("the checker knows no model whose LayerNorms come after its sums: give one of norm 'pre'")
    position = model["position"]
    if position["type"] not in ("NoPosition", "Sinusoidal") or (position.get("period", 1) is None):
        raise InputError(f"the checker knows no positions of type {position['type']!r}, or none that never repeat")
    return {
        "layers": len(layers),
        "kind": KINDS[0] if crosses else KINDS[1],
        "heads": model["heads"],
        "source_index": model["source_index"],
        "cyclic": position["type"] == "Sinusoidal",
        "period": position.get("period", 1),
    }


def asked(facts: Facts, bias: dict[str, Any]) -> Iterator[tuple[Tree, Contexts]]:
    """What a step sees and its contexts, for one step of each shape."""
    if bias["type"] not in ("Window", "Lines") or bias.get("floor") is not None:
        raise InputError(f"the checker knows no bias of type {bias['type']!r}, or none with a floor")
    everywhere = {
        (name, layer, head)
        for name in ("self", "cross", "source")[: 2 + (facts.kind == "decoder-only")]
        for layer in range(facts.layers)
        for head in range(facts.heads)
    }
    open_to_all = everywhere - {(line["attention"], line["layer"], line["head"]) for line in bias.get("lines", [])}
    if bias["type"] == "Lines" and bias["empty"] == "transparent" and open_to_all:
        raise InputError("a head of this bias is open to every key: no finite set of contexts covers every length")
    if facts.task == TABLE:
        yield from ((tree, step.contexts(tree)) for step, tree in steps(facts, bias))
    else:
        yield from ((question.tree, contexts(question)) for question in along_widths(facts, bias))


def along_widths(facts: Facts, bias: dict[str, Any]) -> Iterator[Question]:
    """One step for each shape, of the widths that show all of them (see `reach` for the proof)."""
    lines = bias.get("lines", [])
    furthest = bias["w"] if bias["type"] == "Window" else max((abs(line["offset"]) for line in lines), default=0)
    if furthest > FURTHEST:
        raise InputError(f"this bias reaches {furthest} columns far: at most {FURTHEST} are checked")
    near, gap = furthest + MARGIN, settled(facts)
    apart = 2 * near * facts.layers + gap + 1
    known: dict[Tree, Question] = {}
    for width in range(facts.narrowest, max(facts.narrowest + facts.period - 1, 2 * apart + 2 * facts.period) + 1):
        for shape, question in questions(Width(facts, bias, width, near), gap).items():
            if shape not in known:
                known[shape] = question
                yield question


def margins(model: Forward, tree: Tree, parts: Contexts) -> Iterator[State]:
    """The right logit minus the best other one, for every context of a step, and its bound: in blocks."""
    for values, right in parts:
        for start in range(0, len(right), ROWS):
            some: Values = {atom: column[start : start + ROWS] for atom, column in values.items()}
            wanted = right[start : start + ROWS, None]
            logits, bound = model.logits(tree, some, len(wanted))
            own = np.take_along_axis(logits, wanted, 1)[:, 0]
            np.put_along_axis(logits, wanted, -np.inf, 1)
            yield own - logits.max(1), bound
