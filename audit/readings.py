"""ABC in the readings of the paper: positions and initial weights, Algorithm 1, and single choices."""

import itertools
from dataclasses import replace
from typing import Any

from abc_nb.calibration.calibrate import PAPER, SCRIPT, Calibration, Inherited
from abc_nb.model import positions
from abc_nb.specs.models import ABC, PERIOD, ModelRow, Models, Start
from audit import trainings

INDEX = {"none": positions.NoPosition(), "plain": positions.Sinusoidal(), "mod3": positions.Sinusoidal(PERIOD)}
INDEX_TITLES = {"none": "no positions", "plain": "plain index", "mod3": "index modulo 3"}
WEIGHTS: dict[str, Start] = {"new": "new", "warm": "parent"}  # by the ends of names
WEIGHTS_TITLES = {"new": "new weights", "warm": "the plain model's weights"}


def reading(title: str, position: positions.PositionEncoding, start: Start, calibration: Calibration) -> ModelRow:
    """ABC in one reading of the paper: positions, initial weights, and how lines are read out of attention."""
    training = trainings.RETRAINING if start == "parent" else trainings.SHORT
    settings: dict[str, Any] = {"extends": True, "tested": "few", "training": training}
    return ModelRow(title, position, calibration=calibration, start=start, **settings)


def by_weights(name: str, title: str, calibration: Calibration, *indices: str) -> Models:
    """One way to read lines, by positions and initial weights."""
    return {
        f"{name}-{index}-{weights}": reading(
            f"{title}, {INDEX_TITLES[index]}, {WEIGHTS_TITLES[weights]}", INDEX[index], start, calibration
        )
        for index in indices
        for weights, start in WEIGHTS.items()
    }


READINGS = by_weights("abc", "ABC", Calibration(), "none", "plain", "mod3")
del READINGS["abc-none-new"]  # which is `abc`
READINGS["abc-mod3-warm"] = replace(READINGS["abc-mod3-warm"], tested="far")
BY_WEIGHTS = by_weights("algorithm-1", "Algorithm 1", PAPER, "none", "plain")  # the paper's pseudo-code
KAPPA_V1 = (2.0, 2.0)  # the deviations of the paper's first version
LINE_READINGS: dict[str, tuple[str, dict[str, Any]]] = {  # which lines Algorithm 1 keeps, each alone or with the others
    "pooled": ("all lines pooled", {"pooled": True}),
    "v1": ("kappa 2", {"kappa": KAPPA_V1}),
    "logits": ("logits", {"source": "logits"}),
}
READ_LINES = {}  # with no positions and new weights, as the text has it
for pooled, logits, v1 in [*itertools.product((False, True), repeat=3)][1:]:
    combined = {name: LINE_READINGS[name] for name in itertools.compress(LINE_READINGS, (pooled, v1, logits))}
    title = ", ".join(["Algorithm 1", *(words for words, _ in combined.values())])
    changes = {field: value for _, fields in combined.values() for field, value in fields.items()}
    READ_LINES[f"algorithm-1-{'-'.join(combined)}"] = reading(title, INDEX["none"], "new", replace(PAPER, **changes))
# Lines as the authors' script reads them: with sines, as in their one published log, and without positions.
READ_LINES["algorithm-1-script"] = reading("Algorithm 1, the authors' script", INDEX["plain"], "new", SCRIPT)
READ_LINES["algorithm-1-script-none"] = reading(
    "Algorithm 1, the authors' script, no positions", INDEX["none"], "new", SCRIPT
)
ALGORITHM_1 = BY_WEIGHTS | READ_LINES


def ablation(title: str, calibration: Calibration, **changes: Any) -> ModelRow:
    return replace(ABC, title=title, calibration=calibration, tested="few", **changes)


ABLATIONS = {  # of ABC before practice, one change each
    "abc-one-width": ablation("one width", Calibration(), extends=False),
    "abc-finite": ablation("finite bias", Calibration(floor=-5.0)),
    "abc-mask": ablation("values 0", Calibration(source="mask")),
    "abc-one-line": ablation("one line per head", Calibration(share=1.0)),
    "abc-share-0.1": ablation("share 0.1", Calibration(share=0.1)),
    "abc-last-layer": ablation("last layer for all", Calibration(layers="last")),
    "abc-whole": ablation("lines over the whole matrix", Calibration(anchor="whole")),
    "abc-antidiagonals": ablation("no verticals", Calibration(directions=("diagonal", "antidiagonal"))),
    "abc-logits": ablation("logits", Calibration(source="logits")),
    "abc-kappa-2": ablation("kappa 2 (v1)", Calibration(kappa=KAPPA_V1)),
    "abc-kappa-paper": ablation("kappa 4.5, 0.87", Calibration(kappa=PAPER.kappa)),
}
# ABC's own lines in cross-attention; in self-attention every earlier token is seen.
CROSS_LINES = {"abc-cross-lines": replace(ablation("ABC, lines in cross-attention alone", Inherited()), parent="abc")}
TEXT_LINES = ("algorithm-1-none-new", *READ_LINES)
