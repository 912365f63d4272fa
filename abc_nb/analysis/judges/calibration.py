"""Judges of claims C16 to C26: attention bias calibration, and what it is related to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pandas as pd

from abc_nb.analysis.calibration_study import CalibrationStudy
from abc_nb.analysis.claims import Count, Judgement, Scores, Verdict, by_counts, seeds_of, total
from abc_nb.analysis.judges.scaffolding import REGIMES, SEEDS, between, cells, counted, judged, listed
from abc_nb.experiments import ABLATED, ARITHMETIC
from abc_nb.experiments.catalogue import ALGORITHM_1, KAPPA_V1, MODELS, SIX_LAYERS

OURS = "new weights, no positions, lines read out in this project's way"
SIX = "6 decoder layers, embedding size 64 or 128"


def abc_generalizes(scores: Scores) -> Verdict:
    return counted("C16", cells(scores, ABLATED, "abc", bar=99), "Runs at 99% at 60 digits", OURS, "holds with changes")


def abc_fails_on_parity(scores: Scores) -> Verdict:
    """It fails where Vanilla does not interpolate; here Vanilla does, so that ABC can be asked."""
    count = scores.at_bar("parity", "abc")
    verdict: Judgement = "not run" if not count.runs else "holds" if not count.met else "undecided"
    if count.most:
        verdict = "differs"
    finding = f"ABC of a plain model that interpolates Parity is right on 99% at 60 digits in {count} runs."
    return judged("C17", {"parity": count.others}, finding, OURS, verdict)


def three_directions_suffice(scores: Scores) -> Verdict:
    counts = cells(scores, ABLATED, "abc", bar=99)
    without = {task: scores.at_bar(task, "abc-antidiagonals") for task in ABLATED}
    found = counted("C18", counts, "Runs at 99% with lines of these directions", OURS, "holds with changes")
    more = f" Without verticals, with an index modulo 3: {listed(without)}."
    return replace(found, finding=found.finding + more)


def strict_thresholds_work(scores: Scores) -> Verdict:
    """C19: Algorithm 1 with the text's kappa, in every reading. Six layers decide; two layers are reported."""
    chosen = [model for model in ALGORITHM_1 if kappa_of(model) != KAPPA_V1]
    deep = [name for name in (model + end for model in chosen for end in SIX_LAYERS) if name in MODELS]
    six = {name: total(scores.at_bar(task, name) for task in ABLATED) for name in deep}
    six = {name: count for name, count in six.items() if count.runs}
    two = total(scores.at_bar(task, model + end) for model in chosen for task in ARITHMETIC for end in REGIMES.values())
    working = {MODELS[name].title: count for name, count in six.items() if count.met}
    rest = total(count for count in six.values() if not count.met)
    listing = listed(working | ({"every other reading together": rest} if rest.runs else {})) or "none was trained"
    finding = f"Runs of Algorithm 1 at 99% at 60 digits, six layers: {listing}; two layers, every reading: {two}."
    finding += with_kappa_2(scores)
    verdict: Judgement = "not run" if not (six or two.runs) else "undecided"
    decided = [count for count in six.values() if count.runs >= SEEDS]
    if any(count.most for count in decided):
        verdict = "holds with changes"
    elif decided:
        verdict = "in part" if total(six.values()).met else "differs"
    seeds = seeds_of(scores.at_bar(task, name) for name in six for task in ABLATED)
    agreeing = total(six.values()).agreeing
    return Verdict("C19", verdict, finding, agreeing, "every reading with kappa 4.5 and 0.87", "padded", seeds, SIX)


def with_kappa_2(scores: Scores) -> str:
    """What the kappa of the first version does in six layers, at the length that their problems are padded to."""
    models = [f"{model}-deep" for model in ALGORITHM_1 if kappa_of(model) == KAPPA_V1]
    found = total(scores.at_bar(task, model, length=20) for model in models for task in ABLATED)
    return f" With kappa 2, six layers and embedding size 64, at 20 digits: {found}." if found.runs else ""


def kappa_of(model: str) -> tuple[float, float] | None:
    calibration = MODELS[model].calibration
    return None if calibration is None else calibration.kappa


def last_layer_is_enough(scores: Scores) -> Verdict:
    """C20: six layers decide; two layers are reported."""
    two = {task: scores.at_bar(task, "abc-last-layer") for task in ABLATED}
    deep, own = (
        {task: count for task in ABLATED if (count := scores.at_bar(task, model)).runs}
        for model in ("abc-last-layer-deep", "abc-deep")
    )
    enough = deep and min(count.runs for count in deep.values()) >= SEEDS
    verdict: Judgement = "undecided" if total(two.values()).runs or deep else "not run"
    finding = f"Runs at 99% at 60 digits with the last layer's lines in every layer, two layers: {listed(two)}"
    finding += f"; six layers: {listed(deep) or 'none was trained'}."
    finding += f" With each layer's own, six layers: {listed(own)}." if own else ""
    reading = "our lines; six layers: no positions, new weights; two: index modulo 3, the plain model's weights"
    verdict = by_counts(deep) if enough else verdict
    found = judged("C20", deep, finding, reading, verdict, "padded to twenty digits")
    return replace(found, size="6 decoder layers, embedding size 64")


def retraining_is_short(costs: pd.DataFrame) -> Verdict:
    """`costs`: columns task, seed and seconds, ABC's over the plain model's, both to 99% in validation."""
    short = costs.assign(short=costs.seconds <= 0.1).groupby("task", sort=False).short
    counts = {str(task): Count(int(own.sum()), len(own)) for task, own in short}
    medians = costs.groupby("task", sort=False).seconds.median()
    listing = "; ".join(f"{task} {ratio:.2f}" for task, ratio in medians.items())
    finding = f"Runs within a tenth of the time: {listed(counts)}. Median part of the time: {listing}."
    return judged("C21", counts, finding, "new weights, seconds to 99%", by_counts(counts))


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
    counts = {"addition": count}
    return judged("C22", counts, finding, "lines read out in this project's way", by_counts(counts))


def n_by_1_heads(studies: Sequence[CalibrationStudy]) -> Verdict:
    held = []
    for study in studies:
        heads = followed(study)
        number = sum(bool(own & {"operand 1", "*"}) for own in heads)
        held.append(number > len(heads) / 2 and any("operand 2" in own for own in heads))
    count = Count(sum(held), len(held))
    finding = f"In {count} seeds most heads of the last layer follow the number or the sign, and one the digit."
    counts = {"n-by-1": count}
    return judged("C23", counts, finding, "lines read out in this project's way", by_counts(counts, "in part"))


def verticals_are_sinks(shares: Sequence[pd.DataFrame]) -> Verdict:
    """`shares`, one a seed: attention on vertical lines by token (columns token, share)."""
    parts = []
    for share in shares:
        on = share.groupby("token").share.sum()
        symbols = [token for token in on.index if not token.startswith("operand")]
        parts.append(float(on[symbols].sum() / on.sum()))
    count = Count(sum(part > 0.5 for part in parts), len(parts))
    counts = {"seeds": count}
    verdict = by_counts(counts) if len(parts) >= SEEDS else "undecided"
    finding = f"Of the attention on vertical lines, symbols have {between(parts, '.0%')}."
    return judged("C24", counts, finding, "cross-attention, the tasks together", verdict)


def same_index(equal: bool, offsets: pd.DataFrame) -> Verdict:
    """`equal`: the index matrices agree; `offsets`: RPE's bias and ABC's share by offset (columns offset, RPE, ABC)."""
    ours, theirs = (int(offsets.sort_values(name)["offset"].iloc[-1]) for name in ("ABC", "RPE"))
    finding = f"Both use j - i. On Successor the strongest offset from the needed digit is {ours} for ABC and {theirs} "
    finding += "for RPE."
    verdict: Judgement = "holds with changes" if equal else "differs"
    return Verdict("C25", verdict, finding, reading="a cut instead of a clip", seeds="1")


def lora_depends_on_input(changes: pd.DataFrame, scores: Scores) -> Verdict:
    """Both are additive; ABC's change must be the same for every input, LoRA's must not."""
    spread = changes.groupby("method").spread.max()
    sixty = total(scores.at_bar(task, "lora") for task in ARITHMETIC)
    finding = f"Between inputs ABC's change of the logits differs by {spread['ABC']:.1g} and LoRA's by "
    finding += f"{spread['LoRA']:.2g}; LoRA is at 99% at 60 digits in {sixty} runs."
    verdict: Judgement = "holds" if spread["ABC"] < 1e-4 < spread["LoRA"] else "differs"
    return Verdict("C26", verdict, finding, reading="LoRA of rank 4 on queries and keys", seeds="1")
