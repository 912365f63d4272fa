"""The table of models: what a MODEL in an experiment's name, TASK-MODEL, stands for. A row is a `ModelRow`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from abc_nb.bias import ALiBi, Bias, Causal, Window
from abc_nb.bias.lines import Lines
from abc_nb.bias.window import Sides
from abc_nb.calibration.calibrate import Calibration
from abc_nb.common.errors import InputError
from abc_nb.model import positions
from abc_nb.problems.catalogue import PROGRAM
from abc_nb.problems.layouts import Arrangement, Layout, SourceIndex
from abc_nb.problems.tasks import Regime, Task
from abc_nb.specs import recipes
from abc_nb.specs.recipes import Trainings

PERIOD, W = 3, 1  # T and w of the paper's table 1
CAUSAL = Causal()
Start = Literal["new", "parent"]
UNPRACTISED, BEFORE = "-unpractised", ", before practice"  # ends of names and titles of models before practice


@dataclass(frozen=True)
class ModelRow:
    """A row of the table of models: what a MODEL in TASK-MODEL stands for."""

    title: str  # as the paper's tables call it
    position: positions.PositionEncoding
    bias: Bias | Callable[[Layout, int, int], Bias] = CAUSAL  # or its maker: layout, heads, layers
    source_index: SourceIndex = "right"
    arrangement: Arrangement = "natural"  # see `Task.layout`
    extends: bool = False  # meant to extrapolate: trained on several widths
    # Whose attention is read or whose weights are taken, where calibration, rank or practice is set; else unused.
    parent: str = "vanilla"
    parent_base: int | None = None  # where it is not the task's
    calibration: Calibration | None = None  # how the bias is read out of the parent
    start: Start = "parent"  # the weights at the beginning, where there is a parent
    accept: float = 0.0  # validation accuracy below which more lines are read and the model is trained anew
    rank: int = 0  # of a low-rank change of the parent's queries and keys
    practised: bool = False  # training on with what the parent gets wrong, until it is certified
    tested: str = "curve"  # at which lengths: a key of `TESTS`
    size: Mapping[str, Any] = field(default_factory=dict)  # fields of the model's size that are not the profile's
    regime: Regime | None = None  # tight, padded or unpadded, where it is not the profile's
    training: Trainings = field(default_factory=lambda: recipes.PLAIN)
    kind: Literal["encoder-decoder", "decoder-only"] = "encoder-decoder"
    program: str = PROGRAM  # that can train it


Models = dict[str, ModelRow]  # by name


def layers(encoder: int, decoder: int) -> dict[str, int]:
    return {"encoder_layers": encoder, "decoder_layers": decoder}


def scaffold(
    title: str, position: positions.PositionEncoding, w: int | None = W, sides: Sides = "one", **changes: Any
) -> ModelRow:
    """A model under a window, on aligned input."""
    settings: dict[str, Any] = {"bias": CAUSAL if w is None else Window(w, sides), "arrangement": "aligned"}
    settings |= {"extends": True, "tested": "beyond", "training": recipes.SCAFFOLD}
    return ModelRow(title, position, **settings | changes)


def traced(title: str, position: positions.PositionEncoding, tested: str = "table", **changes: Any) -> ModelRow:
    """A model of a task whose output is a table."""
    settings: dict[str, Any] = {"size": ONE_LAYER, "extends": True, "training": recipes.TRACED}
    return ModelRow(title, position, tested=tested, **settings | changes)


def decoder_only(model: ModelRow, **changes: Any) -> ModelRow:
    """The same as a decoder-only model: one index, or one distance, runs through problem and answer."""
    settings: dict[str, Any] = {"kind": "decoder-only", "source_index": "running", "size": {"encoder_layers": 0}}
    return replace(model, **settings | changes)


def practised_model(parent: str, model: ModelRow) -> ModelRow:
    """The same model trained on until it is certified: the last part of ABS and of ABC."""
    return replace(model, parent=parent, practised=True, training=recipes.PRACTICE)


def all_practised(models: Models) -> Models:
    """The practised form of each model whose name says that it is one before practice."""
    unpractised = {name: model for name, model in models.items() if UNPRACTISED in name}
    return {name.removesuffix(UNPRACTISED): practised_model(name, model) for name, model in unpractised.items()}


def before_practice(models: Models) -> Models:
    """The models that practice begins with, with titles that say so."""
    parents = [model.parent for model in models.values() if model.practised]
    return {name: replace(models[name], title=f"{models[name].title}{BEFORE}") for name in parents}


# ---- of tasks whose output is a row

# Cross-attention sees the digits of this place alone, of two numbers a pair, which slides by two (v4 C.4).
ABS = scaffold("ABS", positions.NoPosition(), sides="none")
# New weights under the lines and no positions, as the method's text has it (v4 section 4).
ABC = ModelRow(
    "ABC",
    positions.NoPosition(),
    calibration=Calibration(),
    start="new",
    accept=1.0,
    extends=True,
    tested="beyond",
    training=recipes.ANEW,
)
BASIC = {
    "vanilla": ModelRow("Vanilla", positions.Sinusoidal()),
    "nope": ModelRow("NoPE", positions.NoPosition()),
    "rope": ModelRow("RoPE", positions.Rotary(), source_index="left"),
    "alibi": ModelRow("ALiBi", positions.NoPosition(), ALiBi()),
    "rpe": ModelRow("RPE", positions.Relative(), source_index="left"),
    "window": scaffold("Window", positions.Sinusoidal()),
    "window-cyclic": scaffold("Window, index modulo 3", positions.Sinusoidal(PERIOD)),
    "abs-unpractised": ABS,
    "abc-unpractised": ABC,
}
# The source counted by place: equal places are equally far, in both operands.
BY_PLACE = ModelRow("RPE, by place", positions.Relative(), source_index="place", extends=True, tested="beyond")
# Vanilla at three widths of its problems, as models under a window or lines have them.
WIDENED = ModelRow("Vanilla", positions.Sinusoidal(), extends=True, tested="beyond")
DECODER_ABC = decoder_only(ABC, source_index="right", parent="decoder-vanilla", tested="long")
ONE_KEY = decoder_only(
    ModelRow("One key per head", positions.NoPosition(), extends=True, tested="long", training=recipes.ANEW),
    bias=Lines.one_key_per_head,
    source_index="right",
)
EXACT = replace(  # without norms, so that no sum need be rounded: see `certificates.exact_sums`
    ONE_KEY,
    title="One key per head, exact",
    bias=Lines.one_key_of_problem,
    size=layers(0, 1) | {"norm": "none"},
    training=recipes.DIRECT,
    tested="few_beyond",
)
DECODER_ONLY = {
    "decoder-vanilla": decoder_only(BASIC["vanilla"]),
    "decoder-abs-unpractised": ONE_KEY,
    "decoder-abc-unpractised": DECODER_ABC,
    "decoder-abc-twice-unpractised": replace(DECODER_ABC, title="ABC twice", parent="decoder-abc-unpractised"),
}
PRACTISED_DECODERS = all_practised(DECODER_ONLY)
MODELS = BASIC | {"vanilla-widened": WIDENED, "rpe-by-place": BY_PLACE, "exact-unpractised": EXACT}
MODELS |= DECODER_ONLY | PRACTISED_DECODERS | all_practised(MODELS)
MODELS |= before_practice(MODELS)

# ---- of tasks whose output is a table: fewer and smaller ones

ONE_LAYER = layers(0, 1) | {"feed_forward": 512}  # since every cell follows from a few others in one step
TRACED_MODELS = {
    "vanilla": traced("Vanilla", positions.Sinusoidal(), extends=False, training=recipes.TRACED_PLAIN),
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
    decoders: Models = {}
    for name, model in models.items():
        index = {"source_index": "right"} if model.tested == "tables" else {}
        decoders[f"decoder-{name}"] = decoder_only(model, size=ONE_LAYER, parent="decoder-vanilla", **index)
    first, *others = (models | decoders).items()
    # The sizes of table that ABS is trained on, for the plain model too.
    sizes = traced("Vanilla, five sizes", positions.Sinusoidal(), training=recipes.TRACED_PLAIN)
    table = dict([first, ("vanilla-sizes", sizes), *others])
    table |= all_practised(table)
    return table | before_practice(table)


# ---- all models that are known, those of other programs too

_known: dict[bool, Models] = {False: {**MODELS}, True: with_decoders(TRACED_MODELS)}  # by whether the output is a table


def register_models(rows: Models, program: str = PROGRAM, tables: bool = False) -> None:
    """Add models that a program knows, as the audit's; InputError for a name that another model has."""
    models = {name: replace(model, program=program) for name, model in rows.items()}
    for name, model in models.items():
        if model_table(tables).get(name, model) != model:
            raise InputError(f"{name!r} is the name of another model: choose another name")
    model_table(tables).update(models)


def model_table(tables: bool = False) -> Models:
    """All models by name: of tasks whose output is a table, or of those whose output is a row."""
    return _known[tables]


def models_of(task: Task) -> Models:
    return model_table(task.table)
