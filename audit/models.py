"""The models that only the audit names: rows of the table of models, in the order of its notebooks."""

from collections.abc import Iterable
from dataclasses import replace
from itertools import product
from typing import Any

from abc_nb.bias import ALiBi
from abc_nb.bias.lines import LAST_TOKENS, Lines, lines_of_keys, problem_keys
from abc_nb.calibration.calibrate import Calibration, Determining
from abc_nb.model import positions
from abc_nb.problems.layouts import Layout
from abc_nb.specs import models as course
from abc_nb.specs.models import (
    ABC,
    PERIOD,
    TRACED_MODELS,
    UNPRACTISED,
    ModelRow,
    Models,
    W,
    all_practised,
    before_practice,
    decoder_only,
    layers,
    practised_model,
    scaffold,
    traced,
    with_decoders,
)
from abc_nb.specs.recipes import SCAFFOLD
from audit import trainings
from audit.positions import digits, distances
from audit.readings import ABLATIONS, ALGORITHM_1, BY_WEIGHTS, CROSS_LINES, READINGS, TEXT_LINES


def by_head(layout: Layout, heads: int, layers: int) -> Lines:
    """Made by hand, for factors of a few digits: every head looks at one key of the problem.

    That is this place of an operand, one below it that such a factor reaches to, or one of the factor's digits.
    """
    places = max((operand.places for operand in layout.operands if layout.is_short(operand)), default=1)
    return lines_of_keys(problem_keys(layout, places), LAST_TOKENS, heads, layers)


def embedding_size(width: int) -> dict[str, int]:
    return {"width": width, "feed_forward": 4 * width}


def proposal(title: str, position: positions.PositionEncoding) -> ModelRow:
    """An encoding of others, in our training: several widths, the source counted from the right."""
    return ModelRow(title, position, extends=True, tested="beyond")


def variants(
    models: Models, names: Iterable[str], suffix: str, title: str = "", parent: str = "vanilla", **changes: Any
) -> Models:
    """Models with other settings: `suffix` ends their names and those of their parents, and `title` their titles."""
    changes["parent"] = f"{parent}{suffix}"
    return {
        f"{name.removesuffix(UNPRACTISED)}{suffix}": replace(models[name], title=models[name].title + title, **changes)
        for name in names
    }


BASIC = course.BASIC | {  # variants that show why a baseline fails
    "nope-window": scaffold("Window, no positions", positions.NoPosition()),
    "rope-right": ModelRow("RoPE, from the right", positions.Rotary()),
    "rpe-right": ModelRow("RPE, from the right", positions.Relative()),
    "alibi-cross": ModelRow("ALiBi, cross too", positions.NoPosition(), ALiBi(cross=True)),
    "lora": ModelRow(
        "LoRA", positions.Sinusoidal(), extends=True, tested="beyond", rank=4, training=trainings.LOW_RANK
    ),
    "alibi-sines": ModelRow("ALiBi, sines", positions.Sinusoidal(), ALiBi()),  # as in the authors' code
}
BASIC |= {  # trained three times as long, since Addition is learned late with RoPE (claim C05)
    f"rope-{size}": replace(
        BASIC["rope"], title=f"RoPE, size {size}", size=embedding_size(size), training=trainings.PATIENT
    )
    for size in (64, 128, 512)
}
BASELINES = ("vanilla", "nope", "rope", "alibi", "rpe")
SCAFFOLDS = ("window", "window-cyclic", "nope-window")
# The window of three keys, trained on until it is certified.
CYCLIC = replace(BASIC["window-cyclic"], title="Window, index modulo 3, practised")
PAIR = {  # ABS with positions
    "pair-mod3-unpractised": replace(course.ABS, title="ABS, index modulo 3", position=positions.Sinusoidal(PERIOD)),
    "pair-plain-unpractised": replace(course.ABS, title="ABS, plain index", position=positions.Sinusoidal()),
}
PRACTISED_PAIR = all_practised({"pair-mod3-unpractised": PAIR["pair-mod3-unpractised"]})
PADDED_PAIR = variants(PAIR, ("pair-plain-unpractised",), "-padded", regime="padded", tested="few")
BOTH_SIDES = {  # the window open to both sides, as the text has it; the authors' code opens one
    f"{name}-both": scaffold(f"{BASIC[name].title}, both sides", BASIC[name].position, sides="both", tested=tested)
    for name, tested in {"window": "beyond", "window-cyclic": "far and many", "nope-window": "beyond"}.items()
}
PERIODS = {  # other periods with the whole training, on the tasks where a quarter of it is not enough
    f"window-both-t{t}": scaffold(f"Window, both sides, T={t}", positions.Sinusoidal(t), sides="both", tested="few")
    for t in (2, 4, 5, 6, 7, 8)
}
WINDOWS = {  # other windows with the whole training, to one side; w = 1 is `window-cyclic`
    f"window-w{w}-t{t}": scaffold(f"w={w}, T={t}", positions.Sinusoidal(t), w, tested="few")
    for w in (2, 3)
    for t in (3, 5)
}
GRID = {}  # window, open to both sides, and period; None: no window, an index without a period
for w, t in product((None, 0, 1, 2, 3), (None, 2, 3, 4, 5, 6, 7, 8)):
    if w == W or t in (PERIOD, None):  # w = 1 with all periods, T = 3 and none with all windows
        name = f"grid-w{w}-t{t}".replace("None", "x")
        title = f"w={w}, T={t}".replace("w=None", "no window").replace("T=None", "no period")
        GRID[name] = scaffold(title, positions.Sinusoidal(t), w, "both", training=trainings.SHORT, tested="few")
SIZES = {  # layers of encoder and decoder, width, heads (claim C30); 0/2, 64, 8 are `window-cyclic-both`
    **{f"{m}-{n}": (f"{m}/{n} layers", layers(m, n)) for m, n in ((0, 1), (0, 4), (1, 6), (4, 4), (6, 1))},
    **{f"width-{width}": (f"embedding size {width}", embedding_size(width)) for width in (32, 128)},
    "heads-1": ("1 head", {"heads": 1}),
    "heads-4": ("4 heads", {"heads": 4}),
}
SIZED = {
    f"window-both-{name}": scaffold(title, positions.Sinusoidal(PERIOD), sides="both", size=size)
    for name, (title, size) in SIZES.items()
}
PAPERS = BASIC | BOTH_SIDES | READINGS | ALGORITHM_1 | ABLATIONS | CROSS_LINES
PADDED_MODELS = ("vanilla", *SCAFFOLDS, *BOTH_SIDES, "abc-unpractised", *READINGS, *BY_WEIGHTS, "algorithm-1-pooled")
PADDED = variants(PAPERS, PADDED_MODELS, "-padded", regime="padded", tested="few")  # every operand to sixty digits
PADDED["abc-padded"] = replace(PADDED["abc-padded"], training=trainings.ANEW_PADDED, tested="few_beyond")
PADDED["window-cyclic-padded"] = replace(PADDED["window-cyclic-padded"], tested="few_beyond")
TABLE_1_PADDED = tuple(f"{name}-padded" for name in ("vanilla", *SCAFFOLDS))
SIX_LAYERS = {  # the paper's decoder layers, with this project's optimiser and few steps: ends of names and of titles
    "-deep": "six layers",
    "-paper-size": "the paper's size",
    "-paper-batch": "the paper's size and batch",
}


def six_layers(suffix: str, plain: tuple[str, ...], names: tuple[str, ...], **changes: Any) -> Models:
    """Models with six decoder layers; `plain` ones are trained for longer."""
    long, short = trainings.DEEP, trainings.SHORT
    if suffix == "-paper-batch":
        long, short = trainings.LARGE, trainings.LARGE_ANEW
    settings: dict[str, Any] = {"title": f", {SIX_LAYERS[suffix]}", "accept": 0.0, "tested": "few"} | changes
    models = variants(PAPERS, plain, suffix, training=long, **settings)
    return models | variants(PAPERS, names, suffix, training=short, **settings)


# In the profile's width and without dropout. Of 21 columns there are as many lines as Algorithm 1 needs, and a step
# costs a third of one with 61.
DEEP = six_layers(
    "-deep", ("vanilla",), ("abc-unpractised", "abc-last-layer", *TEXT_LINES), size=layers(0, 6), regime="padded-20"
)
LONGER = {  # claim C19: these were not learned by the end of a short training, and could be
    name: replace(model, training=trainings.longer(model.training))
    for name, model in (PAPERS | DEEP).items()
    if name in ("algorithm-1-plain-new", "algorithm-1-plain-warm", "algorithm-1-script-none-deep")
}
PAPER_SIZE = layers(1, 6) | {"width": 128, "feed_forward": 512}  # the paper's (v4 section B)
LINES_SIZED = ("algorithm-1-none-new", "algorithm-1-v1")
PAPER_SIZED = six_layers(
    "-paper-size",
    ("vanilla", "window-cyclic"),
    ("abc-unpractised", *LINES_SIZED),
    size=PAPER_SIZE | {"dropout": 0.3},
    regime="padded",
)
# With the paper's batch, for a GPU. Without dropout: with 0.3 tight Addition was not learned at all in 2,400 steps.
PAPER_BATCH = six_layers(
    "-paper-batch",
    ("vanilla",),
    ("window-cyclic", "nope-window", "abc-unpractised", "abc-last-layer", *LINES_SIZED),
    accept=0.99,
    size=PAPER_SIZE,
    regime="padded",
)
SIZES_COMPARED = ("vanilla-padded", "window-cyclic-padded", "abc-padded", *PAPER_SIZED, *PAPER_BATCH)
ENCODED = variants(PAPERS, ("window-cyclic",), "-encoder", ", one encoder layer", size=layers(1, 2))
WIDE = {"feed_forward": 1024}
FACTORED = {  # on natural input: each operand's digits to heads of their own
    "by-head": scaffold("Window by head", positions.Sinusoidal(PERIOD), bias=by_head, arrangement="natural"),
    # A sixth of the budget is too little where the parent has learned the task in part.
    "abc-anew": replace(
        READINGS["abc-mod3-new"], title="ABC, index modulo 3, new weights", tested="beyond", training=SCAFFOLD
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
MODERN = {
    "rpe-short": proposal("RPE, short clip", distances.ShortRelative()),
    "learned": proposal("Learned positions", digits.Learned(longest=1024)),
    "transformer-xl": proposal("Transformer-XL", distances.TransformerXL()),
    "randomized": proposal("Randomized positions", distances.Randomized()),
    "kerple": proposal("KERPLE", distances.Kerple()),
    "sandwich": proposal("Sandwich", distances.Sandwich()),
    "rope-interpolated": proposal("RoPE, interpolated", distances.InterpolatedRotary()),
    "rope-ntk": proposal("RoPE, NTK-aware", distances.NTKRotary()),
    "fire": proposal("FIRE", distances.Fire()),
    "abacus": proposal("Abacus", digits.Abacus()),
    "coupling": proposal("Position coupling", digits.Coupling()),
}
WIDTHS = {  # baselines at one width of their problems, and trained like the proposals, at three
    name: f"{name.removesuffix('-right')}-widened"
    for name in ("vanilla", "nope", "rope-right", "rpe-right", "alibi-cross")
}
WIDENED = {"vanilla-widened": course.WIDENED} | variants(
    BASIC, ("nope", "rope", "alibi-cross", "rpe"), "-widened", source_index="right", extends=True, tested="beyond"
)
DISTANCES = ("rope-widened", "rpe-widened", "rpe-short", "transformer-xl", "randomized", "kerple", "sandwich", "fire")
PLACED = {  # encodings of distance, the source counted by place: equal places are equally far, in both operands
    f"{name.removesuffix('-widened')}-by-place": replace(model, title=f"{model.title}, by place", source_index="place")
    for name, model in (WIDENED | MODERN).items()
    if name in DISTANCES
}
PLACED["alibi-by-place"] = replace(
    WIDENED["alibi-cross-widened"], title="ALiBi, by place", bias=distances.PlacedALiBi(cross=True)
)
METHODS = (*WIDENED, *MODERN, "abs", "abc")  # what appendix a1 compares
VARIANTS = ("rope-right", "rpe-right", "alibi-cross")  # baselines that show why a baseline fails
DECODER_ONLY = course.DECODER_ONLY | {
    "decoder-window-cyclic": decoder_only(BASIC["window-cyclic"], source_index="right", title="Window, one softmax"),
    "decoder-nope": decoder_only(BASIC["nope"]),
    "decoder-rope": decoder_only(BASIC["rope"]),
    "decoder-alibi": decoder_only(BASIC["alibi"], bias=distances.RunningALiBi()),
    "decoder-rpe": decoder_only(BASIC["rpe"]),
}
SMALLEST = {  # one layer, six heads with one key each: how few parameters are enough for a certificate of Addition
    f"smallest-{width}-{hidden}": replace(
        DECODER_ONLY["decoder-abs-unpractised"],
        title=f"embedding size {width}, feed-forward {hidden}",
        training=SCAFFOLD,
        tested="few",
        size={"width": width, "feed_forward": hidden, "heads": 6} | layers(0, 1),
    )
    for width, hidden in ((24, 48), (12, 48), (12, 24), (6, 48), (6, 24))
}
FORMATS: dict[str, ModelRow] = {}  # Addition as others write it: operands' order, answer's order and zeros in front
for arrangement, regime in {"units-first": None, "as-written": "unpadded"}.items():
    names = ["decoder-vanilla", "decoder-abs-unpractised", "decoder-abc-unpractised"]
    title = f", {arrangement.replace('-', ' ')}"
    settings: dict[str, Any] = {"arrangement": arrangement, "regime": regime, "tested": "beyond"}
    FORMATS |= variants(DECODER_ONLY, names, f"-{arrangement}", title, "decoder-vanilla", **settings)
SPARSE = {  # lines that determine the answer, where those that keep the plain model's skill leave too many contexts
    f"{name}-sparse-unpractised": replace(model, title=f"{model.title}, sparsest lines", calibration=Determining())
    for name, model in {"abc": ABC, "decoder-abc-twice": DECODER_ONLY["decoder-abc-twice-unpractised"]}.items()
}
SPARSE |= all_practised(SPARSE)
MODELS = PAPERS | PADDED | DEEP | PAPER_SIZED | PAPER_BATCH | ENCODED | PERIODS | SIZED | FACTORED | WIDER | MODERN
MODELS |= WIDENED | PLACED | DECODER_ONLY | SMALLEST | FORMATS | SPARSE | PAIR | PADDED_PAIR | PRACTISED_PAIR
MODELS |= WINDOWS | GRID | LONGER
MODELS["window-cyclic-practised"] = practised_model("window-cyclic", CYCLIC)
MODELS = {name: model for name, model in (MODELS | before_practice(MODELS)).items() if name not in course.MODELS}
# Of tasks whose output is a table. With 200 starts, as elsewhere, a thousand steps do not train the vectors: validation
# ends at 27%.
TABLES = with_decoders(TRACED_MODELS | {"coupling": traced("Position coupling", digits.TableCoupling(starts=50))})
