"""The models of tasks whose output is a table: fewer and smaller ones than of the other tasks."""

from dataclasses import replace
from typing import Any

from abc_nb.bias.lines import Lines
from abc_nb.calibration.calibrate import Calibration
from abc_nb.model import positions
from abc_nb.specs.model import Model, Models, all_practised, before_practice, decoder_only, layers

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
}


def with_decoders(models: Models) -> Models:
    """The models, the same as decoder-only ones, of which ABS and ABC have no positions, and those practised."""
    running = {
        f"decoder-{name}": decoder_only(model, size=ONE_LAYER, parent="decoder-vanilla")
        for name, model in models.items()
    }
    running |= {
        name: replace(model, source_index="right") for name, model in running.items() if model.tested == "tables"
    }
    first, *others = (models | running).items()
    # The sizes of table that ABS is trained on, for the plain model too.
    sizes = traced("Vanilla, five sizes", positions.Sinusoidal(), training="traced_plain")
    found = dict([first, ("vanilla-sizes", sizes), *others])
    found |= all_practised(found)
    return found | before_practice(found)


TRACED = with_decoders(ENCODER_DECODER)
