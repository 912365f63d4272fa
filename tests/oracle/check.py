"""Check a certificate: every context again, enumerated and computed independently in float64."""

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from tqdm.auto import tqdm

from abc_nb.certificates.checksum import checksum
from abc_nb.common.config import fits, sha256_of
from abc_nb.common.errors import InputError
from oracle.enumerate import Question, contexts, questions, settled
from oracle.forward import Forward, State
from oracle.geometry import Facts, Tree, Width
from oracle.whole import InWhole

ROWS = 2**19  # contexts computed at once
SAID = ("task", "base", "arrangement", "narrowest")  # what a statement is about: all that a check takes from one
FIELDS = {"facts": dict, "certified": bool, "contexts": int, "wrong": int, "margin": float, "weights": str, "bias": str}
MARGIN = 2  # places that a key can be further away than a line's offset
FURTHEST = 64  # columns
CLOSE = 1e-3  # how near the smallest margins in float32 and float64 must be


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
    if checksum(weights) != certificate["weights"] or sha256_of(bias) != certificate["bias"]:
        raise InputError("this certificate belongs to other weights or another bias: certify the model again")
    count, wrong, margin, left = 0, 0, float("inf"), float("inf")
    forward = (InWhole if model["norm"] == "none" else Forward)(weights, facts)
    blocks = (block for question in asked(facts, bias) for block in margins(forward, question))
    for found, bound in tqdm(blocks, unit=" blocks", delay=3, mininterval=1, leave=False):
        count, wrong = count + len(found), wrong + int((~(found > 0)).sum())
        margin, left = min(margin, float(found.min())), min(left, float((found - bound).min()))
    agrees = (count, wrong) == (certificate["contexts"], certificate["wrong"])
    agrees = agrees and abs(margin - certificate["margin"]) < CLOSE and (left > 0) >= certificate["certified"]
    said = (
        f"{facts.task} in base {facts.base}, every width from {facts.narrowest} on, with any number of zeros in front: "
        "exact arithmetic and float64, sums in any order; a bound for float32 is not checked again"
    )
    return Check(agrees, count, wrong, margin, left, said, round(time.perf_counter() - start, 2))


def of_model(weights: Mapping[str, np.ndarray], model: Mapping[str, Any]) -> dict[str, Any]:
    """What weights and configuration say of a model."""
    if (model["norm"] == "pre") != ("decoder_norm.weight" in weights) or model["encoder_layers"]:
        raise InputError("the checker knows no model whose LayerNorms come after its sums, or with encoder layers")
    position = model["position"]
    if position["type"] not in ("NoPosition", "Sinusoidal") or (position.get("period", 1) is None):
        raise InputError(f"the checker knows no positions of type {position['type']!r}, or none that never repeat")
    return {
        "layers": sum(name.endswith(".self_attention.query.weight") for name in weights),  # of the decoder
        "alone": not any(".cross_attention." in name for name in weights),
        "heads": model["heads"],
        "source_index": model["source_index"],
        "cyclic": position["type"] == "Sinusoidal",
        "period": position.get("period", 1),
    }


def asked(facts: Facts, bias: dict[str, Any]) -> Iterable[Question]:
    """One step for each shape, of the widths that show all of them (see `reach` for the proof)."""
    if bias["type"] not in ("Window", "Lines") or bias.get("floor") is not None:
        raise InputError(f"the checker knows no bias of type {bias['type']!r}, or none with a floor")
    lines = bias.get("lines", [])
    everywhere = {*product(("self", "cross", "source")[: 2 + facts.alone], range(facts.layers), range(facts.heads))}
    opened = {(line["attention"], line["layer"], line["head"]) for line in lines}
    if bias["type"] == "Lines" and bias["empty"] == "transparent" and not everywhere <= opened:
        raise InputError("a head of this bias is open to every key: no finite set of contexts covers every length")
    furthest = bias["w"] if bias["type"] == "Window" else max((abs(line["offset"]) for line in lines), default=0)
    if furthest > FURTHEST:
        raise InputError(f"this bias reaches {furthest} columns far: at most {FURTHEST} are checked")
    near, gap = furthest + MARGIN, settled(facts)
    apart = 2 * near * facts.layers + gap + 1
    found: dict[Tree, Question] = {}
    for width in range(facts.narrowest, max(facts.narrowest + facts.period - 1, 2 * apart + 2 * facts.period) + 1):
        found = questions(Width(facts, bias, width, near), gap) | found
    return found.values()


def margins(model: Forward | InWhole, question: Question) -> Iterator[State]:
    """The right logit minus the best other one, for every context of a step, and its bound: in blocks."""
    for values, right in contexts(question):
        for start in range(0, len(right), ROWS):
            some = {atom: column[start : start + ROWS] for atom, column in values.items()}
            wanted = right[start : start + ROWS, None]
            logits, bound = model.logits(question[2], some, len(wanted))
            own = np.take_along_axis(logits, wanted, 1)[:, 0]
            np.put_along_axis(logits, wanted, -np.inf, 1)
            yield own - logits.max(1), bound
