"""Studies: the experiments that notebooks show, each a product of tasks, models and bases."""

from dataclasses import dataclass, replace
from itertools import product

from abc_nb.specs import models as course
from abc_nb.specs.experiment import Name
from abc_nb.specs.names import ARITHMETIC, LISTS, matching
from abc_nb.specs.spec import SEEDS, Spec, specify
from audit import models, readings

GROUPS = {  # of seeds: the first was named before any run of it was made, and nothing was chosen by it
    "20 to 29": tuple(range(20, 30)),
    "5 to 9": tuple(range(5, 10)),
    "0 to 4": SEEDS,
}
ABLATED = ("successor", "addition", "n-by-1")  # the tasks of the ablations, and of padded problems
BINARY = ("addition", "n-by-1")
FACTORS = ("n-by-2", "n-by-3")
BASES = (2, 4, 8, 16)
CERTIFIED = ("window-cyclic", "window-cyclic-practised", "abc-unpractised", "abc")  # of other tasks and bases
SOLVED = ("abs-unpractised", "abs", "abc-unpractised", "abc")  # of tasks whose output is a table
SPARSE = ("abc-sparse-unpractised", "abc-sparse")
FACTOR_MODELS = ("vanilla", "by-head", "abc-mod3-warm", "abc-anew")


@dataclass(frozen=True)
class Study:
    """Experiments that one part of a notebook shows."""

    tasks: tuple[str, ...]
    models: tuple[str, ...]
    bases: tuple[int, ...] = ()  # none: each task's usual one
    profiles: tuple[str, ...] = ("smoke", "quick", "paper")
    corner: int | None = 3  # how many of its models `smoke` has, for one task; None: all of it


DECODED = ("addition", "successor", "n-by-1", "parity")  # Addition first: it is what `smoke` has of them
TIGHT = ("smoke", "quick")  # in the profile `paper` all problems are padded
STORY = "story"  # what plain `reproduce` trains in the profile `quick`; the others are taken from the shipped results
STUDIES = {
    STORY: Study(ARITHMETIC, ("vanilla", "abs-unpractised", "abs", "abc-unpractised", "abc"), corner=None),
    "baselines": Study(ARITHMETIC, models.BASELINES, corner=None),
    "scaffolds": Study(ARITHMETIC, (*models.SCAFFOLDS, "abs-unpractised"), corner=None),
    "practised": Study(ARITHMETIC, ("abs", "abc"), corner=None),
    "abc": Study(ARITHMETIC, ("abc-unpractised",), corner=None),
    "proven": Study(ARITHMETIC, ("abs", "abc", "decoder-abs", "decoder-abc-twice"), corner=1),
    "lora": Study(ARITHMETIC, ("lora",), corner=None),
    "variants": Study(("successor", "addition"), models.VARIANTS, corner=None),
    "alibi with sines": Study(ARITHMETIC, ("alibi-sines",)),
    "parity variants": Study(("parity",), ("rpe-right",), corner=None),
    "classifier": Study(("parity-classification",), ("vanilla",), corner=None),
    "both sides": Study(ARITHMETIC, tuple(models.BOTH_SIDES)),
    "pair": Study(ARITHMETIC, tuple(models.PAIR), profiles=("quick",)),
    "padded pair": Study(BINARY, tuple(models.PADDED_PAIR), profiles=("quick",)),
    "practised windows": Study(ARITHMETIC, ("pair-mod3", "window-cyclic-practised"), profiles=("quick",)),
    "readings": Study(ARITHMETIC, tuple(readings.READINGS)),
    "algorithm 1": Study(ARITHMETIC, tuple(readings.ALGORITHM_1)),
    "ablations": Study(ABLATED, tuple(readings.ABLATIONS)),
    "lines of cross-attention": Study(ARITHMETIC, tuple(readings.CROSS_LINES), profiles=("quick",)),
    "padded": Study(ABLATED, tuple(models.PADDED), profiles=TIGHT),
    "padded parity": Study(("parity",), (*models.TABLE_1_PADDED, "abc-padded"), profiles=("quick",)),
    "deep": Study(("successor", "addition"), tuple(models.DEEP), profiles=("quick",)),
    "paper size": Study(("successor", "addition"), tuple(models.PAPER_SIZED), profiles=("quick",)),
    "paper size and batch": Study(ABLATED, tuple(models.PAPER_BATCH), profiles=("quick",)),
    "grid": Study(ARITHMETIC, tuple(models.GRID)),
    "periods": Study(BINARY, tuple(models.PERIODS)),
    "windows": Study(("successor", "addition"), tuple(models.WINDOWS)),
    "rope sizes": Study(("addition",), ("rope-64", "rope-128", "rope-512"), corner=1),
    "methods": Study(ARITHMETIC, models.METHODS),
    "places": Study(BINARY, (*models.PLACED, "coupling", "abs")),
    "lists": Study(LISTS, ("vanilla", "window-both", "window-cyclic-both", "abc-mod3-warm")),
    "bases": Study(ABLATED, ("vanilla", "window-cyclic-both", "abc-mod3-warm"), BASES),
    "lists to one side": Study(LISTS, CERTIFIED, profiles=("quick",)),
    "bases to one side": Study(ABLATED, CERTIFIED, BASES, profiles=("quick",)),
    "factors": Study(FACTORS, FACTOR_MODELS),
    "wide factors": Study(("n-by-3",), tuple(models.WIDER)),
    "factors in base 4": Study(FACTORS, FACTOR_MODELS, (4,)),
    "products": Study(
        ("n-by-n",), tuple(dict.fromkeys(("vanilla", *SOLVED, *models.TABLES))), corner=5, profiles=TIGHT
    ),
    "products in other bases": Study(("n-by-n",), ("abs-unpractised", "abs"), (2, 16), profiles=TIGHT),
    "limits": Study(("direct-n-by-n", "direct-listops-nested"), ("vanilla",)),
    "more tasks": Study(("subtraction", "cycle-navigation"), ("vanilla", *CERTIFIED), profiles=TIGHT),
    "sums of many": Study(("sum-of-many",), ("vanilla", *SOLVED), profiles=TIGHT),
    "sizes": Study(("addition",), ("window-cyclic-both", *models.SIZED)),
    "smallest": Study(("addition",), tuple(models.SMALLEST), profiles=("quick",)),
    "decoder-only": Study(DECODED, tuple(models.DECODER_ONLY)),
    "practised decoders": Study(DECODED, tuple(course.PRACTISED_DECODERS)),
    "sparsest lines in base 16": Study(("n-by-1",), SPARSE, (16,), profiles=("quick",)),
    "sparsest lines of Parity": Study(("parity",), SPARSE, profiles=("quick",)),
    "sparsest lines of decoders": Study(
        ("addition",), ("decoder-abc-twice-sparse-unpractised", "decoder-abc-twice-sparse"), profiles=("quick",)
    ),
    "formats": Study(("addition",), tuple(models.FORMATS), profiles=TIGHT),
}


def names_of(*studies: str, profile: str = "quick") -> list[Name]:
    """The names of the experiments of some studies, each once; in the profile `smoke` a corner of each."""
    names: list[Name] = []
    for study in (corner(STUDIES[name], profile) for name in studies):
        parts = product(study.bases or (0,), study.models, study.tasks)
        names += [Name(task, model, base) for base, model, task in parts]
    return list(dict.fromkeys(names))


def corner(study: Study, profile: str) -> Study:
    """A study as a profile has it: of most, `smoke` takes some models of one task."""
    if profile != "smoke" or study.corner is None:
        return study
    return replace(study, tasks=study.tasks[:1], models=study.models[: study.corner], bases=study.bases[:1])


def studies_of(profile: str) -> list[str]:
    return [name for name, study in STUDIES.items() if profile in study.profiles]


def of_pattern(pattern: str, profile: str = "quick") -> list[Name]:
    """The names of a study, or those that `names.matching` gives; InputError if there are none."""
    return names_of(pattern, profile=profile) if pattern in studies_of(profile) else matching(pattern)


def needed(profile: str) -> list[Spec]:
    """The specs that `reproduce` trains, in this order: in the profile `quick` those of the story alone."""
    studies = [STORY] if profile == "quick" else studies_of(profile)
    return [specify(name, profile) for name in names_of(*studies, profile=profile)]
