"""Check a certificate: every context again, enumerated and computed independently in float64."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from abc_nb.certificates.checksum import checksum
from abc_nb.common.config import sha256_of
from oracle.enumerate import Question, contexts, questions, settled
from oracle.forward import Forward, State
from oracle.geometry import Facts, Tree, Width
from oracle.whole import InWhole

ROWS = 2**19  # contexts computed at once
SAID = ("task", "base", "arrangement", "narrowest")  # what a statement is about: all that a check takes from one
MARGIN = 2  # places that a key can be further away than a line's offset
CLOSE = 1e-3  # how near the smallest margins in float32 and float64 must be


@dataclass(frozen=True)
class Check:
    """What a check found; `agrees` says whether the certificate says the same."""

    agrees: bool
    contexts: int
    wrong: int
    margin: float
    left: float  # the least that rounding in float64 leaves of a margin


def check(certificate: Mapping[str, Any], weights: Mapping[str, np.ndarray], model: Mapping[str, Any]) -> Check:
    """Verify a certificate against the weights by name and a model's configuration as plain data."""
    facts = Facts(**{name: certificate["facts"][name] for name in SAID}, **of_model(weights, model))
    assert checksum(weights) == certificate["weights"], "a certificate of other weights"
    assert sha256_of(model["bias"]) == certificate["bias"], "a certificate of another bias"
    count, wrong, margin, left = 0, 0, float("inf"), float("inf")
    forward = (InWhole if model["norm"] == "none" else Forward)(weights, facts)
    for question in asked(facts, model["bias"]):
        for found, bound in margins(forward, question):
            count, wrong = count + len(found), wrong + int((~(found > 0)).sum())
            margin, left = min(margin, float(found.min())), min(left, float((found - bound).min()))
    agrees = (count, wrong) == (certificate["contexts"], certificate["wrong"])
    agrees = agrees and abs(margin - certificate["margin"]) < CLOSE and (left > 0) >= certificate["certified"]
    return Check(agrees, count, wrong, margin, left)


def of_model(weights: Mapping[str, np.ndarray], model: Mapping[str, Any]) -> dict[str, Any]:
    """What weights and configuration say of a model; LayerNorms come before its sums, and it has no encoder layer."""
    assert (model["norm"] == "pre") == ("decoder_norm.weight" in weights) and not model["encoder_layers"]
    position = model["position"]
    assert position["type"] in ("NoPosition", "Sinusoidal") and position.get("period", 1) is not None
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
    assert bias["type"] in ("Window", "Lines") and bias.get("floor") is None
    lines = bias.get("lines", [])
    everywhere = {*product(("self", "cross", "source")[: 2 + facts.alone], range(facts.layers), range(facts.heads))}
    opened = {(line["attention"], line["layer"], line["head"]) for line in lines}
    assert bias["type"] == "Window" or bias["empty"] == "closed" or everywhere <= opened, "a head sees every key"
    furthest = bias["w"] if bias["type"] == "Window" else max((abs(line["offset"]) for line in lines), default=0)
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
            some = {leaf: column[start : start + ROWS] for leaf, column in values.items()}
            wanted = right[start : start + ROWS, None]
            logits, bound = model.logits(question[2], some, len(wanted))
            own = np.take_along_axis(logits, wanted, 1)[:, 0]
            np.put_along_axis(logits, wanted, -np.inf, 1)
            yield own - logits.max(1), bound
