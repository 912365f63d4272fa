"""A row of the table of models, and what makes rows that share most of their settings."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from abc_nb.bias import Bias, Causal, Window
from abc_nb.bias.window import Sides
from abc_nb.calibration.calibrate import Calibration
from abc_nb.model.positions import PositionEncoding
from abc_nb.problems.layouts import Arrangement, Layout, SourceIndex
from abc_nb.problems.tasks import Regime

PERIOD, W = 3, 1  # T and w of the paper's table 1
CAUSAL = Causal()
Start = Literal["new", "parent"]
UNPRACTISED, BEFORE = "-unpractised", ", before practice"  # ends of names and titles of models before practice


@dataclass(frozen=True)
class Model:
    """A column of the design: what a MODEL in TASK-MODEL stands for."""

    title: str  # as the paper's tables call it
    position: PositionEncoding
    bias: Bias | Callable[[Layout, int, int], Bias] = CAUSAL  # or its maker: layout, heads, layers
    source_index: SourceIndex = "right"
    arrangement: Arrangement = "natural"  # see `Task.layout`
    extends: bool = False  # meant to extrapolate: trained on several widths
    parent: str = "vanilla"  # the model that is retrained, if one is
    parent_base: int | None = None  # where it is not the task's
    calibration: Calibration | None = None  # how the bias is read out of the parent, before it is retrained
    start: Start = "parent"  # the weights at the beginning, where there is a parent
    accept: float = 0.0  # validation accuracy below which more lines are read and the model is trained anew
    rank: int = 0  # of a low-rank change of the parent's queries and keys
    practice: bool = False  # training on with what the parent gets wrong, until it is certified
    tested: str = "curve"  # at which lengths: a key of `TESTS`
    size: Mapping[str, Any] = field(default_factory=dict)  # fields of the model's size that are not the profile's
    regime: Regime | None = None  # tight, padded or unpadded, where it is not the profile's
    training: str = "plain"  # one of a profile's trainings
    kind: Literal["encoder-decoder", "decoder-only"] = "encoder-decoder"


Models = dict[str, Model]  # by name


def layers(encoder: int, decoder: int) -> dict[str, int]:
    return {"encoder_layers": encoder, "decoder_layers": decoder}


def scaffold(title: str, position: PositionEncoding, w: int | None = W, sides: Sides = "one", **changes: Any) -> Model:
    """A model under a window, on aligned input."""
    settings: dict[str, Any] = {"bias": CAUSAL if w is None else Window(w, sides), "arrangement": "aligned"}
    return Model(title, position, **settings | {"extends": True, "tested": "beyond", "training": "scaffold"} | changes)


def reading(title: str, position: PositionEncoding, start: Start, calibration: Calibration, **changes: Any) -> Model:
    """ABC in one reading of the paper: positions, initial weights, and how lines are read out of attention."""
    training = "retraining" if start == "parent" else "short"
    settings: dict[str, Any] = {"extends": True, "tested": "few", "training": training}
    return Model(title, position, calibration=calibration, start=start, **settings | changes)


def decoder_only(model: Model, **changes: Any) -> Model:
    """The same as a decoder-only model: one index, or one distance, runs through problem and answer."""
    settings: dict[str, Any] = {"kind": "decoder-only", "source_index": "running", "size": {"encoder_layers": 0}}
    return replace(model, **settings | changes)


def practised(parent: str, model: Model) -> Model:
    """The same model trained on until it is certified: the last part of ABS and of ABC."""
    return replace(model, parent=parent, practice=True, training="practice")


def all_practised(models: Models) -> Models:
    """Those of the models that have a name for before practice, practised."""
    return {name.removesuffix(UNPRACTISED): practised(name, own) for name, own in models.items() if UNPRACTISED in name}


def before_practice(models: Models) -> Models:
    """The models that practice begins with, by titles that say so."""
    parents = [model.parent for model in models.values() if model.practice]
    return {name: replace(models[name], title=f"{models[name].title}{BEFORE}") for name in parents}
