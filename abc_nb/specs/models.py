"""The table of models: what a MODEL in an experiment's name, TASK-MODEL, stands for. A row is a `Model`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from abc_nb.bias import ALiBi, PlacedALiBi, RunningALiBi
from abc_nb.bias.lines import Lines
from abc_nb.calibration.calibrate import Calibration
from abc_nb.model import positions
from abc_nb.problems.layouts import Arrangement
from abc_nb.problems.tables import Tables
from abc_nb.problems.tasks import Regime, Task
from abc_nb.specs.model import (
    PERIOD,
    UNPRACTISED,
    Model,
    before_practice,
    decoder_only,
    embedding_size,
    layers,
    practised,
    proposal,
    scaffold,
)
from abc_nb.specs.readings import ABC, ABLATIONS, ALGORITHM_1, BY_WEIGHTS, READINGS, TEXT_LINES
from abc_nb.specs.traced import TRACED

BASIC = {  # the papers' models, and variants that show why a baseline fails
    "vanilla": Model("Vanilla", positions.Sinusoidal()),
    "nope": Model("NoPE", positions.NoPosition()),
    "rope": Model("RoPE", positions.Rotary(), source_index="left"),
    "alibi": Model("ALiBi", positions.NoPosition(), ALiBi()),
    "rpe": Model("RPE", positions.Relative(), source_index="left"),
    "window": scaffold("Window", positions.Sinusoidal()),
    "window-cyclic": scaffold("ABS", positions.Sinusoidal(PERIOD), tested="beyond"),
    "nope-window": scaffold("Window, no positions", positions.NoPosition()),
    "abc-unpractised": ABC,
    "lora": Model("LoRA", positions.Sinusoidal(), extends=True, tested="beyond", rank=4, training="low_rank"),
    "rope-128": Model("RoPE, size 128", positions.Rotary(), source_index="left", size=embedding_size(128)),
    "rope-512": Model("RoPE, size 512", positions.Rotary(), source_index="left", size=embedding_size(512)),
    "rope-right": Model("RoPE, from the right", positions.Rotary()),
    "rpe-right": Model("RPE, from the right", positions.Relative()),
    "alibi-cross": Model("ALiBi, cross too", positions.NoPosition(), ALiBi(cross=True)),
    "alibi-sines": Model("ALiBi, sines", positions.Sinusoidal(), ALiBi()),  # as in the authors' code
}
BOTH_SIDES = {  # the window open to both sides, as the text has it; the authors' code opens one
    "window-both": scaffold("Window, both sides", positions.Sinusoidal(), sides="both"),
    "window-cyclic-both": scaffold(
        "ABS, both sides", positions.Sinusoidal(PERIOD), sides="both", tested="far and many"
    ),
    "nope-window-both": scaffold("Window, no positions, both sides", positions.NoPosition(), sides="both"),
}
GRID_W, GRID_T = (None, 0, 1, 2, 3), (None, 2, 3, 4, 5, 6, 7, 8)
GRID_NAMES = {(w, t): f"grid-w{w}-t{t}".replace("None", "x") for w in GRID_W for t in GRID_T}
GRID = {  # window, open to both sides, and period (claim C13); None: no window, an index without a period
    name: scaffold(
        f"w={w}, T={t}".replace("w=None", "no window").replace("T=None", "no period"),
        positions.Sinusoidal(t),
        w,
        sides="both",
        training="short",
        tested="few",
    )
    for (w, t), name in GRID_NAMES.items()
}
SCAFFOLDS = ("window", "window-cyclic", "nope-window")
PADDED_MODELS = ("vanilla", *SCAFFOLDS, *BOTH_SIDES, "abc-unpractised", *READINGS, *BY_WEIGHTS, "algorithm-1-pooled")
PADDED = {  # in the paper's regime: every operand padded to sixty digits, in training too
    f"{name.removesuffix(UNPRACTISED)}-padded": replace(
        (BASIC | BOTH_SIDES | READINGS | ALGORITHM_1)[name],
        regime="padded",
        parent="vanilla-padded",
        tested="few",
    )
    for name in PADDED_MODELS
}


SIX_LAYERS = {  # ends of names, and of titles
    "-deep": "six layers",
    "-paper-size": "the paper's size",
    "-paper-batch": "the paper's size and batch",
}


def six_layers(
    names: Sequence[str], end: str, plain: Sequence[str], trainings: tuple[str, str], **changes: Any
) -> dict[str, Model]:
    """Models with the paper's six decoder layers, with this project's optimiser and few steps.

    Their names end in `end`. The first of `trainings` is that of `plain`, the second that of the others. `changes` are
    their size and regime, and the same for the plain model that ABC is of.
    """
    deeper = {}
    for name in names:
        model, training = (BASIC | ABLATIONS | ALGORITHM_1)[name], trainings[name not in plain]
        settings: dict[str, Any] = {"parent": f"vanilla{end}", "training": training, "accept": 0.0, "tested": "few"}
        deeper[f"{name.removesuffix(UNPRACTISED)}{end}"] = replace(
            model, title=f"{model.title}, {SIX_LAYERS[end]}", **settings | changes
        )
    return deeper


# In the profile's width and without dropout. Of 21 columns there are as many lines as Algorithm 1 needs, and a step
# costs a third of one with 61.
DEEP = six_layers(
    ("vanilla", "abc-unpractised", "abc-last-layer", *TEXT_LINES),
    "-deep",
    ("vanilla",),
    ("deep", "short"),
    size=layers(0, 6),
    regime="padded-20",
)
PAPER_SIZE = (*layers(1, 6), ("width", 128), ("feed_forward", 512))  # the paper's (v4 section B)
PAPER_SIZED = six_layers(
    ("vanilla", "window-cyclic", "abc-unpractised", "algorithm-1-none-new", "algorithm-1-v1"),
    "-paper-size",
    ("vanilla", "window-cyclic"),
    ("deep", "short"),
    size=(*PAPER_SIZE, ("dropout", 0.3)),
    regime="padded",
)
# With the paper's batch, for a GPU. Without dropout: with 0.3 tight Addition was not learned at all in 2,400 steps.
PAPER_BATCH = six_layers(
    (
        "vanilla",
        "window-cyclic",
        "nope-window",
        "abc-unpractised",
        "abc-last-layer",
        "algorithm-1-none-new",
        "algorithm-1-v1",
    ),
    "-paper-batch",
    ("vanilla",),
    ("large", "large_anew"),
    accept=0.99,
    size=PAPER_SIZE,
    regime="padded",
)
SIZES_COMPARED = ("vanilla-padded", "window-cyclic-padded", "abc-padded", *PAPER_SIZED, *PAPER_BATCH)
PERIODS = {  # other periods with the whole training, on the tasks where a quarter of it is not enough
    f"window-both-t{t}": scaffold(f"ABS, both sides, T={t}", positions.Sinusoidal(t), sides="both", tested="few")
    for t in (2, 4, 5, 6, 7, 8)
}
PADDED["abc-padded"] = replace(PADDED["abc-padded"], training="anew_padded", tested="few_beyond")
PADDED["window-cyclic-padded"] = replace(PADDED["window-cyclic-padded"], tested="few_beyond")
TABLE_1_PADDED = tuple(f"{name}-padded" for name in ("vanilla", *SCAFFOLDS))
WINDOWS = {  # other windows with the whole training (claim C34), to one side; w = 1 is `window-cyclic`
    f"window-w{w}-t{t}": scaffold(f"w={w}, T={t}", positions.Sinusoidal(t), w, tested="few")
    for w in (2, 3)
    for t in (3, 5)
}
SIZES = {  # layers of encoder and decoder, width, heads (claim C30); 0/2, 64, 8 are `window-cyclic-both`
    "0-1": ("0/1 layers", layers(0, 1)),
    "0-4": ("0/4 layers", layers(0, 4)),
    "1-6": ("1/6 layers", layers(1, 6)),
    "4-4": ("4/4 layers", layers(4, 4)),
    "6-1": ("6/1 layers", layers(6, 1)),
    "width-32": ("embedding size 32", embedding_size(32)),
    "width-128": ("embedding size 128", embedding_size(128)),
    "heads-1": ("1 head", (("heads", 1),)),
    "heads-4": ("4 heads", (("heads", 4),)),
}
SIZED = {
    f"window-both-{name}": scaffold(title, positions.Sinusoidal(PERIOD), sides="both", size=size)
    for name, (title, size) in SIZES.items()
}
WIDE = (("feed_forward", 1024),)
FACTORED = {  # for a factor of several digits, on natural input: each operand's digits to heads of their own
    "by-head": scaffold("Window by head", positions.Sinusoidal(PERIOD), bias=Lines.by_head, arrangement="natural"),
    # A sixth of the budget is too little where the parent has learned the task in part.
    "abc-anew": replace(
        READINGS["abc-mod3-new"], title="ABC, index modulo 3, new weights", tested="beyond", training="scaffold"
    ),
}
WIDER = {  # a factor of three digits has a thousand values
    "by-head-wide": replace(FACTORED["by-head"], title="Window by head, wide", size=WIDE),
    # Where the plain model of base 10 learns nothing, base 4's does, and its attention says where to look: of each
    # head one line, for what a trained head spreads over neighbouring digits a new one would have to tell apart.
    "abc-from-4": replace(
        FACTORED["abc-anew"],
        title="ABC, index modulo 3, new weights, base 4's lines, wide",
        parent_base=4,
        calibration=Calibration(share=1.0),
        size=WIDE,
    ),
}
MODERN = {  # what others proposed
    "rpe-short": proposal("RPE, short clip", positions.ShortRelative()),
    "learned": proposal("Learned positions", positions.Learned(longest=1024)),
    "transformer-xl": proposal("Transformer-XL", positions.TransformerXL()),
    "randomized": proposal("Randomized positions", positions.Randomized()),
    "kerple": proposal("KERPLE", positions.Kerple()),
    "sandwich": proposal("Sandwich", positions.Sandwich()),
    "rope-interpolated": proposal("RoPE, interpolated", positions.InterpolatedRotary()),
    "rope-ntk": proposal("RoPE, NTK-aware", positions.NTKRotary()),
    "fire": proposal("FIRE", positions.Fire()),
    "abacus": proposal("Abacus", positions.Abacus()),
    "coupling": proposal("Position coupling", positions.Coupling()),
}
BASELINES = ("vanilla", "nope", "rope", "alibi", "rpe")


FORMAT_REGIMES: dict[Arrangement, Regime | None] = {"units-first": None, "as-written": "unpadded"}
DECODER_ABC = decoder_only(BASIC["abc-unpractised"], source_index="right", parent="decoder-vanilla", tested="long")
DECODER_ONLY = {
    "decoder-vanilla": decoder_only(BASIC["vanilla"]),
    "decoder-abs-unpractised": decoder_only(
        scaffold("ABS, one key a head", positions.NoPosition(), arrangement="natural", training="anew"),
        bias=Lines.one_key_a_head,
        source_index="right",
        tested="long",
    ),
    "decoder-abc-unpractised": DECODER_ABC,
    "decoder-abc-twice-unpractised": replace(DECODER_ABC, title="ABC twice", parent="decoder-abc-unpractised"),
    "decoder-window-cyclic": decoder_only(BASIC["window-cyclic"], source_index="right", title="ABS, one softmax"),
    "decoder-nope": decoder_only(BASIC["nope"]),
    "decoder-rope": decoder_only(BASIC["rope"]),
    "decoder-alibi": decoder_only(BASIC["alibi"], bias=RunningALiBi()),
    "decoder-rpe": decoder_only(BASIC["rpe"]),
}
SMALLEST_SIZES = ((24, 48), (12, 48), (12, 24), (6, 48), (6, 24))  # embedding size, feed-forward
SMALLEST = {  # one layer, six heads with one key each: how few parameters are enough for a certificate of Addition
    f"smallest-{width}-{hidden}": replace(
        DECODER_ONLY["decoder-abs-unpractised"],
        title=f"embedding size {width}, feed-forward {hidden}",
        training="scaffold",
        tested="few",
        size=(("width", width), ("feed_forward", hidden), ("heads", 6), *layers(0, 1)),
    )
    for width, hidden in SMALLEST_SIZES
}
FORMATS = {  # Addition as others write it: operands' order, answer's order and zeros in front
    f"{name.removesuffix(UNPRACTISED)}-{arrangement}": replace(
        DECODER_ONLY[name],
        title=f"{DECODER_ONLY[name].title}, {arrangement.replace('-', ' ')}",
        arrangement=arrangement,
        regime=regime,
        parent=f"decoder-vanilla-{arrangement}",
        tested="beyond",
    )
    for arrangement, regime in FORMAT_REGIMES.items()
    for name in ("decoder-vanilla", "decoder-abs-unpractised", "decoder-abc-unpractised")
}
WIDENED = {  # the baselines, trained like the proposals
    f"{name}-widened": replace(BASIC[name], source_index="right", extends=True, tested="beyond")
    for name in ("vanilla", "nope", "rope", "alibi-cross", "rpe")
}
PLACED = {  # encodings of distance, the source counted by place: equal places are equally far, in both operands
    f"{name.removesuffix('-widened')}-by-place": replace(model, title=f"{model.title}, by place", source_index="place")
    for name, model in (WIDENED | MODERN).items()
    if name
    in ("rope-widened", "rpe-widened", "rpe-short", "transformer-xl", "randomized", "kerple", "sandwich", "fire")
}
PLACED["alibi-by-place"] = replace(
    WIDENED["alibi-cross-widened"], title="ALiBi, by place", bias=PlacedALiBi(cross=True)
)
WIDTHS = {  # baselines trained at one width of their problems, and at three
    "vanilla": "vanilla-widened",
    "nope": "nope-widened",
    "rope-right": "rope-widened",
    "rpe-right": "rpe-widened",
    "alibi-cross": "alibi-cross-widened",
}
OURS = ("abs", "abc")
METHODS = (*WIDENED, *MODERN, *OURS)  # what appendix a1 compares
VARIANTS = ("rope-right", "rpe-right", "alibi-cross")  # baselines that show why a baseline fails
PAPER_SETTING = {  # for the profile `paper`: the learning rate of the paper's text
    f"{name.removesuffix(UNPRACTISED)}-text-rate": replace(
        BASIC[name], training="text", parent="vanilla-text-rate", tested="curve"
    )
    for name in (*BASELINES, *SCAFFOLDS, "abc-unpractised")
}
PRACTISED_DECODERS = {
    name.removesuffix(UNPRACTISED): practised(name, model)
    for name, model in DECODER_ONLY.items()
    if name.endswith(UNPRACTISED)
}
PRACTISED = PRACTISED_DECODERS | {  # trained on until they are certified
    "abs": practised("window-cyclic", BASIC["window-cyclic"]),
    "abc": practised("abc-unpractised", BASIC["abc-unpractised"]),
}
MODELS = (
    BASIC
    | BOTH_SIDES
    | READINGS
    | ALGORITHM_1
    | ABLATIONS
    | PADDED
    | DEEP
    | PAPER_SIZED
    | PAPER_BATCH
    | PERIODS
    | WINDOWS
    | SIZED
    | FACTORED
    | WIDER
    | MODERN
    | WIDENED
    | PLACED
    | PAPER_SETTING
    | GRID
    | DECODER_ONLY
    | PRACTISED
    | SMALLEST
    | FORMATS
)
MODELS |= before_practice(MODELS)


def models_of(task: Task) -> dict[str, Model]:
    """What a MODEL in TASK-MODEL stands for: of tasks whose output is a table, fewer and smaller models."""
    return TRACED if isinstance(task, Tables) else MODELS
