"""Numbers in the text of the README and of the notebooks are those of the tables and the shipped runs."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from functools import cache
from statistics import median

import nbformat
import pandas as pd
import pytest
import torch

from abc_nb import experiments
from abc_nb.calibration.calibrate import Calibration
from abc_nb.common import paths
from abc_nb.experiments.catalogue import MODERN, PADDED, PLACED, WIDENED
from abc_nb.experiments.experiment import ABLATED, BINARY, SEEDS, experiment, split
from abc_nb.runs import store
from abc_nb.training.evaluation import exact_match

UNARY = ("successor", "parity")
TITLES = ("Successor", "Addition", "N x 1")
ALGORITHM = ("abc-paper", "abc-paper-no-period")
COUNTS = {5: "five", 6: "six"}
NUMBERS = ("None", "One", "Two", "Three", "Four", "All")


def table(name: str) -> pd.DataFrame:
    return pd.read_csv(paths.figures("quick") / f"{name}.csv")


def ours(name: str, task: str, model: str, length: int) -> float:
    """The median seed's percentage in a table."""
    rows = table(name)
    (found,) = rows[(rows.task == task) & (rows.model == model) & (rows.length == length)].ours
    return float(found)


def accuracies(name: str, length: int) -> list[float]:
    """Percent at a length, of every shipped seed."""
    return [100 * float(run.evaluation().set_index("length").accuracy[length]) for run in shipped(name)]


def shipped(name: str) -> list[store.Run]:
    """The run of every shipped seed."""
    runs = [store.find(experiment(name), seed, ("shipped",)) for seed in SEEDS]
    return [run for run in runs if run is not None]


def skill(run: store.Run) -> float:
    """Percent of its digits that the plain model keeps under the lines alone; 100 where there are none."""
    tried = run.shares()
    return 100.0 if tried is None else 100 * float(tried.skill.iloc[-1])


def span(*percent: float, places: int = 0) -> str:
    """The least and the most."""
    low, high = (f"{each:.{places}f}" for each in (min(percent), max(percent)))
    return f"{low}%" if low == high else f"{low} to {high}%"


def failure() -> Iterator[tuple[str, str]]:
    (classified,) = {share for share in accuracies("parity-classifier", 6)}
    yield "02_vanilla_failure", f"{classified:.1f}% at six digits is the share of odd parity there"
    guessed = [100 * run.history().accuracy.iloc[-1] for run in shipped("parity-classifier")]
    yield "02_vanilla_failure", f"{span(*guessed)} of validation problems after the whole training"
    alibi = [span(*accuracies("successor-alibi-cross", length)) for length in (10, 20)]
    yield "02_vanilla_failure", "{} at ten digits, {} at twenty".format(*alibi)
    yield "02_vanilla_failure", f"({span(*accuracies('addition-rope', 6))} at six digits by seed)"
    larger = [sorted(accuracies(name, 6)) for name in experiments.ROPE_SIZES]
    yield (
        "02_vanilla_failure",
        "of five seeds one learns it at size 128 and one at 512 ({:.0f} and {:.0f}% of six".format(
            *(best for *_, best in larger)
        ),
    )
    yield (
        "02_vanilla_failure",
        f"of the others none has {math.ceil(max(share for *rest, _ in larger for share in rest))}%",
    )
    assert [len(shares) for shares in larger] == [5, 5]
    bags = [share for model in ("nope", "alibi") for share in accuracies(f"successor-{model}", 6)]
    yield "02_vanilla_failure", f"by seed {min(bags):.1f} to {max(bags):.1f}% of a sample of 1,000"
    lengths = [length for length, _ in experiment("successor-rpe-right").tests if length >= 7]
    kept = {
        (length, seed): share
        for length in lengths
        for seed, share in enumerate(accuracies("successor-rpe-right", length))
    }
    lost = kept.pop(min(kept, key=kept.__getitem__))
    yield "02_vanilla_failure", f"keeps {span(*kept.values())} on Successor from seven to sixty digits"
    yield "02_vanilla_failure", f"one seed {lost:.0f}% at fourteen"
    perfect = accuracies("successor-rpe-right", 60).count(100)
    yield "02_vanilla_failure", f"{NUMBERS[perfect].lower()} of five seeds all of it at sixty"
    assert min(accuracies("parity-rpe-right", 60)) == 100


def scaffolding() -> Iterator[tuple[str, str]]:
    blind = {
        task: [share for length in (6, 10, 20, 60, 200) for share in accuracies(f"{task}-nope-window", length)]
        for task in ("successor", "parity")
    }
    right = f"right on {span(*blind['successor'])} of Successor and on {span(*blind['parity'])} of Parity"
    yield "04_abs", f"At the lengths of the table and beyond it is {right}"
    yield "04_abs", f"99% at six digits fall to {span(*accuracies('n-by-1-nope-window', 60))} at sixty"
    grid = table("table-9-grid")
    four = grid[(grid.task == "Addition") & (grid.w == "1") & (grid["T"] == 4) & (grid.length == 60)]
    yield "04_abs", f"with $T = 4$ on {span(four.worst.item(), four.best.item())}, by seed"
    short = {task: [span(*accuracies(f"{task}-window-t2", length)) for length in (6, 60)] for task in BINARY}
    yield "04_abs", "{} of Addition at six digits and {} at sixty".format(*short["addition"])
    yield "04_abs", "{} of N x 1, and {}".format(*short["n-by-1"])


def low_rank() -> Iterator[tuple[str, str]]:
    assert max(max(accuracies(f"{task}-lora", 10)) for task in experiments.ARITHMETIC) == 0
    kept = [share for task in ("n-by-1", "parity") for share in accuracies(f"{task}-lora", 6)]
    yield "06_rpe_connection", f"keeps six digits ({min(kept):.1f} to {max(kept):.0f}%)"
    whole = sum(share == 100 for share in accuracies("successor-lora", 6))
    yield "06_rpe_connection", f"on Successor with {NUMBERS[whole].lower()} of five seeds"
    yield "06_rpe_connection", f"({span(*accuracies('addition-lora', 6))} by seed)"


def padded_problems() -> Iterator[tuple[str, str]]:
    """At sixty digits, as the headline has them."""
    (count,) = {len(shipped(f"{task}-{model}")) for model in PADDED for task in ABLATED}
    seeds = f"{COUNTS[count]} seeds"
    yield "README", f"Padded problems, the paper's regime ({seeds}, sixty digits"
    yield "04_abs", f"{seeds}, 500 problems a length"
    yield "05_abc", f"with the period and without, {seeds}, percent right"
    yield "07_beyond", f"padded, the median of {seeds}, where it was trained"
    first, second, third = (accuracies(f"{task}-window-cyclic-padded", 60) for task in ABLATED)
    assert min(second) == 100
    by_hand = f"{span(*first)} of Successor, 100% of Addition and {span(*third)} of N x 1"
    yield "04_abs", f"by seed {span(*first)} of Successor and {span(*third)} of N x 1 (table 10)"
    read = [accuracies(f"{task}-abc-padded", 60) for task in ABLATED]
    *others, odd = sorted(zip(*read, strict=True), key=min, reverse=True)
    assert odd == tuple(each[2] for each in read)
    least = f"{min(map(min, others)):.1f}% or more"
    by_seed = f"ABC with four seeds on {least}, with one on {odd[0]:.0f}, {odd[1]:.0f} and {odd[2]:.0f}%"
    wider = table("table-45-zeros-in-front")
    assert (wider[wider["columns"] > 61].accuracy == 100).all() and (wider[wider["columns"] == 61].accuracy < 100).any()
    yield "README", f"ABS is right on {by_hand}, by seed, and on all with one more column of zeros in front; {by_seed}"
    yield "05_abc", f"four seeds of five are right on {least} of all three tasks at sixty digits"
    yield "05_abc", f"The fifth, seed 2, has {odd[0]:.0f}% of Successor"
    yield "05_abc", f"({accuracies('successor-abc-padded', 6)[2]:.0f}% at six digits), {read[1][2]:.0f}% of Addition"
    (unlearned,) = (share for share in accuracies("addition-vanilla-padded", 6) if share < 50)
    lines = f"({unlearned:.1f}% at six digits), and yet gave lines under which"
    yield "05_abc", f"{lines} {accuracies('addition-abc-padded', 6)[2]:.0f}% are right"
    yield (
        "04_abs",
        f"{span(*accuracies('successor-window-padded', 10))} of Successor and 0% of Addition at ten, by seed",
    )
    blind = [share for n in (6, 10, 15, 20, 60) for share in accuracies("successor-nope-window-padded", n)]
    yield "04_abs", f"padded, ours has {span(*blind)}"
    yield "04_abs", f"(padded {span(*accuracies('n-by-1-nope-window-padded', 60))})"
    yield from padded_algorithm()


def padded_algorithm() -> Iterator[tuple[str, str]]:
    """The paper's Algorithm 1 on padded problems: six digits after the short retraining, and sixty."""
    its, plain = ([accuracies(f"{task}-{model}-padded", 6) for task in ABLATED] for model in ALGORITHM)
    assert span(*its[0]) == span(*plain[0])
    yield "05_abc", f"those of Successor by seed ({span(*its[0])}, without the period too)"
    *others, learned = sorted(plain[1])
    assert max(others) == 0 and learned == 100
    yield "05_abc", f"six digits of Addition ({span(*its[1])}; without the period in one seed of five, {learned:.0f}%)"
    zero, *more = sorted({*its[2], *plain[2]})
    yield "05_abc", f"N x 1 ({zero:.0f}%, products by zero; without the period in one seed {more[-1]:.0f}%)"
    assert len(more) == 1 and plain[2].count(more[0]) == 1 and more[0] not in its[2]
    most = max(share for model in ALGORITHM for task in ABLATED for share in accuracies(f"{task}-{model}-padded", 60))
    yield "05_abc", f"at sixty at most {most:.0f}% are right"


def calibration() -> Iterator[tuple[str, str]]:
    ablated = table("table-17-ablations").set_index(["task", "model"]).ours
    successor, addition, product = (accuracies(f"{task}-abc-no-period", 60) for task in ABLATED)
    yield "05_abc", f"{span(*successor)} of Successor are right at sixty digits, by seed"
    yield "05_abc", f"by seed, {span(*addition)} of Addition and {span(*product)} of N x 1."
    one = [share for task in ABLATED for share in accuracies(f"{task}-abc-one-width", 60)]
    least, second, *_ = sorted(one)
    assert accuracies("successor-abc-one-width", 60)[2] == least
    itself = f"Successor's seed 2 with {least:.0f}%, where ABC itself has {accuracies('successor-abc', 60)[2]:.0f}%"
    yield "05_abc", f"(`one width`: {second:.1f}% or more, but for {itself})"
    lasts = [span(*accuracies(f"{task}-abc-last-layer", 60)) for task in ABLATED]
    yield "05_abc", "right on {} of Successor, by seed, {} of Addition and {} of N x 1".format(*lasts)
    without = sorted(accuracies("addition-abc-antidiagonals", 60))
    yield "05_abc", f"Addition does without them, in one seed of five with {without[0]:.0f}%"
    assert without[1] == 100
    finite = {task: accuracies(f"{task}-abc-finite", 60) for task in ABLATED}
    spans = [span(*finite[task]) for task in BINARY]
    told = "{} of Addition are left, by seed, {} of N x 1, and {:.1f}% or more of Successor"
    yield "05_abc", told.format(*spans, min(finite["successor"]))
    surprising = [("Successor", "no period"), ("Addition", "last layer for all"), ("Addition", "no verticals")]
    yield "05_abc", "the medians of five are {:.0f}, {:.0f} and {:.0f}%".format(*(ablated[each] for each in surprising))
    left = f"{max(accuracies('addition-window', 60)):.0f}% of Addition is left at sixty digits with ABS"
    yield "README", f"{left}, and {span(*addition)} by seed with ABC"
    assert max(accuracies("successor-window", 60)) == 0
    windows = accuracies("n-by-1-window", 60)
    yield "05_abc", f"the window of notebook 4 (0% of Successor, {span(*windows)} of N x 1)"
    lost = [min(accuracies(f"{task}-abc-new-weights", 60)) for task in ABLATED]
    yield "05_abc", "on all three tasks (worst seed {:.0f}, {:.1f} and {:.0f}%)".format(*lost)
    lost = [min(accuracies(f"{task}-abc-share-0.1", 60)) for task in ABLATED]
    yield "05_abc", "(`share 0.1`: worst seed {:.0f}, {:.0f} and {:.0f}%)".format(*lost)
    assert min(share for task in ABLATED for share in accuracies(f"{task}-abc-logits", 60)) == 100
    six = [accuracies(f"{task}-abc-{model}", 6) for model in ("kappa-1", "no-period") for task in ABLATED]
    assert min(map(min, six)) >= 98
    sixty, ten = ([accuracies(f"{task}-abc-no-period-padded", n) for task in ABLATED] for n in (60, 10))
    left = f"{span(*sixty[0])[:-1]}, {sixty[1][0]:.0f} and {sixty[2][0]:.0f}%"
    assert max(sixty[1]) == 0 and max(sixty[2]) - min(sixty[2]) < 0.5
    yield "05_abc", f"none of the three tasks holds: {left} at sixty"
    yield "README", f"as the paper has ABC, on {left}"
    low = [f"{span(*seeds)[:-1]}" for seeds in ten]
    yield "05_abc", f"{low[0]}, {low[1]} and {low[2]}% are right at ten digits, by seed"
    costs = table("table-15-cost").groupby("task").problems.median()
    yield "05_abc", f"after 1/{1 / costs.max():.0f} to 1/{1 / costs.min():.0f} of the problems"
    seconds = table("table-15-cost").groupby("task").seconds.median()
    yield "05_abc", f"1/{1 / seconds.max():.0f} to 1/{1 / seconds.min():.0f} of the seconds"
    assert [task for task, cost in seconds.items() if cost > 0.1 or costs[task] > 0.1] == ["Successor"]
    figure = pd.read_csv(paths.figures("quick") / "claims.csv").set_index("id").figure
    symbols = sum(
        int(share) for token, share in re.findall(r"([^,:]+) (\d+)%", figure["C24"]) if "operand" not in token
    )
    yield "05_abc", f"on vertical lines half ({symbols}%, first seed's four models) lies on symbols"
    one, two, both, number, digit = (
        "{} to {}".format(*(how(map(int, counts.split("/"))) for how in (min, max)))
        for counts in re.findall(r"\d+(?:/\d+)+", figure["C22"] + figure["C23"])
    )
    yield "05_abc", f"On Addition {one} of sixteen follow the first operand alone and {two} the second"
    yield "05_abc", f"beside them {both} follow both"
    yield "05_abc", f"here {number} of sixteen follow it, and {digit} the single digit"


def beyond() -> Iterator[tuple[str, str]]:
    seeds = table("table-22-beyond-seeds")
    longest, thousand = (
        seeds[seeds.length == length].set_index(["task", "model", "seed"]) for length in (10_000, 1000)
    )
    right = (
        f"{(longest.accuracy == 1).sum()} of {len(longest)} models are right on every problem at ten thousand digits"
    )
    yield "07_beyond", right
    yield "README", f"of {len(longest)} models {(longest.accuracy == 1).sum()} are right on every problem"
    unlearned = ("Successor", "ABC", 2)
    least = 100 * thousand.accuracy.drop(unlearned).min()
    others = 100 * longest.accuracy[longest.accuracy < 1].drop(unlearned)
    yield "README", f"on {span(*others)} at ten thousand and {least:.1f}% or more at one thousand"
    assert set(others.index.get_level_values("task")) == {"N x 1", "Addition"} and len(others) == 5
    products = 100 * longest.accuracy[longest.accuracy < 1].sort_index().loc[("N x 1", "ABC")]
    assert len(products) == 3
    yield "07_beyond", f"three of the six others are ABC on N x 1, with {span(*products)}"
    kept = store.find(experiment("successor-abc"), 2, ("shipped",))
    assert kept is not None
    accuracy = 100 * kept.evaluation().set_index("length").accuracy
    beyond_ten = span(*accuracy[accuracy.index >= 10])
    yield "README", f"has {accuracy[6]:.0f}% at six digits and {beyond_ten} from ten on"
    yield "05_abc", f"has {accuracy[60]:.0f}% there, and {accuracy[6]:.0f}% at six digits and in validation"
    assert round(100 * kept.history().accuracy.iloc[-1]) == round(accuracy[6])
    sixteen = [ours("table-30-bases", "N x 1, base 16", model, 60) for model in ("+ T=3", "ABC")]
    at_six = [ours("table-30-bases", "N x 1, base 16", model, 6) for model in ("+ T=3", "ABC")]
    left = f"are left of {at_six[0]:.1f} and {at_six[1]:.1f}% at six"
    yield "07_beyond", f"{sixteen[0]:.0f} and {sixteen[1]:.0f}% at sixty digits {left}"
    yield "README", f"{sixteen[0]:.0f} and {sixteen[1]:.0f}% at sixty"
    binary = accuracies("addition-vanilla-base2", 6)
    yield "07_beyond", f"the first seed's plain model answers {binary[0]:.0f}% of six-bit additions"
    assert accuracies("addition-abc-base2", 200)[0] == binary[4] == 100 and accuracies("addition-abc-base2", 6)[4] == 0
    yield from missed()
    yield from methods()
    yield from places()
    yield from factors()
    windows = [
        [share for task in ("max", "min") for share in accuracies(f"listops-{task}-window", n)] for n in (60, 200)
    ]
    yield "07_beyond", "{:.1f}% or more at sixty items and {:.1f}% or more at two hundred".format(*map(min, windows))
    encoders = [sorted(accuracies("addition-window-4-4", length))[:2] for length in (60, 200)]
    (lowest, low), (far_lowest, far_low) = encoders
    yield (
        "07_beyond",
        f"one has {low:.0f}% at sixty and one {lowest:.0f}% ({far_low:.0f} and {far_lowest:.1f}% at two hundred)",
    )
    lists = [ours("table-32-limits", "ListOps, nested", "Vanilla", length) for length in (3, 6)]
    yield "07_beyond", "from {:.0f}% at three items to {:.0f}% at six".format(*lists)


def missed() -> Iterator[tuple[str, str]]:
    """Which single runs of ABS and ABC fall short, and what told it."""
    short = table("table-44-missed")
    based = short.task.str.contains("base") & ~short.task.str.startswith(("N x 2", "N x 3", "N x 1, base 16"))
    assert set(short[based].model) == {"ABC"} and set(short[based].task.str.split(",").str[0]) == {*TITLES}
    runs = sum(len(shipped(name)) for name in experiments.beyond("quick")["bases"] if split(name)[1] == "abc")
    runs -= len(shipped("n-by-1-abc-base16"))
    yield "07_beyond", f"of the {runs} runs of ABC {COUNTS[based.sum()]} fall short, on Successor, Addition and N x 1"
    yield "README", f"and {based.sum()} of the {runs} other runs of ABC"
    by_hand = [name for name in experiments.beyond("quick")["bases"] if split(name)[1] == "window-cyclic"]
    lows = [min(accuracies(name, n)) for name in by_hand if name != "n-by-1-window-cyclic-base16" for n in (60, 200)]
    yield "07_beyond", f"all seeds of ABS have {min(lows):.1f}% or more at sixty and two hundred digits"
    assert set(short[~short.model.str.startswith("ABC")].task) == {"N x 1, base 16", "N x 2", "N x 3"}
    (lost,) = short[(short.task == "Addition, base 2")].skill
    yield "07_beyond", f"the lines keep {lost:.0f}% of its digits"
    every = [run for name in experiments.lasting("quick") for run in shipped(name)]
    skills = {(run.experiment.name, run.seed): skill(run) for run in every}
    weak = {key: share for key, share in skills.items() if share < 100 * Calibration().keep}
    unserved = [(name, run.seed) for name in ("n-by-3-abc", "n-by-3-abc-anew") for run in shipped(name)]
    single = {("n-by-3-abc-from-4", run.seed): skill(run) for run in shipped("n-by-3-abc-from-4")}
    assert set(weak) - set(single) == {("addition-abc-base2", 4), ("parity-abc", 3), *unserved}
    assert accuracies("parity-abc", 60)[3] == 100
    yield "07_beyond", f"Parity's seed 3 with {weak['parity-abc', 3]:.0f}% is retrained to 100%"
    yield "07_beyond", f"those of N x 3 ({span(*map(weak.__getitem__, unserved))}, with new weights too) are not"
    assert min(accuracies("n-by-3-abc-from-4", 60)) > 50
    yield "07_beyond", f"the single lines read in base 4 ({span(*single.values())}) serve a new model with every seed"
    unary = short[short.task.str.startswith("Successor")]
    least, most = unary.validation.agg(["min", "max"])
    yield "07_beyond", f"{NUMBERS[len(unary)]} runs of ABC on Successor are wrong"
    yield "07_beyond", f"lines with {unary.skill.min():.0f}% of the digits or more"
    yield "07_beyond", f"has {least:.0f} to {most:.0f}%. Addition in base 8, seed 3, stops at"
    (stopped,) = short[short.task == "Addition, base 8"].validation
    yield "07_beyond", f"stops at {stopped:.0f}%."
    passed = short[short.validation >= 99]
    assert passed.task.str.startswith("N x").all()
    yield "07_beyond", f"Of the {len(short)} runs {len(passed)} have 99% or more in validation"
    valid = sum(run.history().accuracy.iloc[-1] >= 0.99 for run in every)
    yield (
        "07_beyond",
        f"of {len(every)} runs {valid} have 99% there, and {valid - len(passed)} of these at sixty digits",
    )


@pytest.mark.parametrize(
    ("name", "seed"), [("successor-abc", 2), ("successor-abc-base8", 1), ("successor-abc-base16", 3)]
)
def test_runs_that_miss_the_bar_on_successor_have_not_learned_the_carry(name: str, seed: int) -> None:
    """Of long numbers they are wrong on those that end in the highest digit, and by exception on another."""
    run = store.find(experiment(name), seed, ("shipped",))
    assert run is not None
    task = run.experiment.task
    batch = run.experiment.sampler.test_batch(60, 200, seed=1)
    (numbers,) = batch.operands(torch.arange(200), task)
    ends = torch.as_tensor(numbers)[:, 0] == task.base - 1
    right = exact_match(run.model(), batch)
    assert ends.any() and not right[ends].any()
    assert right[~ends].float().mean() > 0.99


def factors() -> Iterator[tuple[str, str]]:
    """Factors of two and three digits."""

    def by_seed(digits: int, model: str, length: int = 60, places: int = 1) -> str:
        return span(*accuracies(f"n-by-{digits}-{model}", length), places=places)

    (count,) = {len(shipped(name)) for name in experiments.beyond("quick")["factors"]}
    yield "README", f"Lists, bases and factors have {COUNTS[count]} seeds."
    by_hand, anew = ([by_seed(digits, model) for digits in (2, 3)] for model in ("by-head", "abc-anew"))
    wide = [by_seed(3, "by-head-wide", length) for length in (6, 60, 200)]
    read = [by_seed(digits, "abc-base4") for digits in (2, 3)]
    yield "07_beyond", f"{by_hand[0]} at sixty digits, by seed, {by_seed(2, 'by-head', 200)} at two hundred"
    yield "07_beyond", f"{by_seed(3, 'by-head', 6, places=0)} at six, {by_seed(3, 'by-head', places=0)} at sixty"
    yield "07_beyond", "(`by head, wide`) it has {} at six, {} at sixty, {} at two hundred".format(*wide)
    assert read[0] == "100.0%"
    yield "07_beyond", f"ABC 100.0% at sixty digits with two, {read[1]} with three"
    reached = f"the plain model reached {by_seed(2, 'vanilla', 6, places=0)} of six-digit products by two digits"
    yield "07_beyond", f"{reached}, and ABC's short retraining leaves {by_seed(2, 'abc')} at sixty"
    yield "07_beyond", f"{anew[0]} at sixty digits with two in base 10, {anew[1]} with three"
    from_four = [by_seed(3, "abc-from-4", length) for length in (6, 60, 200)]
    yield "07_beyond", "`ABC of base 4, wide` has {} at six, {} at sixty, {} at two hundred".format(*from_four)
    read, made = (accuracies(f"n-by-3-{model}", 60) for model in ("abc-from-4", "by-head-wide"))
    medians = (
        f"the median is {median(read):.1f}%, that of the window as wide, which is made by hand, {median(made):.1f}%"
    )
    assert min(made) > min(read)
    yield "07_beyond", f"{medians}; its worst seed is better"
    columns = ("by-head", "abc-anew", "abc")
    for row, digits, base in (("two digits", 2, ""), ("three digits, base 4", 3, "-base4"), ("three digits", 3, "")):
        yield "README", f"| {row} | {' | '.join(by_seed(digits, model + base) for model in columns)} |"
    yield "README", f"| three digits, wider layer | {wide[1]} | {from_four[1]} (lines of base 4) |"
    in_four = [f"n-by-{digits}-{model}-base4" for digits in (2, 3) for model in ("by-head", "abc-anew")]
    assert min(share for name in in_four for length in (60, 200) for share in accuracies(name, length)) == 100


def budget() -> Iterator[tuple[str, str]]:
    runs = experiments.needed("paper")
    steps = sum(run.training.steps for run in runs)
    yield "README", f"{len(runs)} runs, {steps / 1e6:.0f} million steps"


FROM_THE_RIGHT = (*MODERN, *WIDENED)


def least(name: str, *lengths: int) -> list[float]:
    """The worst seed at each length."""
    return [min(accuracies(name, length)) for length in lengths]


def methods() -> Iterator[tuple[str, str]]:
    """What other encodings do on Successor, Parity and N x 1, and where they stop."""
    far = {model: min(least(f"{task}-{model}", 200)[0] for task in UNARY) for model in FROM_THE_RIGHT}
    assert {model for model, share in far.items() if share == 100} == {"rpe-widened", "rpe-short", "sandwich"}
    missed = [share for task in UNARY for share in accuracies(f"{task}-kerple", 200) if share < 100]
    assert missed == [99.9]
    yield "07_beyond", "but for one problem of a thousand in one seed of KERPLE"
    yield (
        "07_beyond",
        "RPE (with either clip), KERPLE and Sandwich, counted from the right and trained at three widths, are right on",
    )
    shares, parity = (accuracies(f"{task}-randomized", 200) for task in UNARY)
    by_seed = f"by seed, on {min(shares):.1f} to {max(shares):.1f}% of Successor and on {span(*parity)} of Parity"
    yield "07_beyond", by_seed
    xl = [span(*accuracies("successor-transformer-xl", length)) for length in (60, 200)]
    yield "07_beyond", "Transformer-XL, by seed, on {} of Successor at sixty and {} at two hundred".format(*xl)
    fire = [span(*accuracies(f"{task}-fire", length)) for length in (60, 200) for task in UNARY]
    yield "07_beyond", "FIRE, by seed, on {} of Successor and {} of Parity at sixty, on {} and {} at two".format(*fire)
    one_width = (
        f"at one width keeps {least('successor-rpe-right', 60)[0]:.0f}% at sixty digits of Successor in its worst seed"
    )
    yield "07_beyond", f"RPE, which {one_width}, is right on all with three"
    assert max(accuracies("addition-rpe-right", 8)) < 0.5
    eight = span(*accuracies("addition-rpe-widened", 8))
    yield "07_beyond", f"from 0% at eight digits of Addition to {eight}, by seed"
    yield (
        "07_beyond",
        "the worst of RPE's five seeds has {:.0f}% at ten digits and {:.0f}% at sixty".format(
            *least("n-by-1-rpe-widened", 10, 60)
        ),
    )
    yield "07_beyond", "that of Randomized positions {:.0f} and {:.0f}%".format(*least("n-by-1-randomized", 10, 60))
    yield "07_beyond", "(with the short clip {:.0f} and {:.0f}%)".format(*least("n-by-1-rpe-short", 10, 60))
    others = {*FROM_THE_RIGHT} - {"rpe-widened", "rpe-short"}
    assert max(others, key=lambda model: least(f"n-by-1-{model}", 10)[0]) == "randomized"
    assert max(least(f"n-by-1-{model}", 60)[0] for model in others) < 25
    six = [share for model in PLACED for share in accuracies(f"n-by-1-{model}", 6)]
    yield "07_beyond", f"right on {span(*six)} of six-digit products"


def places() -> Iterator[tuple[str, str]]:
    """What encodings of distance do on Addition, from the right and by place."""
    assert max(max(accuracies(f"addition-{model}", 15)) for model in FROM_THE_RIGHT) < 99
    coupled = [span(*accuracies("addition-coupling", length)) for length in (10, 15)]
    yield "07_beyond", "by seed {} at ten digits, {} at fifteen".format(*coupled)
    *others, most = sorted(accuracies("addition-abacus", 10))
    assert len(others) == 4
    yield "07_beyond", f"Abacus has {most:.0f}% at ten in one seed of five, {span(*others)} in the others"
    blind = {name for name in FROM_THE_RIGHT if least(f"addition-{name}", 6)[0] < 20}
    assert blind == {"randomized", "kerple", "sandwich", "nope-widened", "alibi-cross-widened", "abacus", "rpe-short"}
    yield "07_beyond", f"of Abacus this is true of one seed, with {min(accuracies('addition-abacus', 6)):.0f}% of it"
    short = {
        task: {name for name in FROM_THE_RIGHT if least(f"{task}-{name}", 6)[0] < 99} - {"nope-widened"}
        for task in ("n-by-1", "parity")
    }
    assert short["n-by-1"] == {"kerple", "sandwich", "alibi-cross-widened", "abacus", "coupling"}
    assert short["parity"] == {"abacus"}
    sandwich = least("addition-sandwich-by-place", 60, 200)
    yield "07_beyond", "at least {:.1f}% at sixty digits and {:.1f}% at two hundred".format(*sandwich)
    yield "README", "at least {:.1f}% of sixty-digit sums and {:.1f}% at two hundred".format(*sandwich)
    fire = [span(*accuracies("addition-fire-by-place", length)) for length in (10, 15)]
    yield "07_beyond", "FIRE, by seed, is right on {} at ten digits and on {} at fifteen".format(*fire)
    names = {"RPE": "rpe", "KERPLE": "kerple", "Transformer-XL": "transformer-xl"}
    spans = [f"{title} on {span(*accuracies(f'addition-{name}-by-place', 60))}" for title, name in names.items()]
    yield "07_beyond", f"At sixty, {spans[0]}, {spans[1]}, {spans[2]}, by seed"
    clipped = [span(*accuracies("addition-rpe-short-by-place", length)) for length in (60, 200)]
    yield "07_beyond", "RPE with the short clip on {}, and on {} at two hundred".format(*clipped)
    yield "README", f"(RPE with a clip within its training on {clipped[0]})"
    every = [share for name in names.values() for share in accuracies(f"addition-{name}-by-place", 60)]
    yield "README", f"by seed on {span(*every)} of sixty-digit sums"
    far = accuracies("addition-rpe-by-place", 200)
    others = [share for share in far if share < 100]
    kept = f"{NUMBERS[len(far) - len(others)].lower()} of RPE's five seeds are right on all of two hundred digits"
    yield "07_beyond", f"{kept}, the others on {span(*others)}"
    longer = table("table-41-five-hundred").set_index(["task", "model"]).worst
    yield "07_beyond", f"right on {longer['Addition', 'Sandwich, by place']:.0f}% of sums of five hundred digits"
    yield from far_digits()


def far_digits() -> Iterator[tuple[str, str]]:
    errors = table("table-35-first-errors")
    failed = errors[errors.model.str.endswith("by place") & (errors.length == 60) & (errors.wrong > 0)]
    yield "07_beyond", f"Of the three counted by place, {span(*failed['later digit'])} of the wrong answers"
    shares = table("table-39-far-attention").set_index(["model", "seed", "length"]).cross
    two = [shares["RPE, by place", seed, 60] for seed in (2, 3)]
    yield "07_beyond", "{:.0f}% of its cross-attention goes to far digits in seed 2, {:.0f}% in seed 3".format(*two)
    closed = table("table-40-far-digits-closed").set_index(["model", "seed", "length"])
    assert closed.xs(("RPE, by place", 200), level=["model", "length"]).closed.eq(100).all()
    yield "07_beyond", "every seed of RPE is right on all problems of two hundred digits"
    short = closed.xs(("RPE, short clip, by place", 200), level=["model", "length"]).sort_values("closed")
    fewest, *others = short.closed
    assert others == [100.0] * 4
    yield "07_beyond", f"(the fifth on {fewest:.0f}%; open: {short.open.iloc[0]:.0f}%)"
    xl = closed.xs("Transformer-XL, by place")
    sixty, far = (xl.xs(length, level="length") for length in (60, 200))
    assert sixty.closed.eq(100).all()
    yield "07_beyond", "(open: {:.0f} and {:.0f}%)".format(*sixty.open)
    yield "07_beyond", "({:.0f} and {:.0f}%; open: {:.0f} and {:.0f}%)".format(*far.closed, *far.open)
    kerple = {
        (seed, length): "{:.0f} to {:.0f}%".format(*closed.loc[("KERPLE, by place", seed, length), ["open", "closed"]])
        for seed in (0, 1)
        for length in (20, 60)
    }
    yield "07_beyond", f"lose at twenty digits ({kerple[0, 20]}, {kerple[1, 20]})"
    yield "07_beyond", f"at sixty one falls from {kerple[0, 60]}, and one rises from {kerple[1, 60]}"
    yield "README", "every seed of RPE is right on all of two hundred digits"


SECTIONS = (failure, scaffolding, padded_problems, low_rank, calibration, beyond, budget)


@pytest.mark.parametrize("phrases", SECTIONS)
def test_the_text_says_what_the_tables_have(phrases: Callable[[], Iterator[tuple[str, str]]]) -> None:
    """A section yields a file and what it must say."""
    missing = [(file, phrase) for file, phrase in phrases() if phrase not in text_of(file).replace("**", "")]
    assert missing == []


@cache
def text_of(file: str) -> str:
    if file == "README":
        return (paths.ROOT / "README.md").read_text()
    return "\n".join(cell.source for cell in nbformat.read(paths.NOTEBOOKS / f"{file}.ipynb", 4).cells)
