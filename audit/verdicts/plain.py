"""Claims about models without a bias, and about what they look at. `read` gives the rows of studies or measures."""

from collections.abc import Callable

import pandas as pd

from audit.claims import Judgement, Which, at, below, both, count, every, learned, right, unlearned

Read = Callable[..., pd.DataFrame]
THREE, FOUR = "successor addition n-by-1", "successor addition n-by-1 parity"


def fails(digits: int, less: float, of_products: float) -> Which:
    """Which runs are right on less than this; of N x 1 on less than that, as a tenth are products by zero."""
    return lambda own: (at(own, digits) < less) | ((own.task == "n-by-1") & (at(own, digits) < of_products))


def c01_complete_generalization(read: Read) -> Judgement:
    runs = count(read("baselines", "alibi with sines"), "vanilla rope rpe alibi-sines", "", right(60))
    finding = f"{runs} runs of Vanilla, RoPE, RPE and ALiBi with sines are right on 99% at 60 digits. "
    finding += "Without positions a model sees a bag of digits (C04)."
    return Judgement(finding, runs, verdict="definition")


def c02_vanilla_does_not_extrapolate(read: Read) -> Judgement:
    ends, label = both(learned, below(60, 15)), "{regime}, {task}"
    runs = count(read("baselines", "padded", "deep"), "vanilla vanilla-padded vanilla-deep", THREE, ends, label)
    runs += count(read("paper size"), "vanilla-paper-size", "successor", ends, f"{label}, the paper's size")
    batch = read("paper size and batch")
    runs += count(batch, "vanilla-paper-batch", THREE, ends, f"{label}, the paper's size and batch")
    return Judgement(f"Runs that interpolate and do not extrapolate: {runs:each}.", runs)


def c03_rope_drops_beyond_training(read: Read) -> Judgement:
    drops = both(lambda own: at(own, 8) <= 10, lambda own: at(own, 10) <= 1)
    runs = count(read("baselines"), "rope", "successor n-by-1", drops, "{task}", unlearned)
    runs += count(read("rope sizes"), "rope-64 rope-128 rope-512", "addition", both(learned, drops), "{task}")
    return Judgement(f"Runs that drop so: {runs:each}.", runs)


def c04_alibi_does_not_interpolate(read: Read) -> Judgement:
    sines = read("alibi with sines")
    runs = count(sines, "alibi-sines", FOUR, fails(6, 5, 10), "{task}")
    ten = count(sines, "alibi-sines", FOUR, fails(10, 5, 15), "{task}")
    bare = count(read("baselines"), "alibi", "", fails(6, 5, 10))
    finding = (
        f"Runs that fail at 6 digits: {runs:each}. Right on less than 5% at ten digits: {ten:each}. Without sines "
    )
    finding += "and with the identity for an encoder, as here, the model sees a bag of digits, and all runs fail at 6 "
    finding += f"digits by construction: {bare}. An encoder layer without positions would not change that."
    return Judgement(finding, runs)


def c05_rope_needs_size_512(read: Read) -> Judgement:
    sizes, label = read("rope sizes"), "size {width}"
    runs = count(sizes, "rope-64 rope-128", "addition", unlearned, label)
    runs += count(sizes, "rope-512", "addition", learned, label)
    done = count(sizes, "", "addition", learned, label)
    return Judgement(f"Runs that interpolate Addition after 4,800 steps: {done:each}.", runs)


def c06_attention_stops_at_training_length(read: Read) -> Judgement:
    inside = both(lambda own: own.self_inside >= 0.5, lambda own: own.cross_inside >= 0.5)
    stops = both(inside, lambda own: own.self_left <= 0.5, lambda own: own.cross_left <= 0.5)
    runs = count(read("needed cells"), "", "successor", stops, undecided=unlearned)
    finding = "Attention of the best head on the needed cell: "
    finding += f"self {runs['self_inside']:.2f} inside and {runs['self_beyond']:.2f} beyond; "
    finding += f"cross {runs['cross_inside']:.2f} inside and {runs['cross_beyond']:.2f} beyond."
    return Judgement(finding, runs)


def c07_heads_divide_the_operands(read: Read) -> Judgement:
    each_has_one = both(lambda own: own["first"] > 0, lambda own: own.second > 0)
    divide = both(each_has_one, lambda own: own["first"] + own.second > own.untrained)
    runs = count(read("operands"), "", "addition", divide, undecided=unlearned)
    finding = (
        f"Of {runs['heads']:d} heads {runs['first']:d} prefer the first operand and {runs['second']:d} the second; "
    )
    return Judgement(finding + f"of the untrained models' heads {runs['untrained']:d} prefer either.", runs)


def c08_attention_correlates_with_accuracy(read: Read) -> Judgement:
    digits = read("needed digits of successor", "needed digits of addition")
    runs = count(digits, "", "", lambda own: own.correlation >= 0.8, "{task}", unlearned)
    flat = count(digits, "", "", lambda own: own.spread < 0.5, "{task}")
    finding = f"Correlation over output digits: {runs['correlation']:.2f}. "
    return Judgement(finding + f"Runs whose accuracy is much the same at every digit: {flat:each}.", runs)


def c14_classified_parity_is_a_guess(read: Read) -> Judgement:
    runs = count(read("classified"), "", "", lambda own: (own.least >= 45) & (own.most <= 55))
    finding = f"Runs within 5 points of 50%: {runs}. Each gives a constant: at {runs['constant']:d} of "
    return Judgement(
        finding + f"{runs['lengths']:d} lengths it is as often right as one answer to every problem.", runs
    )


def c15_scratchpad_does_not_interpolate(read: Read) -> Judgement:
    rows, models = read("baselines", "padded parity"), "vanilla vanilla-padded"
    runs, done = count(rows, models, "parity", unlearned), count(rows, models, "parity", learned)
    return Judgement(
        f"{done} runs interpolate Parity; at 60 digits the best of them has {done['at_60']:max .1f}%.", runs
    )


def c31_rpe_extrapolates_part_of_the_way(read: Read) -> Judgement:
    rows, models = read("baselines", "variants", "methods", "places"), "rpe rpe-right rpe-widened rpe-by-place"
    runs = count(rows, models, "addition", right(10, 90), "{model}")
    finding = f"Our encoder-decoder with RPE is right on 90% of Addition at 10 digits: {runs:each}."
    return Judgement(finding, runs, verdict="not tested")


def c32_no_earlier_work_extrapolates(read: Read) -> Judgement:
    earlier = "baselines", "methods", "variants", "parity variants", "places", "alibi with sines"
    rows, ours, label = read(*earlier), "!abc !abs !window-cyclic", "{task}: {model}"
    rows = rows[(rows.task != "n-by-1") | ~rows.model.map(counts_places)]
    runs = count(rows, f"{ours} !nope* !alibi", "", below(60), label, unlearned)
    solved = count(rows, ours, FOUR, right(60), label)
    own = count(read("baselines"), "", FOUR, right(60), label)
    finding = f"Methods with four of five seeds at 99% at 60 digits: {solved:most}. "
    return Judgement(finding + f"Of the paper's five baselines as notebook 2 has them: {own:most}.", runs, "none")


def counts_places(model: str) -> bool:
    """Whether a model knows of a digit its place alone: of N x 1 the factor's is that of the units, so it must fail."""
    return model in ("abacus", "coupling") or model.endswith("-by-place")


def c35_rpe_maintains_to_twenty(read: Read) -> Judgement:
    finding = "The same paper's table 1 has 97.2% at 15 digits and 21.3% at 20."
    return Judgement(finding, verdict="differs")


def c38_scratchpad_is_worse_than_classification(read: Read) -> Judgement:
    less_than_half = both(lambda own: own.validation < 50, below(10, 50), below(20, 50), below(60, 50))
    runs = count(read("baselines", "padded parity"), "vanilla vanilla-padded", "parity", less_than_half)
    one = count(read("classifier"), "", "", every)
    finding = f"Runs: {runs}. With a scratchpad {runs['validation']:.0f}% are right in validation and at most "
    finding += f"{runs['at_10']:max .0f}% at 10 digits; as classification {one['validation']:.0f}% and "
    return Judgement(finding + f"{one['at_10']:.0f}%. No limit stops the scratchpad: ABC holds with it (C17).", runs)
