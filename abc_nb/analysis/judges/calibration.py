"""Judges of claims C16 to C26: attention bias calibration, and what it is related to."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from abc_nb.analysis.calibration_study import CalibrationStudy
from abc_nb.analysis.claims import Count, Judgement, Scores, Verdict, by_counts, total
from abc_nb.analysis.judges.scaffolding import PADDED, cells, counted, listed
from abc_nb.experiments.catalogue import ALGORITHM_1

THREE = ("successor", "addition", "n-by-1")
OURS = "new weights, no positions, lines read out in this project's way"
SEEDS = 5  # that a claim about attention needs


def abc_generalizes(scores: Scores) -> Verdict:
    return counted("C16", cells(scores, THREE, "abc", bar=99), "Runs at 99% at 60 digits", OURS, "holds with changes")


def abc_fails_on_parity(scores: Scores) -> Verdict:
    """It fails where Vanilla does not interpolate; here Vanilla does, so that ABC can be asked."""
    count = scores.at_bar("parity", "abc")
    verdict: Judgement = "not run" if not count.runs else "holds" if not count.met else "undecided"
    if count.most:
        verdict = "differs"
    finding = f"ABC of a plain model that interpolates Parity is right on 99% at 60 digits in {count} runs."
    return Verdict("C17", verdict, finding, str(count), OURS)


def three_directions_suffice(scores: Scores) -> Verdict:
    counts = cells(scores, THREE, "abc", bar=99)
    without = {task: scores.at_bar(task, "abc-antidiagonals") for task in THREE}
    found = counted("C18", counts, "Runs at 99% with lines of these directions", OURS, "holds with changes")
    more = f" Without verticals, with an index modulo 3: {listed(without)}."
    return Verdict(found.id, found.verdict, found.finding + more, found.runs, found.reading, found.regime)


def strict_thresholds_work(scores: Scores) -> Verdict:
    """Algorithm 1 in every reading; where no run is at the bar, two layers leave it undecided."""
    counts = {}
    for model in ALGORITHM_1:
        for regime, end in (("tight", ""), ("padded", PADDED)):
            count = total(scores.at_bar(task, model + end) for task in THREE)
            if count.runs:
                counts[f"{regime}, {model.removeprefix('algorithm-1-')}"] = count
    every = total(counts.values())
    verdict: Judgement = "not run" if not every.runs else "undecided" if not every.met else by_counts(counts)
    finding = f"Runs of Algorithm 1 at 99% at 60 digits, two layers: {listed(counts)}."
    return Verdict("C19", verdict, finding, str(every), "Algorithm 1 as written", "tight and padded")


def last_layer_is_enough(scores: Scores) -> Verdict:
    counts = {task: scores.at_bar(task, "abc-last-layer") for task in THREE}
    finding = f"Runs at 99% at 60 digits with the last layer's lines in both layers: {listed(counts)}."
    verdict: Judgement = "undecided" if total(counts.values()).runs else "not run"
    return Verdict("C20", verdict, finding, str(total(counts.values())), "index modulo 3, the plain model's weights")


def retraining_is_short(costs: pd.DataFrame) -> Verdict:
    """`costs`: columns task, seed and seconds, ABC's over the plain model's, both to 99% in validation."""
    short = costs.assign(short=costs.seconds <= 0.1).groupby("task", sort=False).short
    counts = {str(task): Count(int(own.sum()), len(own)) for task, own in short}
    medians = costs.groupby("task", sort=False).seconds.median()
    told = ", ".join(f"{task} 1/{1 / ratio:.0f}" for task, ratio in medians.items())
    finding = f"Runs within a tenth of the time: {listed(counts)}; medians {told}."
    return Verdict("C21", by_counts(counts), finding, str(total(counts.values())), "new weights, seconds to 99%")


def followed(study: CalibrationStudy) -> list[set[str]]:
    """What the cross-attention lines of each head of the last layer follow."""
    heads: list[set[str]] = [set() for _ in range(study.bias.heads)]
    for line in study.bias.lines:
        if line.attention == "cross" and line.layer == study.last:
            heads[line.head].add(line.span)
    return heads


def addition_divides_operands(studies: Sequence[CalibrationStudy]) -> Verdict:
    both = {"operand 1", "operand 2"}
    divided = [
        any(own & both == {"operand 1"} for own in followed(study))
        and any(own & both == {"operand 2"} for own in followed(study))
        for study in studies
    ]
    count = Count(sum(divided), len(divided))
    finding = f"Heads of the last layer divide the operands in {count} seeds."
    return Verdict("C22", by_counts({"addition": count}), finding, str(count), "lines read out in this project's way")


def n_by_1_heads(studies: Sequence[CalibrationStudy]) -> Verdict:
    held = []
    for study in studies:
        heads = followed(study)
        number = sum(bool(own & {"operand 1", "*"}) for own in heads)
        held.append(number > len(heads) / 2 and any("operand 2" in own for own in heads))
    count = Count(sum(held), len(held))
    finding = f"In {count} seeds most heads of the last layer follow the number or the sign, and one the digit."
    verdict = by_counts({"n-by-1": count}, "in part")
    return Verdict("C23", verdict, finding, str(count), "lines read out in this project's way")


def verticals_are_sinks(shares: Sequence[pd.DataFrame]) -> Verdict:
    """`shares`, one a seed: attention on vertical lines by token (columns token, share)."""
    parts = []
    for share in shares:
        on = share.groupby("token").share.sum()
        symbols = [token for token in on.index if not token.startswith("operand")]
        parts.append(float(on[symbols].sum() / on.sum()))
    count = Count(sum(part > 0.5 for part in parts), len(parts))
    told = ", ".join(f"{part:.0%}" for part in parts)
    verdict = by_counts({"seeds": count}) if len(parts) >= SEEDS else "undecided"
    finding = f"Of the attention on vertical lines, symbols have {told} (one number a seed)."
    return Verdict("C24", verdict, finding, str(count), "cross-attention, four tasks together")


def same_index(equal: bool, offsets: pd.DataFrame) -> Verdict:
    """`equal`: the index matrices agree; `offsets`: RPE's bias and ABC's share by offset (columns offset, RPE, ABC)."""
    ours, theirs = (int(offsets.sort_values(name)["offset"].iloc[-1]) for name in ("ABC", "RPE"))
    finding = f"Both use j - i; the strongest offset on Successor is {ours} for ABC and {theirs} for RPE."
    return Verdict("C25", "holds with changes" if equal else "differs", finding, reading="a cut instead of a clip")


def lora_depends_on_input(changes: pd.DataFrame, scores: Scores) -> Verdict:
    """Both are additive; ABC's change must be the same for every input, LoRA's must not."""
    spread = changes.groupby("method").spread.max()
    sixty = total(scores.at_bar(task, "lora") for task in (*THREE, "parity"))
    finding = f"Between inputs ABC's change of the logits differs by {spread['ABC']:.1g} and LoRA's by "
    finding += f"{spread['LoRA']:.2g}; LoRA is at 99% at 60 digits in {sixty} runs."
    return Verdict("C26", "holds" if spread["ABC"] < 1e-4 < spread["LoRA"] else "differs", finding)
