"""The models of tasks whose output is a table: fewer and smaller ones than of the other tasks."""

from dataclasses import replace
from typing import Any

from abc_nb.bias.lines import Lines
from abc_nb.calibration.calibrate import Calibration
from abc_nb.model import positions
from abc_nb.specs.model import Model, all_practised, before_practice, decoder_only, layers

ONE_LAYER = layers(0, 1) | {"feed_forward": 512}  # since every cell follows from a few others in one step


def traced(title: str, position: positions.PositionEncoding, tested: str = "table", **changes: Any) -> Model:
    settings: dict[str, Any] = {"size": ONE_LAYER, "extends": True, "training": "traced"}
    return Model(title, position, tested=tested, **settings | changes)


ENCODER_DECODER = {
    "vanilla": traced("Vanilla", positions.Sinusoidal(), extends=False, training="traced_plain"),
    "abs-unpractised": traced("One key per head", positions.NoPosition(), "tables", bias=Lines.one_key_per_head),
    # Lines that have half of their head's attention: weaker ones tell apart the columns of one size, not of others.
    "abc-unpractised": traced(
        "ABC", positions.NoPosition(), "tables", calibration=Calibration(share=0.5), start="new", accept=1.0
    ),
    "nope": traced("NoPE", positions.NoPosition()),
    "rope": traced("RoPE", positions.Rotary()),
    # With 200 starts, as elsewhere, a thousand steps do not train the vectors: validation ends at 27%.
    "coupling": traced("Position coupling", positions.TableCoupling(starts=50)),
}
RUNNING = {  # decoder-only ones, of which ABS and ABC have no positions
    f"decoder-{name}": decoder_only(model, size=ONE_LAYER, parent="decoder-vanilla")
    for name, model in ENCODER_DECODER.items()
}
RUNNING |= {name: replace(model, source_index="right") for name, model in RUNNING.items() if model.tested == "tables"}
FIRST, *OTHERS = (ENCODER_DECODER | RUNNING).items()
# The sizes of table that ABS is trained on, for the plain model too.
SIZES = traced("Vanilla, five sizes", positions.Sinusoidal(), training="traced_plain")
TRACED = dict([FIRST, ("vanilla-sizes", SIZES), *OTHERS])
TRACED |= all_practised(TRACED)
TRACED |= before_practice(TRACED)
