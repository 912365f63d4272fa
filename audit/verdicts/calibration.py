"""Claims about ABC, its lines, and methods like it. `read` gives the rows of studies or measures."""

from audit.claims import RUN, Judgement, Part, below, both, count, learned, right, unlearned
from audit.verdicts.plain import FOUR, THREE, Read

AT_60 = "Runs at 99% at 60 digits"
CALIBRATED = "abc-unpractised abc-padded"


def of_abc(read: Read) -> Part:
    """Runs of ABC that are right at 60 digits."""
    rows, models = read("abc", "padded", "deep"), f"{CALIBRATED} abc-deep"
    runs = count(rows, models, THREE, right(60), "{regime}, {task}", unlearned)
    label = "padded, {task}, the paper's size and batch"
    return runs + count(read("paper size and batch"), "abc-paper-batch", THREE, right(60), label, unlearned)


def c16_abc_reaches_sixty_digits(read: Read) -> Judgement:
    runs = of_abc(read)
    return Judgement(f"{AT_60}: {runs:each}.", runs, at_most="holds with changes")


def c17_abc_cannot_solve_parity(read: Read) -> Judgement:
    rows = read("abc", "padded parity")
    runs = count(rows, CALIBRATED, "parity", below(60), undecided=unlearned)
    solved = count(rows, CALIBRATED, "parity", right(60))
    finding = f"ABC of a plain model that interpolates Parity is right on 99% at 60 digits in {solved} runs."
    return Judgement(finding, runs)


def c18_three_directions_suffice(read: Read) -> Judgement:
    runs, without = of_abc(read), count(read("ablations"), "abc-antidiagonals", THREE, right(60), "{task}")
    finding = f"Runs at 99% with lines of these directions: {runs:each}. Without verticals: {without:each}."
    return Judgement(finding, runs, at_most="holds with changes")


def c19_the_papers_thresholds(read: Read) -> Judgement:
    """A run that must be wrong on its training task, whatever the training, is decided though it did not learn."""
    studies, label = ("algorithm 1", "padded", "deep", "paper size", "paper size and batch"), "{model}, {task}"
    must = read("lacking").reindex(columns=[*RUN, "wrong"])
    rows = read(*studies).merge(must, how="left", on=RUN)
    could = both(unlearned, lambda own: ~(own.wrong > 0))
    runs = count(rows, "algorithm-1-* !*-v1*", FOUR, right(60), label, could)
    kappa = count(read("deep"), "algorithm-1-*v1-*", THREE, right(20))
    stuck = rows.wrong[unlearned(rows) & rows.wrong.notna()]
    finding = (
        f"Runs of Algorithm 1 at 99% at 60 digits: {runs}, of which agree: {runs:met}. Of {len(stuck)} runs without "
    )
    finding += (
        f"positions that did not learn their task {(stuck > 0).sum()} could not: under their lines problems that "
    )
    finding += "need different digits look the same. "
    finding += f"With kappa 2, six layers and embedding size 64, at 20 digits: {kappa}."
    return Judgement(finding, runs, "some", "holds with changes")


def c20_one_bias_for_all_layers(read: Read) -> Judgement:
    models = "abc-last-layer abc-last-layer-deep abc-last-layer-paper-batch"
    rows, label = read("ablations", "deep", "paper size and batch"), "{model}, {task}"
    runs = count(rows, models, THREE, right(60), label, unlearned)
    own = count(read("deep", "paper size and batch"), "abc-deep abc-paper-batch", THREE, right(60), label)
    finding = f"{AT_60} with the last layer's lines in every layer: {runs:each}. With each layer's own: {own:each}."
    return Judgement(finding, runs)


def c21_retraining_is_short(read: Read) -> Judgement:
    on_either_side = both(lambda own: own.low <= 0.1, lambda own: own.high > 0.1)
    runs = count(read("costs"), "", "", lambda own: own.high <= 0.1, "{task}", on_either_side)
    finding = f"Runs within a tenth of the problems: {runs:each}. Share of the problems, at most: {runs['high']:.2f}. "
    return Judgement(finding + f"Median share of the seconds, with calibration: {runs['seconds']:median .2f}.", runs)


def c22_heads_follow_one_operand(read: Read) -> Judgement:
    rows, some = read("followed"), both(lambda own: own["first"] > 0, lambda own: own.second > 0)
    every_head = both(some, lambda own: own["first"] + own.second == own.heads)
    runs, least = count(rows, "", "addition", every_head, undecided=unlearned), count(rows, "", "addition", some)
    finding = f"In {runs} seeds all heads of the last layer follow one operand each. In {least} at least one follows "
    finding += "the first alone and one the second alone; in all seeds together "
    finding += f"{runs['first']:sum d} follow the first alone and {runs['second']:sum d} the second, "
    return Judgement(finding + f"of {runs['heads']:sum d}.", runs)


def c23_most_heads_follow_the_number(read: Read) -> Judgement:
    most = both(lambda own: own.number > own.heads / 2, lambda own: own.digit > 0)
    runs = count(read("followed"), "", "n-by-1", most, undecided=unlearned)
    finding = f"In {runs} seeds most heads of the last layer follow the number or the sign, and one the digit."
    return Judgement(finding, runs, at_most="in part")


def c24_verticals_are_like_sinks(read: Read) -> Judgement:
    runs = count(read("verticals"), "", "", lambda own: own.share > 0.5)
    return Judgement(f"Of the attention on vertical lines, symbols have {runs['share']:.0%}.", runs)


def c25_the_index_of_a_line(read: Read) -> Judgement:
    runs = count(read("indices"), "", "", lambda own: own.equal)
    finding = f"Both use j - i. On Successor the strongest offset from the needed digit is {runs['abc']:d} for ABC and "
    return Judgement(finding + f"{runs['rpe']:d} for RPE.", runs, "algebra", "holds with changes")


def c26_lora_changes_logits_too(read: Read) -> Judgement:
    runs = count(read("changes"), "", "", both(lambda own: own.abc < 1e-4, lambda own: own.lora > 1e-4))
    sixty = count(read("lora"), "lora", FOUR, right(60))
    finding = (
        f"Between inputs ABC's change of the logits differs by {runs['abc']:.1g} and LoRA's by {runs['lora']:.2g}; "
    )
    return Judgement(finding + f"LoRA is at 99% at 60 digits in {sixty} runs.", runs, "algebra")


def c36_most_open_elements_are_on_antidiagonals(read: Read) -> Judgement:
    runs = count(read("open elements"), "", "addition n-by-1", lambda own: own.share > 0.5, "{task}", unlearned)
    finding = f"Runs: {runs:each}. Heads of the last layer: {runs['heads']:sum d}; those with an anti-diagonal: "
    return Judgement(finding + f"{runs['with_one']:sum d}. Share of the open elements: {runs['share']:.0%}.", runs)


def c37_cross_attention_matters_most(read: Read) -> Judgement:
    """A run agrees if lines in cross-attention are enough, and those in self-attention are not for any training."""
    enough = both(right(60), lambda own: own.self_wrong > 0)
    tried = both(lambda own: learned(own) | (own.cross_wrong > 0), lambda own: own.self_wrong > 0)
    runs = count(read("one attention"), "", FOUR, enough, "{task}", lambda own: ~tried(own))
    finding = f"{AT_60} with ABC's lines in cross-attention alone, and all of self-attention open: {runs:each}. "
    finding += "With lines in one attention alone problems that need different digits can look the same, so that some "
    finding += "step must be wrong, whatever the training, on so many small ones (%) at least: "
    finding += f"in self-attention {runs['self_wrong']:.0f}; in cross-attention {runs['cross_wrong']:.0f}."
    return Judgement(finding, runs, at_most="holds with changes")


def c40_fully_automatically(read: Read) -> Judgement:
    whole = count(read("ablations"), "abc-whole", "", right(60), "{task}")
    finding = "No line is set by hand. Given here: where operands stand, the directions, and a share of two thirds. "
    finding += f"Without operands' places, lines over the whole matrix: at 99% at 60 digits {whole:each}."
    return Judgement(finding, verdict="in part")
