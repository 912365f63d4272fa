"""Claims about ABS and its windows, and about sizes, bases and lists. `read` gives the rows of studies or measures."""

import pandas as pd

from audit.claims import Judgement, Part, below, both, count, learned, right, unlearned
from audit.verdicts.plain import Read

UNARY, BINARY = "successor parity", "addition n-by-1"
TASKS = f"{UNARY} {BINARY}"
LABEL = "{regime}, {task}"
BATCH = "padded, {task}, the paper's size and batch"
AT_60 = "Runs at 99% at 60 digits"


def c09_window_alone_on_unary_tasks(read: Read) -> Judgement:
    models = "window window-padded"
    runs = count(read("scaffolds", "padded", "padded parity"), models, UNARY, right(60), LABEL, unlearned)
    two = count(read("both sides", "padded"), "window-both window-both-padded", UNARY, right(60), "{regime}")
    return Judgement(f"{AT_60}: {runs:each}. To both sides: {two:each}.", runs)


def c10_window_alone_on_binary_tasks(read: Read) -> Judgement:
    models = "window window-padded"
    rows = read("scaffolds", "padded")
    runs = count(rows, models, BINARY, both(learned, below(20, 20)), LABEL, unlearned)
    return Judgement(f"Runs that interpolate and do not extrapolate: {runs:each}.", runs)


def c11_window_with_a_period(read: Read) -> Judgement:
    models, bar = "window-cyclic window-cyclic-padded", right(60, 99.9)
    runs = count(read("scaffolds", "padded", "padded parity"), models, TASKS, bar, LABEL, unlearned)
    runs += count(read("paper size and batch"), "window-cyclic-paper-batch", TASKS, bar, BATCH, unlearned)
    models = "window-cyclic-both window-cyclic-both-padded"
    two = count(read("both sides", "padded"), models, TASKS, bar, "{regime}")
    return Judgement(f"Runs at 99.9% at 60 digits: {runs:each}. To both sides: {two:each}.", runs)


def without_positions(rows: pd.DataFrame, models: str, bar_of_unary: float, labels: tuple[str, str]) -> Part:
    """Runs of a window without positions: at a bar on the unary tasks, and at 98% on the binary ones."""
    runs = count(rows, models, UNARY, right(60, bar_of_unary), labels[0], unlearned)
    return runs + count(rows, models, BINARY, right(60, 98), labels[1], unlearned)


def c12_window_without_positions(read: Read) -> Judgement:
    rows = read("scaffolds", "padded", "padded parity")
    runs = without_positions(rows, "abs-unpractised", 99.9, (LABEL, LABEL))
    three = without_positions(rows, "nope-window nope-window-padded", 99.9, (LABEL, LABEL))
    three += without_positions(read("paper size and batch"), "nope-window-paper-batch", 99.9, (BATCH, BATCH))
    models, rows = "nope-window-both nope-window-both-padded", read("both sides", "padded")
    two = without_positions(rows, models, 99.9, ("{regime}", "{regime}"))
    finding = f"Runs at 99.9% (unary) or 98% (binary) at 60 digits: {runs:each}. With the column to the right open, "
    finding += (
        f"too, under which no training can do on two numbers: {three:each}; with those to both sides: {two:each}."
    )
    return Judgement(finding, runs)


def c13_other_periods(read: Read) -> Judgement:
    models = "window-cyclic-both window-both-t[4-8]"
    runs = count(read("both sides", "periods"), models, BINARY, right(60), "T = {T}", unlearned)
    narrow = count(read("periods"), "window-both-t2", BINARY, right(60), "T = {T}")
    return Judgement(f"{AT_60} with w = 1, Addition and N x 1: {runs:each}; with T = 2 {narrow}.", runs)


def c27_lists_of_one_operator(read: Read) -> Judgement:
    runs = count(read("lists"), "window-cyclic-both", "", right(60), LABEL, unlearned)
    return Judgement(f"Runs at 99% at 60 items: {runs:each}.", runs)


def c28_what_is_not_learned(read: Read) -> Judgement:
    limits, factors = read("limits"), read("factors", "wide factors", "factors in base 4")
    models, label = "by-head by-head-wide abc-anew abc-from-4", "{task}, {model}"
    runs = count(limits, "", "", below(6), "{task}")
    runs += count(factors, models, "", below(6), label)
    done, by_factors = count(limits, "", "", right(6), "{task}"), count(factors, models, "", right(6), label)
    finding = f"Runs at 99% at 6 digits: {done:each}; factors of two or three digits, in base 10 or 4: "
    return Judgement(f"{finding}{by_factors:met}.", runs)


def c29_other_bases(read: Read) -> Judgement:
    models = "window-cyclic-both abc-unpractised"
    rows = read("bases", "bases to one side")
    runs = count(rows, models, "", right(60), "{model}, base {base}", unlearned, lambda own: own.base > 2)
    warm = count(read("bases"), "abc-mod3-warm", "", right(60), "base {base}", among=lambda own: own.base > 2)
    finding = f"{AT_60}: {runs:each}. ABC with an index modulo 3 and the plain model's weights: {warm:each}."
    return Judgement(finding, runs)


def c30_other_sizes(read: Read) -> Judgement:
    runs = count(read("sizes"), "", "", right(60), "{model}", unlearned)
    return Judgement(f"{AT_60} (the first is the usual size): {runs:each}.", runs)


def c33_without_positions(read: Read) -> Judgement:
    rows, models = read("abc", "padded", "deep"), "abc-unpractised abc-padded abc-deep"
    runs = count(rows, models, TASKS, right(60), "ABC", unlearned)
    batch = read("paper size and batch")
    runs += count(batch, "abc-paper-batch", TASKS, right(60), "ABC, the paper's size and batch", unlearned)
    runs += without_positions(read("scaffolds"), "abs-unpractised", 99, ("ABS, unary tasks", "ABS, binary tasks"))
    finding = f"Runs at the bar at 60 digits without positions: {runs:each}."
    return Judgement(finding, runs, at_most="holds with changes")


def c34_other_windows(read: Read) -> Judgement:
    runs = count(read("windows"), "", "", right(60), "{model}, {task}", unlearned)
    pair = count(read("scaffolds"), "abs-unpractised", TASKS, right(60), "{task}")
    return Judgement(f"{AT_60}: {runs:each}. With no column beside the place's, and no positions: {pair:each}.", runs)


def c39_any_positions_on_unary_tasks(read: Read) -> Judgement:
    models = "window window-cyclic nope-window window-padded window-cyclic-padded nope-window-padded"
    rows = read("scaffolds", "padded", "padded parity")
    runs = count(rows, models, UNARY, right(60), "{model}, {task}", unlearned)
    finding = f"{AT_60}: {runs:each}. Learned, shuffled and random positions were not tried."
    return Judgement(finding, runs, at_most="in part")


def c41_sizes_that_converge(read: Read) -> Judgement:
    runs = count(read("sizes"), "", "", right(60), "{model}", among=learned)
    return Judgement(f"{AT_60}, of those that interpolate: {runs:each}.", runs)
