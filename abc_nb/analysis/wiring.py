"""What ABC's bias is once it is read: how many keys a head sees, which ones, and what its values do.

A head with one line sees one key at each step. Softmax gives that key the weight 1, whatever the line's value is: the
head is a wire. Heads whose line is on a symbol, such as the sign, see the same token at every step.
"""

from typing import Any

import pandas as pd

from abc_nb.analysis.results import Results
from abc_nb.bias.lines import Lines
from abc_nb.calibration.calibrate_model import as_mask
from abc_nb.runs.store import Run
from abc_nb.specs.names import ARITHMETIC
from abc_nb.training.evaluation import evaluate

MASK_TESTS = ((60, 200), (200, 200))  # of a model whose lines lost their values: (length, samples)
HEAD = ["attention", "layer", "head"]
OPENS = ["attention", "span", "direction", "offset"]  # what a line opens, in whatever head or layer
DIGIT_SPANS = ("operand", "output")  # beginnings of spans that digits stand in


def wiring(results: Results) -> pd.DataFrame:
    """A row a run of ABC on the four tasks: how many of its heads see one key, and on which keys their lines are.

    `one line` counts the heads with one; `on digits` those with a line on digits; `near the place` those of the latter
    all of whose lines on digits the bias made by hand has, too, in whatever head or layer.
    """
    names = [f"{task}-abc-unpractised" for task in ARITHMETIC]
    return pd.DataFrame([of_run(run) for run in results.existing_runs(names)])


def of_run(run: Run) -> dict[str, Any]:
    bias, config = run.bias(), run.spec.model
    by_hand = Lines.one_key_per_head(run.spec.sampler.layout(6), config.heads, config.decoder_layers)
    lines, hand_lines = pd.DataFrame(bias.lines), pd.DataFrame(by_hand.lines)[OPENS].drop_duplicates()
    line_counts = lines.groupby(HEAD).size()
    near = lines.merge(hand_lines, how="left", on=OPENS, indicator=True)._merge == "both"
    near_by_head = near[lines.span.str.startswith(DIGIT_SPANS)].groupby([lines[name] for name in HEAD]).all()
    return {
        "task": run.spec.identity.task,
        "seed": run.seed,
        "heads": 2 * config.heads * config.decoder_layers,
        "one line": (line_counts == 1).sum(),
        "on digits": len(near_by_head),
        "near the place": near_by_head.sum(),
    }


def mask_alone(results: Results) -> pd.DataFrame:
    """Percent right by length of models whose lines have values, once these are set to 0: a row a run."""
    rows = []
    for run in results.existing_runs([f"{task}-abc" for task in ARITHMETIC]):
        bias = run.bias()
        if run.weights and bias is not None and any(line.value for line in bias.lines):
            tests = evaluate(run.model().with_bias(as_mask(bias)), run.spec.sampler, MASK_TESTS)
            percents = dict(zip(tests.length.map("{} digits".format), 100 * tests.accuracy, strict=True))
            rows.append({"task": run.spec.identity.task, "seed": run.seed} | percents)
    return pd.DataFrame(rows)
