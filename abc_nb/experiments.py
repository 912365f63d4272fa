"""Experiments: every row of every table as a named, frozen configuration.

A name is TASK-MODEL, as in `addition-vanilla`; a profile (`smoke`, `quick`, `paper`) sets its size.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from abc_nb import biases, positions
from abc_nb.calibration import PAPER, Calibration
from abc_nb.config import digest, to_data
from abc_nb.errors import InputError
from abc_nb.layouts import Arrangement, Layout
from abc_nb.lines import Lines
from abc_nb.model import ModelConfig, SourceIndex
from abc_nb.sampling import Sampler
from abc_nb.tasks import OPERATIONS, Task
from abc_nb.training import TrainingConfig

RECIPE = 1  # counts changes of the code that change what a configuration gives
PERIOD, W = 3, 1  # T and w of the paper's table 1
SEEDS = (0, 1, 2, 3, 4)  # those that `abc-nb list` looks for
CURVE = (*range(1, 21), 30, 40, 50, 60)  # lengths of figures 1 and 4
TABLE = (6, 10, 15, 20, 60)  # lengths of table 1
BEYOND = (100, 200)  # of the models meant to extrapolate
MANY = (6, 60)  # where the main ones are tested on more problems
FAR = {500: 200, 1_000: 1_000, 2_000: 100, 5_000: 50, 10_000: 100}  # samples of notebook 7's lengths
TESTS = {  # of the profile `quick`, samples by length
    "few": dict.fromkeys(TABLE, 500),
    "curve": dict.fromkeys(CURVE, 1_000),
    "beyond": dict.fromkeys((*CURVE, *BEYOND), 1_000),
    "far": dict.fromkeys((*CURVE, *BEYOND), 1_000) | FAR,
}


@dataclass(frozen=True)
class Experiment:
    """All that determines a run, but for its seed."""

    name: str
    profile: str
    sampler: Sampler
    model: ModelConfig
    training: TrainingConfig
    tests: tuple[tuple[int, int], ...]  # (length, samples) of its evaluation
    parent: Experiment | None = None  # whose attention is calibrated, and whose weights are retrained
    calibration: Calibration | None = None
    warm: bool = False  # retraining starts from the parent's weights
    rank: int = 0  # of a low-rank change of queries and keys, the only thing that is retrained (LoRA)

    @property
    def task(self) -> Task:
        return self.sampler.task

    @cached_property
    def data(self) -> dict[str, Any]:
        return {"recipe": RECIPE, "experiment": to_data(self)}

    def key(self, seed: int) -> str:
        """The name of its run folder: readable, and changing with anything that determines the run."""
        return f"{self.name}-{self.profile}-seed{seed}-{digest(self.data | {'seed': seed})}"


CAUSAL = biases.Causal()


@dataclass(frozen=True)
class Model:
    """A column of the design: what a MODEL in TASK-MODEL stands for."""

    title: str  # as the paper's tables call it
    position: positions.PositionEncoding
    bias: biases.Bias | Callable[[Layout, int, int], biases.Bias] = CAUSAL  # or its maker: layout, heads, layers
    source_index: SourceIndex = "right"
    arrangement: Arrangement = "natural"  # aligned: operands' digits side by side, for the window
    extends: bool = False  # meant to extrapolate: trained on several widths
    calibration: Calibration | None = None  # read the bias out of Vanilla, and retrain it
    warm: bool = True  # retraining starts from Vanilla's weights
    rank: int = 0  # of a low-rank change of Vanilla's queries and keys
    tested: str = "curve"  # at which lengths: a key of `TESTS`
    many: int = 0  # problems at the lengths `MANY`, if that is more
    size: tuple[tuple[str, int], ...] = ()  # fields of the model's size that are not the profile's
    regime: str | None = None  # tight or padded, where it is not the profile's
    recipe: str = "plain"  # how it is trained: a key of `RECIPES`


def width(size: int) -> tuple[tuple[str, int], ...]:
    return ("width", size), ("feed_forward", 4 * size)


def layers(encoder: int, decoder: int) -> tuple[tuple[str, int], ...]:
    return ("encoder_layers", encoder), ("decoder_layers", decoder)


def scaffold(title: str, position: positions.PositionEncoding, w: int | None = W, **changes: Any) -> Model:
    """A window, on aligned input (ABS)."""
    bias = CAUSAL if w is None else biases.Window(w)
    settings: dict[str, Any] = {"arrangement": "aligned", "extends": True, "tested": "beyond", "recipe": "scaffold"}
    return Model(title, position, **{"bias": bias} | settings | changes)


MODELS = {
    "vanilla": Model("Vanilla", positions.Sinusoidal()),
    "nope": Model("NoPE", positions.NoPosition()),
    "rope": Model("RoPE", positions.Rotary(), source_index="left"),
    "alibi": Model("ALiBi", positions.NoPosition(), biases.ALiBi()),
    "rpe": Model("RPE", positions.Relative(), source_index="left"),
    "window": scaffold("+ w=1", positions.Sinusoidal()),
    "window-cyclic": scaffold("+ T=3", positions.Sinusoidal(PERIOD), many=10_000, tested="far"),
    "nope-window": scaffold("NoPE + w=1", positions.NoPosition()),
    "abc": Model(
        "ABC",
        positions.Sinusoidal(PERIOD),
        extends=True,
        tested="far",
        calibration=Calibration(),
        recipe="retraining",
    ),
    "lora": Model("LoRA", positions.Sinusoidal(), extends=True, tested="beyond", rank=4, recipe="low rank"),
    "rope-128": Model("RoPE, size 128", positions.Rotary(), source_index="left", size=width(128)),
    "rope-512": Model("RoPE, size 512", positions.Rotary(), source_index="left", size=width(512)),
    "rope-right": Model("RoPE, from the right", positions.Rotary()),
    "rpe-right": Model("RPE, from the right", positions.Relative()),
    "alibi-cross": Model("ALiBi, cross too", positions.NoPosition(), biases.ALiBi(cross=True)),
}


def calibrated(title: str, calibration: Calibration, **changes: Any) -> Model:
    return replace(MODELS["abc"], title=title, calibration=calibration, tested="few", **changes)


ABLATIONS = {  # of ABC: one change each
    "abc-new-weights": calibrated("new weights", Calibration(), warm=False, recipe="short"),
    "abc-last-layer": calibrated("last layer for all", Calibration(layers="last")),
    "abc-whole": calibrated("lines over the whole matrix", Calibration(anchor="whole")),
    "abc-antidiagonals": calibrated("no verticals", Calibration(directions=("diagonal", "antidiagonal"))),
    "abc-logits": calibrated("logits", Calibration(source="logits")),
    "abc-finite": calibrated("finite bias", Calibration(floor=-5.0)),
    "abc-kappa-1": calibrated("kappa 1", Calibration(kappa=(1.0, 1.0))),
    "abc-kappa-2": calibrated("kappa 2 (003)", Calibration(kappa=(2.0, 2.0))),
    "abc-kappa-paper": calibrated("kappa 4.5, 0.87", Calibration(kappa=(4.5, 0.87))),
    "abc-share-0.1": calibrated("share 0.1", Calibration(share=0.1)),
    "abc-paper": calibrated("Algorithm 1", PAPER),
}
MODELS |= ABLATIONS
GRID_W, GRID_T = (None, 0, 1, 2, 3), (None, 2, 3, 4, 5, 6, 7, 8)
GRID_NAMES = {(w, t): f"grid-w{w}-t{t}".replace("None", "x") for w in GRID_W for t in GRID_T}
GRID = {  # window and period (claim C13); None: no window, an index without a period
    name: scaffold(f"w={w}, T={t}", positions.Sinusoidal(t), w, recipe="short", tested="few")
    for (w, t), name in GRID_NAMES.items()
}
PADDED = {
    f"{name}-padded": replace(MODELS[name], regime="padded", recipe="short", many=0, tested="few")
    for name in ("vanilla", "window", "window-cyclic", "nope-window")
}
PERIODS = {  # other periods with the whole training, on the tasks where a quarter of it is not enough
    f"window-t{t}": scaffold(f"+ T={t}", positions.Sinusoidal(t), tested="few") for t in (4, 5, 6, 7, 8)
}
SIZES_OF = {  # layers of encoder and decoder, width, heads (claim C30); 0/2, 64, 8 are `window-cyclic`
    "0-1": ("0/1 layers", layers(0, 1)),
    "0-4": ("0/4 layers", layers(0, 4)),
    "1-6": ("1/6 layers", layers(1, 6)),
    "4-4": ("4/4 layers", layers(4, 4)),
    "6-1": ("6/1 layers", layers(6, 1)),
    "width-32": ("width 32", width(32)),
    "width-128": ("width 128", width(128)),
    "heads-1": ("1 head", (("heads", 1),)),
    "heads-4": ("4 heads", (("heads", 4),)),
}
SIZED = {
    f"window-{name}": scaffold(title, positions.Sinusoidal(PERIOD), size=size)
    for name, (title, size) in SIZES_OF.items()
}
BY_HEAD = {  # on natural input, each operand's digits to heads of their own: for a factor of several digits
    "by-head": scaffold("by head", positions.Sinusoidal(PERIOD), bias=Lines.by_head, arrangement="natural"),
}
MODELS |= PADDED | PERIODS | SIZED | BY_HEAD
MODERN = {  # what others proposed; the source is counted from the right, where a place has one index at all lengths
    "learned": Model("Learned positions", positions.Learned(longest=1024), tested="beyond"),
    "transformer-xl": Model("Transformer-XL", positions.TransformerXL(), tested="beyond"),
    "randomized": Model("Randomized positions", positions.Randomized(), tested="beyond"),
    "kerple": Model("KERPLE", positions.Kerple(), tested="beyond"),
    "sandwich": Model("Sandwich", positions.Sandwich(), tested="beyond"),
    "rope-interpolated": Model("RoPE, interpolated", positions.InterpolatedRotary(), tested="beyond"),
    "rope-ntk": Model("RoPE, NTK-aware", positions.NTKRotary(), tested="beyond"),
    "fire": Model("FIRE", positions.Fire(), tested="beyond"),
    "abacus": Model("Abacus", positions.Abacus(), tested="beyond"),
    "coupling": Model("Position coupling", positions.Coupling(), tested="beyond"),
}
MODELS |= MODERN
BASELINES = ("vanilla", "nope", "rope", "alibi", "rpe")
METHODS = (*BASELINES, *MODERN, "window-cyclic", "abc")  # what notebook 7 compares
SCAFFOLDS = ("window", "window-cyclic", "nope-window")
VARIANTS = ("rope-right", "rpe-right", "alibi-cross")  # baselines that tell why a baseline fails
ARITHMETIC = ("successor", "addition", "n-by-1", "parity")  # the paper's four tasks
TASKS = tuple(name for name in OPERATIONS if name != "parity-classification")
VARIANT_NAMES = (*(f"{task}-{model}" for model in VARIANTS for task in ("successor", "addition")), "parity-rpe-right")
CLASSIFIER = "parity-classifier"
BINARY = ("addition", "n-by-1")
BASES, BASED = (2, 4, 8, 16), ("vanilla", "window-cyclic", "abc")  # claim C29
LISTS = ("listops-sm", "listops-max", "listops-min")
FACTORS = ("n-by-2", "n-by-3")
LIMITS = ("n-by-n", "listops-nested")  # not learned by the paper's models (claim C28)
ABLATED = ("successor", "addition", "n-by-1")  # the tasks of the ablations, and of padded problems
ROPE_SIZES = ("addition-rope-128",)  # claim C05; addition-rope-512 takes a GPU, or an hour

PROFILES = {
    "smoke": "proves the pipeline in minutes; its numbers mean nothing",
    "quick": "every figure and table on 2 cores",
    "paper": "the paper's model, padded regime, dropout: for a GPU or a patient machine",
}
SIZES = {
    "smoke": ModelConfig(width=16, heads=2, feed_forward=32, decoder_layers=1),
    "quick": ModelConfig(),
    "paper": ModelConfig(width=128, feed_forward=512, encoder_layers=1, decoder_layers=6, dropout=0.3),
}
QUICK, SMOKE = TrainingConfig(), TrainingConfig(20, 32, 32, warmup=5, hold=10, validate_every=10, validation=60)
LONG = TrainingConfig(
    steps=100_000,
    batch=512,
    held_batch=512,
    optimizer="adamw",
    learning_rate=1e-4,
    warmup=1000,
    hold=80_000,
    validate_every=500,
)
# A model whose bias says where to look has less to search for at the full rate, and with large batches.
SCAFFOLDING = replace(QUICK, steps=1800, held_batch=64, hold=500, learned=0.99)
SHORT = replace(QUICK, steps=400, held_batch=64, hold=200)
# A sixth of the budget, for a model that has been trained before.
RETRAINING = replace(QUICK, steps=300, held_batch=64, hold=100, learned=0.9, validate_every=10, validation=256)
LONG_RETRAINING = replace(LONG, steps=20_000, hold=10_000)
RECIPES = {  # by profile: smoke, quick, paper
    "plain": (SMOKE, QUICK, LONG),
    "scaffold": (SMOKE, SCAFFOLDING, LONG),
    "short": (SMOKE, SHORT, LONG),
    "retraining": (SMOKE, RETRAINING, LONG_RETRAINING),
    "low rank": tuple(replace(recipe, optimizer="adamw") for recipe in (SMOKE, RETRAINING, LONG_RETRAINING)),
}
PATIENT = 4  # times as many steps for products of a few digits, and twice the layers: a carry has two digits
REGIMES = {"smoke": "tight", "quick": "tight", "paper": "padded"}


def names() -> list[str]:
    """Every experiment, tasks in the paper's order; those of the grid are found by their names too."""
    based = [f"{task}-{model}-base{base}" for task in ABLATED for model in BASED for base in BASES]
    return [f"{task}-{model}" for task in TASKS for model in MODELS] + [CLASSIFIER, *based]


def experiment(name: str, profile: str = "quick", base: int = 10) -> Experiment:
    """The configuration of an experiment; InputError for a name, profile or base that is not there.

    A base other than ten can be given or be part of the name, as in `addition-abc-base4`.
    """
    if profile not in PROFILES:
        raise InputError(f"unknown profile {profile!r}: choose one of {', '.join(PROFILES)}")
    task_name, _, own = split(name)
    if own is not None and base not in (10, own):
        raise InputError(f"{name!r} has base {own}, not {base}: leave one of the two out")
    model, task, size = find(name), Task(task_name, own or base), SIZES[profile]
    regime = model.regime or REGIMES[profile]
    sampler = Sampler(task, model.arrangement, regime, PERIOD if model.extends else 1)
    layout = task.layout(max(sampler.widths), model.arrangement)
    usual, patient = task.base == Task(task_name).base, task_name in FACTORS and profile == "quick"
    changes: dict[str, Any] = dict(model.size)
    if patient:
        changes |= layers(0, 4)
    size = replace(size, **changes)
    bias = model.bias if isinstance(model.bias, biases.Bias) else model.bias(layout, size.heads, size.decoder_layers)
    position = model.position.trained_on(layout)
    config = replace(size, position=position, bias=bias, source_index=model.source_index)
    label = name if own or usual else f"{name}-base{base}"
    recipe = RECIPES[model.recipe][list(PROFILES).index(profile)]
    if patient:
        recipe = replace(recipe, steps=PATIENT * recipe.steps, hold=PATIENT * recipe.hold, held_batch=128)
    tested = tests(profile, model if usual else replace(model, tested="beyond", many=0))
    layouts = {length: task.layout(task.width(length, regime), model.arrangement) for length, _ in tested}
    tested = tuple(test for test in tested if position.fits(layouts[test[0]]))
    if model.calibration is None and not model.rank:
        return Experiment(label, profile, sampler, config, recipe, tested)
    parent = experiment(f"{task_name}-vanilla", profile, task.base)
    retraining = (parent, model.calibration, model.warm, model.rank)
    return Experiment(label, profile, sampler, config, recipe, tested, *retraining)


def find(name: str) -> Model:
    """The model in an experiment's name."""
    task, model, _ = split(name)
    if task not in OPERATIONS or model not in MODELS | GRID:
        near = difflib.get_close_matches(name, names(), 3) or names()[:3]
        raise InputError(f"unknown experiment {name!r}: did you mean {', '.join(near)}? `abc-nb list` shows all")
    return (MODELS | GRID)[model]


def split(name: str) -> tuple[str, str, int | None]:
    """(task, model, base) of an experiment's name; the base is None if the name has none."""
    if name == CLASSIFIER:
        return "parity-classification", "vanilla", None
    task = next((task for task in TASKS if name.startswith(task + "-")), "")
    model, _, base = name[len(task) + 1 :].partition("-base")
    return task, model, int(base) if base.isdecimal() else None


def tests(profile: str, model: Model) -> tuple[tuple[int, int], ...]:
    """The (length, samples) that a model is tested on."""
    if profile != "quick":
        return tuple((length, 10 if profile == "smoke" else 10_000) for length in CURVE)
    more = {length: model.many for length in MANY}
    return tuple((length, max(samples, more.get(length, 0))) for length, samples in TESTS[model.tested].items())


def grid_names(profile: str) -> dict[tuple[int | None, int | None], str]:
    """The part of the grid that is trained, by (window, period): w=1 with every period, T=3 and none with every window.

    `smoke` takes a corner of it; the other cells can be trained by their names.
    """
    if profile == "smoke":
        return {place: GRID_NAMES[place] for place in ((1, 3), (1, None), (None, 3))}
    return {(w, t): name for (w, t), name in GRID_NAMES.items() if w == W or t in (PERIOD, None)}


def beyond(profile: str) -> dict[str, list[str]]:
    """What goes past the paper's tables, by subject; a corner of each in `smoke`."""
    small = profile == "smoke"
    tasks, bases, sizes = (ARITHMETIC[:1], BASES[:1], [*SIZED][:2]) if small else (ARITHMETIC, BASES, [*SIZED])
    return {
        "methods": [f"{task}-{model}" for task in tasks for model in METHODS],
        "lists": [f"{task}-{model}" for task in LISTS for model in ("vanilla", "window", "window-cyclic", "abc")],
        "bases": [f"{task}-{model}-base{base}" for base in bases for task in ABLATED for model in BASED],
        "factors": [f"{task}-{model}" for task in FACTORS for model in ("vanilla", "by-head", "abc")],
        "limits": [f"{task}-vanilla" for task in LIMITS],
        "sizes": [f"addition-{model}" for model in ("window-cyclic", *sizes)],
    }


def needed(profile: str, everything: bool = False) -> Sequence[Experiment]:
    """The experiments that the notebooks show, in the order to train them.

    `quick` leaves the ablations, the map of windows and periods, padded problems, large models and most of
    notebook 7 to the shipped results, unless `everything` is asked for.
    """
    models = [*BASELINES, *SCAFFOLDS, "abc", "lora"]
    names = [f"{task}-{model}" for model in models for task in ARITHMETIC] + [*VARIANT_NAMES, CLASSIFIER]
    if everything or profile == "smoke":
        names += [f"{task}-{model}" for model in (*ABLATIONS, *PADDED) for task in ABLATED]
        names += [f"{task}-{model}" for model in grid_names(profile).values() for task in ARITHMETIC]
        names += [f"{task}-{model}" for model in PERIODS for task in BINARY] + [*ROPE_SIZES]
        names += [name for group in beyond(profile).values() for name in group]
    return [experiment(name, profile) for name in dict.fromkeys(names)]
