"""What the audit measures of a calibration: strong vertical lines, and what retraining costs."""

import math

import pandas as pd

from abc_nb.analysis.calibration_study import CalibrationStudy
from abc_nb.calibration.calibrate import SHARE, Calibration, calibrate
from abc_nb.calibration.of_model import INTERPOLATES
from audit.results import problems, reached


def verticals(study: CalibrationStudy) -> pd.DataFrame:
    """Strong vertical lines of cross-attention wherever they stand: token, share of a head's attention."""
    tokens, wanted, rows = dict(study.layout.symbols), Calibration(anchor="whole", share=SHARE), []
    for number, operand in enumerate(study.layout.operands, 1):
        tokens |= dict.fromkeys(operand.columns.tolist(), f"operand {number}")
    for (name, layer), weights in study.averages.items():
        for line in calibrate(weights, None, "cross", wanted, layer) if name == "cross" else []:
            if line.direction == "vertical":
                rows.append((tokens[line.offset], weights[line.head, :, line.offset].mean().item()))
    return pd.DataFrame(rows, columns=["token", "share"])


def cost(study: CalibrationStudy) -> dict[str, object]:
    """Task, seed, threshold, lines, skill left, and what retraining costs, in shares of what the parent cost.

    `problems`, `steps` and `seconds` (with calibration; they depend on how busy the machine was) up to the first
    validation of 99%, infinite if there was none; `whole` is the problems of both to their end.
    """
    tried = study.run.table("thresholds").iloc[-1]
    own, parent = reached(study.run, INTERPOLATES), reached(study.parent_run, INTERPOLATES)
    own["seconds"] += study.run.facts["calibration_seconds"]
    row = {"task": study.run.spec.task.title, "seed": study.run.seed, "share": tried.share}
    row |= {"lines": len(study.bias.lines), "skill": tried.skill}
    costs = {"problems": "problems", "steps": "step", "seconds": "seconds"}
    row |= {name: own[of] / parent[of] if parent[of] < math.inf else math.inf for name, of in costs.items()}
    return row | {"whole": problems(study.run) / problems(study.parent_run)}
