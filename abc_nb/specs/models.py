"""The table of models: what a MODEL in an experiment's name, TASK-MODEL, stands for. A row is a `Model`."""

from collections.abc import Mapping
from dataclasses import replace

from abc_nb.bias import ALiBi
from abc_nb.bias.lines import Lines
from abc_nb.calibration.calibrate import Calibration
from abc_nb.common.errors import InputError
from abc_nb.model import positions
from abc_nb.problems.tasks import Task
from abc_nb.specs.model import (
    PERIOD,
    Model,
    Models,
    all_practised,
    before_practice,
    decoder_only,
    practised,
    reading,
    scaffold,
)
from abc_nb.specs.traced import TRACED

# Cross-attention sees the digits of this place alone, of two numbers a pair, which slides by two (v4 C.4).
ABS = scaffold("ABS", positions.NoPosition(), sides="none")
# New weights under the lines and no positions, as the method's text has it (v4 section 4).
ABC = reading("ABC", positions.NoPosition(), "new", Calibration(), tested="beyond", training="anew", accept=1.0)
BASIC = {
    "vanilla": Model("Vanilla", positions.Sinusoidal()),
    "nope": Model("NoPE", positions.NoPosition()),
    "rope": Model("RoPE", positions.Rotary(), source_index="left"),
    "alibi": Model("ALiBi", positions.NoPosition(), ALiBi()),
    "rpe": Model("RPE", positions.Relative(), source_index="left"),
    "window": scaffold("Window", positions.Sinusoidal()),
    "window-cyclic": scaffold("Window, index modulo 3", positions.Sinusoidal(PERIOD)),
    "abs-unpractised": ABS,
    "abc-unpractised": ABC,
    "lora": Model("LoRA", positions.Sinusoidal(), extends=True, tested="beyond", rank=4, training="low_rank"),
}
BASELINES = ("vanilla", "nope", "rope", "alibi", "rpe")
# The source counted by place: equal places are equally far, in both operands.
BY_PLACE = Model("RPE, by place", positions.Relative(), source_index="place", extends=True, tested="beyond")
# Vanilla at three widths of its problems, as models under a window or lines have them.
WIDENED = Model("Vanilla", positions.Sinusoidal(), extends=True, tested="beyond")
WINDOWS = {  # other windows with the whole training, to one side; w = 1 is `window-cyclic`
    f"window-w{w}-t{t}": scaffold(f"w={w}, T={t}", positions.Sinusoidal(t), w, tested="few")
    for w in (2, 3)
    for t in (3, 5)
}
DECODER_ABC = decoder_only(ABC, source_index="right", parent="decoder-vanilla", tested="long")
BY_HAND = scaffold("One key per head", positions.NoPosition(), arrangement="natural", training="anew", tested="long")
DECODER_ONLY = {
    "decoder-vanilla": decoder_only(BASIC["vanilla"]),
    "decoder-abs-unpractised": decoder_only(BY_HAND, bias=Lines.one_key_per_head, source_index="right"),
    "decoder-abc-unpractised": DECODER_ABC,
    "decoder-abc-twice-unpractised": replace(DECODER_ABC, title="ABC twice", parent="decoder-abc-unpractised"),
}
PRACTISED_DECODERS = all_practised(DECODER_ONLY)
PRACTISED = PRACTISED_DECODERS | {  # trained on until they are certified
    "abs": practised("abs-unpractised", ABS),
    "abc": practised("abc-unpractised", ABC),
}
MODELS = BASIC | {"vanilla-widened": WIDENED, "rpe-by-place": BY_PLACE} | WINDOWS | DECODER_ONLY | PRACTISED
MODELS |= before_practice(MODELS)
_registered: dict[bool, Models] = {False: {}, True: {}}  # of tasks whose output is a row, and a table


def register(rows: Mapping[str, Model], tables: bool = False) -> None:
    """Add models to the table, as the audit does; InputError for a name that another model has."""
    for name, model in rows.items():
        if known(tables).get(name, model) != model:
            raise InputError(f"{name!r} is the name of another model: choose another name")
    _registered[tables].update(rows)


def known(tables: bool = False) -> Models:
    """This table's models and those that were registered, by name; of tasks whose output is a table, fewer ones."""
    return (TRACED if tables else MODELS) | _registered[tables]


def models_of(task: Task) -> Models:
    """What a MODEL in TASK-MODEL stands for."""
    return known(task.table)
