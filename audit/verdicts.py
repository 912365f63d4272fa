"""The verdicts on the paper's claims: of each a small function, named by its id and what it counts.

A function is given `read`, which gives the rows of studies or measures, and returns the parts that the claim's finding
in `data/claims.csv` names; its `runs` decide the claim.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import pandas as pd

from audit import claims
from audit.claims import Part, Which, at, below, both, count, every, learned, right, unlearned
from audit.measures import measured
from audit.results import Results

Read = Callable[..., pd.DataFrame]
Parts = dict[str, Any]
THREE, FOUR = "successor addition n-by-1", "successor addition n-by-1 parity"
UNARY, BINARY = "successor parity", "addition n-by-1"
TASKS = f"{UNARY} {BINARY}"
LABEL, PAPERS_SIZE = "{regime}, {task}", "padded, {task}, the paper's size and batch"

# ---- models without a bias, and what they look at


def fails(digits: int, less: float, of_products: float) -> Which:
    """Which runs are right on less than this; of N x 1 on less than that, as a tenth are products by zero."""
    return lambda own: (at(own, digits) < less) | ((own.task == "n-by-1") & (at(own, digits) < of_products))


def c01_complete_generalization(read: Read) -> Parts:
    return {"runs": count(read("baselines", "alibi with sines"), "vanilla rope rpe alibi-sines", "", right(60))}


def c02_vanilla_does_not_extrapolate(read: Read) -> Parts:
    ends = both(learned, below(60, 15))
    runs = count(read("baselines", "padded", "deep"), "vanilla vanilla-padded vanilla-deep", THREE, ends, LABEL)
    runs += count(read("paper size"), "vanilla-paper-size", "successor", ends, f"{LABEL}, the paper's size")
    batch = read("paper size and batch")
    return {"runs": runs + count(batch, "vanilla-paper-batch", THREE, ends, f"{LABEL}, the paper's size and batch")}


def c03_rope_drops_beyond_training(read: Read) -> Parts:
    drops = both(lambda own: at(own, 8) <= 10, lambda own: at(own, 10) <= 1)
    runs = count(read("baselines"), "rope", "successor n-by-1", drops, "{task}", unlearned)
    sizes = "rope-64 rope-128 rope-512"
    return {"runs": runs + count(read("rope sizes"), sizes, "addition", both(learned, drops), "{task}")}


def c04_alibi_does_not_interpolate(read: Read) -> Parts:
    sines = read("alibi with sines")
    return {
        "runs": count(sines, "alibi-sines", FOUR, fails(6, 5, 10), "{task}"),
        "ten": count(sines, "alibi-sines", FOUR, fails(10, 5, 15), "{task}"),
        "bare": count(read("baselines"), "alibi", "", fails(6, 5, 10)),
    }


def c05_rope_needs_size_512(read: Read) -> Parts:
    sizes, label = read("rope sizes"), "size {width}"
    runs = count(sizes, "rope-64 rope-128", "addition", unlearned, label)
    runs += count(sizes, "rope-512", "addition", learned, label)
    return {"runs": runs, "done": count(sizes, "", "addition", learned, label)}


def c06_attention_stops_at_training_length(read: Read) -> Parts:
    inside = both(lambda own: own.self_inside >= 0.5, lambda own: own.cross_inside >= 0.5)
    stops = both(inside, lambda own: own.self_left <= 0.5, lambda own: own.cross_left <= 0.5)
    return {"runs": count(read("needed cells"), "", "successor", stops, undecided=unlearned)}


def c07_heads_divide_the_operands(read: Read) -> Parts:
    each_has_one = both(lambda own: own["first"] > 0, lambda own: own.second > 0)
    divide = both(each_has_one, lambda own: own["first"] + own.second > own.untrained)
    return {"runs": count(read("operands"), "", "addition", divide, undecided=unlearned)}


def c08_attention_correlates_with_accuracy(read: Read) -> Parts:
    digits = read("needed digits of successor", "needed digits of addition")
    runs = count(digits, "", "", lambda own: own.correlation >= 0.8, "{task}", unlearned)
    return {"runs": runs, "flat": count(digits, "", "", lambda own: own.spread < 0.5, "{task}")}


def c14_classified_parity_is_a_guess(read: Read) -> Parts:
    return {"runs": count(read("classified"), "", "", lambda own: (own.least >= 45) & (own.most <= 55))}


def c15_scratchpad_does_not_interpolate(read: Read) -> Parts:
    rows, models = read("baselines", "padded parity"), "vanilla vanilla-padded"
    return {"runs": count(rows, models, "parity", unlearned), "done": count(rows, models, "parity", learned)}


def c31_rpe_extrapolates_part_of_the_way(read: Read) -> Parts:
    rows, models = read("baselines", "variants", "methods", "places"), "rpe rpe-right rpe-widened rpe-by-place"
    return {"runs": count(rows, models, "addition", right(10, 90), "{model}")}


def c32_no_earlier_work_extrapolates(read: Read) -> Parts:
    earlier = "baselines", "methods", "variants", "parity variants", "places", "alibi with sines"
    rows, ours, label = read(*earlier), "!abc !abs !window-cyclic", "{task}: {model}"
    rows = rows[(rows.task != "n-by-1") | ~rows.model.map(counts_places)]
    return {
        "runs": count(rows, f"{ours} !nope* !alibi", "", below(60), label, unlearned),
        "solved": count(rows, ours, FOUR, right(60), label),
        "own": count(read("baselines"), "", FOUR, right(60), label),
    }


def counts_places(model: str) -> bool:
    """Whether a model knows of a digit its place alone: of N x 1 the factor's is that of the units, so it must fail."""
    return model in ("abacus", "coupling") or model.endswith("-by-place")


def c35_rpe_maintains_to_twenty(read: Read) -> Parts:
    return {}  # decided by reading


def c38_scratchpad_is_worse_than_classification(read: Read) -> Parts:
    less_than_half = both(lambda own: own.validation < 50, below(10, 50), below(20, 50), below(60, 50))
    runs = count(read("baselines", "padded parity"), "vanilla vanilla-padded", "parity", less_than_half)
    return {"runs": runs, "one": count(read("classifier"), "", "", every)}


# ---- ABS and its windows, and sizes, bases and lists


def c09_window_alone_on_unary_tasks(read: Read) -> Parts:
    rows, models = read("scaffolds", "padded", "padded parity"), "window window-padded"
    two = count(read("both sides", "padded"), "window-both window-both-padded", UNARY, right(60), "{regime}")
    return {"runs": count(rows, models, UNARY, right(60), LABEL, unlearned), "two": two}


def c10_window_alone_on_binary_tasks(read: Read) -> Parts:
    rows, ends = read("scaffolds", "padded"), both(learned, below(20, 20))
    return {"runs": count(rows, "window window-padded", BINARY, ends, LABEL, unlearned)}


def c11_window_with_a_period(read: Read) -> Parts:
    models, bar = "window-cyclic window-cyclic-padded", right(60, 99.9)
    runs = count(read("scaffolds", "padded", "padded parity"), models, TASKS, bar, LABEL, unlearned)
    runs += count(read("paper size and batch"), "window-cyclic-paper-batch", TASKS, bar, PAPERS_SIZE, unlearned)
    models = "window-cyclic-both window-cyclic-both-padded"
    return {"runs": runs, "two": count(read("both sides", "padded"), models, TASKS, bar, "{regime}")}


def without_positions(rows: pd.DataFrame, models: str, bar_of_unary: float, labels: tuple[str, str]) -> Part:
    """Runs of a window without positions: at a bar on the unary tasks, and at 98% on the binary ones."""
    runs = count(rows, models, UNARY, right(60, bar_of_unary), labels[0], unlearned)
    return runs + count(rows, models, BINARY, right(60, 98), labels[1], unlearned)


def c12_window_without_positions(read: Read) -> Parts:
    rows = read("scaffolds", "padded", "padded parity")
    three = without_positions(rows, "nope-window nope-window-padded", 99.9, (LABEL, LABEL))
    batch = read("paper size and batch")
    three += without_positions(batch, "nope-window-paper-batch", 99.9, (PAPERS_SIZE, PAPERS_SIZE))
    models, both_sides = "nope-window-both nope-window-both-padded", read("both sides", "padded")
    return {
        "runs": without_positions(rows, "abs-unpractised", 99.9, (LABEL, LABEL)),
        "three": three,
        "two": without_positions(both_sides, models, 99.9, ("{regime}", "{regime}")),
    }


def c13_other_periods(read: Read) -> Parts:
    models, label = "window-cyclic-both window-both-t[4-8]", "T = {T}"
    runs = count(read("both sides", "periods"), models, BINARY, right(60), label, unlearned)
    return {"runs": runs, "narrow": count(read("periods"), "window-both-t2", BINARY, right(60), label)}


def c27_lists_of_one_operator(read: Read) -> Parts:
    return {"runs": count(read("lists"), "window-cyclic-both", "", right(60), LABEL, unlearned)}


def c28_what_is_not_learned(read: Read) -> Parts:
    limits, factors = read("limits"), read("factors", "wide factors", "factors in base 4")
    models, label = "by-head by-head-wide abc-anew abc-from-4", "{task}, {model}"
    return {
        "runs": count(limits, "", "", below(6), "{task}") + count(factors, models, "", below(6), label),
        "done": count(limits, "", "", right(6), "{task}"),
        "by_factors": count(factors, models, "", right(6), label),
    }


def c29_other_bases(read: Read) -> Parts:
    rows, models = read("bases", "bases to one side"), "window-cyclic-both abc-unpractised"
    runs = count(rows, models, "", right(60), "{model}, base {base}", unlearned, lambda own: own.base > 2)
    warm = count(read("bases"), "abc-mod3-warm", "", right(60), "base {base}", among=lambda own: own.base > 2)
    return {"runs": runs, "warm": warm}


def c30_other_sizes(read: Read) -> Parts:
    return {"runs": count(read("sizes"), "", "", right(60), "{model}", unlearned)}


def c33_without_positions(read: Read) -> Parts:
    rows, models = read("abc", "padded", "deep"), "abc-unpractised abc-padded abc-deep"
    runs = count(rows, models, TASKS, right(60), "ABC", unlearned)
    batch = read("paper size and batch")
    runs += count(batch, "abc-paper-batch", TASKS, right(60), "ABC, the paper's size and batch", unlearned)
    labels = "ABS, unary tasks", "ABS, binary tasks"
    return {"runs": runs + without_positions(read("scaffolds"), "abs-unpractised", 99, labels)}


def c34_other_windows(read: Read) -> Parts:
    runs = count(read("windows"), "", "", right(60), "{model}, {task}", unlearned)
    return {"runs": runs, "pair": count(read("scaffolds"), "abs-unpractised", TASKS, right(60), "{task}")}


def c39_any_positions_on_unary_tasks(read: Read) -> Parts:
    models = "window window-cyclic nope-window window-padded window-cyclic-padded nope-window-padded"
    rows = read("scaffolds", "padded", "padded parity")
    return {"runs": count(rows, models, UNARY, right(60), "{model}, {task}", unlearned)}


def c41_sizes_that_converge(read: Read) -> Parts:
    return {"runs": count(read("sizes"), "", "", right(60), "{model}", among=learned)}


# ---- ABC, its lines, and methods like it

CALIBRATED = "abc-unpractised abc-padded"


def of_abc(read: Read) -> Part:
    """Runs of ABC that are right at 60 digits."""
    rows, models = read("abc", "padded", "deep"), f"{CALIBRATED} abc-deep"
    runs = count(rows, models, THREE, right(60), LABEL, unlearned)
    return runs + count(read("paper size and batch"), "abc-paper-batch", THREE, right(60), PAPERS_SIZE, unlearned)


def c16_abc_reaches_sixty_digits(read: Read) -> Parts:
    return {"runs": of_abc(read)}


def c17_abc_cannot_solve_parity(read: Read) -> Parts:
    rows = read("abc", "padded parity")
    runs = count(rows, CALIBRATED, "parity", below(60), undecided=unlearned)
    return {"runs": runs, "solved": count(rows, CALIBRATED, "parity", right(60))}


def c18_three_directions_suffice(read: Read) -> Parts:
    return {"runs": of_abc(read), "without": count(read("ablations"), "abc-antidiagonals", THREE, right(60), "{task}")}


def c19_the_papers_thresholds(read: Read) -> Parts:
    """A run that must be wrong on its training task, whatever the training, is decided though it did not learn."""
    studies = "algorithm 1", "padded", "deep", "paper size", "paper size and batch"
    must = read("lacking").reindex(columns=[*claims.RUN, "wrong"])
    rows = read(*studies).merge(must, how="left", on=claims.RUN)
    could = both(unlearned, lambda own: ~(own.wrong > 0))
    stuck = rows.wrong[unlearned(rows) & rows.wrong.notna()]
    return {
        "runs": count(rows, "algorithm-1-* !*-v1*", FOUR, right(60), "{model}, {task}", could),
        "stuck": len(stuck),
        "could_not": (stuck > 0).sum(),
        "kappa": count(read("deep"), "algorithm-1-*v1-*", THREE, right(20)),
    }


def c20_one_bias_for_all_layers(read: Read) -> Parts:
    models = "abc-last-layer abc-last-layer-deep abc-last-layer-paper-batch"
    rows, label = read("ablations", "deep", "paper size and batch"), "{model}, {task}"
    own = count(read("deep", "paper size and batch"), "abc-deep abc-paper-batch", THREE, right(60), label)
    return {"runs": count(rows, models, THREE, right(60), label, unlearned), "own": own}


def c21_retraining_is_short(read: Read) -> Parts:
    on_either_side = both(lambda own: own.low <= 0.1, lambda own: own.high > 0.1)
    return {"runs": count(read("costs"), "", "", lambda own: own.high <= 0.1, "{task}", on_either_side)}


def c22_heads_follow_one_operand(read: Read) -> Parts:
    rows, some = read("followed"), both(lambda own: own["first"] > 0, lambda own: own.second > 0)
    every_head = both(some, lambda own: own["first"] + own.second == own.heads)
    runs = count(rows, "", "addition", every_head, undecided=unlearned)
    return {"runs": runs, "least": count(rows, "", "addition", some)}


def c23_most_heads_follow_the_number(read: Read) -> Parts:
    most = both(lambda own: own.number > own.heads / 2, lambda own: own.digit > 0)
    return {"runs": count(read("followed"), "", "n-by-1", most, undecided=unlearned)}


def c24_verticals_are_like_sinks(read: Read) -> Parts:
    return {"runs": count(read("verticals"), "", "", lambda own: own.share > 0.5)}


def c25_the_index_of_a_line(read: Read) -> Parts:
    return {"runs": count(read("indices"), "", "", lambda own: own.equal)}


def c26_lora_changes_logits_too(read: Read) -> Parts:
    runs = count(read("changes"), "", "", both(lambda own: own.abc < 1e-4, lambda own: own.lora > 1e-4))
    return {"runs": runs, "sixty": count(read("lora"), "lora", FOUR, right(60))}


def c36_most_open_elements_are_on_antidiagonals(read: Read) -> Parts:
    rows = read("open elements")
    return {"runs": count(rows, "", "addition n-by-1", lambda own: own.share > 0.5, "{task}", unlearned)}


def c37_cross_attention_matters_most(read: Read) -> Parts:
    """A run agrees if lines in cross-attention are enough, and those in self-attention are not for any training."""
    enough = both(right(60), lambda own: own.self_wrong > 0)
    tried = both(lambda own: learned(own) | (own.cross_wrong > 0), lambda own: own.self_wrong > 0)
    return {"runs": count(read("one attention"), "", FOUR, enough, "{task}", lambda own: ~tried(own))}


def c40_fully_automatically(read: Read) -> Parts:
    return {"whole": count(read("ablations"), "abc-whole", "", right(60), "{task}")}


JUDGES: dict[str, Callable[[Read], Parts]] = {  # by id
    name[:3].upper(): function for name, function in globals().items() if name[:1] == "c" and name[1:3].isdigit()
}


def judge(results: Results, ids: Sequence[str]) -> list[claims.Verdict]:
    """The verdicts on some claims, from the results that are there."""

    @cache
    def read_one(rows: str) -> pd.DataFrame:
        return measured(results, rows)

    def read(*rows: str) -> pd.DataFrame:
        """The rows of some studies or measures, a run once."""
        return pd.concat([read_one(each) for each in rows]).drop_duplicates(claims.RUN, ignore_index=True)

    return [claims.judged(claims.known()[id], JUDGES[id](read)) for id in ids]
