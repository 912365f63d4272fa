"""The models of tasks whose output is a table: fewer and smaller ones than of the other tasks."""

from __future__ import annotations

from dataclasses import replace

from abc_nb.bias.lines import Lines
from abc_nb.calibration.calibrate import Calibration
from abc_nb.model import positions
from abc_nb.specs.model import UNPRACTISED, before_practice, practised, traced

TRACED = {
    "vanilla": traced("Vanilla", positions.Sinusoidal(), extends=False, training="traced_plain"),
    "abs-unpractised": traced(
        "ABS, one key a head", positions.NoPosition(), bias=Lines.one_key_a_head, tested="tables"
    ),
    # Lines that have half of their head's attention: weaker ones tell apart the columns of one size, not of others.
    "abc-unpractised": traced(
        "ABC", positions.NoPosition(), calibration=Calibration(share=0.5), start="new", accept=1.0, tested="tables"
    ),
    "nope": traced("NoPE", positions.NoPosition()),
    "rope": traced("RoPE", positions.Rotary()),
    # With 200 starts, as elsewhere, a thousand steps do not train the vectors: validation ends at 27%.
    "coupling": traced("Position coupling", positions.TableCoupling(starts=50)),
}
TRACED |= {
    f"decoder-{name}": replace(
        model,
        kind="decoder-only",
        source_index="right" if name.endswith(UNPRACTISED) else "running",
        parent="decoder-vanilla",
    )
    for name, model in TRACED.items()
}
TRACED |= {
    name.removesuffix(UNPRACTISED): practised(name, model)
    for name, model in TRACED.items()
    if name.endswith(UNPRACTISED)
}
TRACED |= before_practice(TRACED)
# The sizes of table that ABS is trained on, for the plain model too.
SIZES = traced("Vanilla, five sizes", positions.Sinusoidal(), training="traced_plain")
TRACED = {"vanilla": TRACED["vanilla"], "vanilla-sizes": SIZES} | TRACED
