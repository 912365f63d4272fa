"""How a run is trained: from nothing, under lines read out of its parent, or on from its parent."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd

from abc_nb.bias import Bias
from abc_nb.bias.lines import Lines
from abc_nb.bias.text import SpanLines
from abc_nb.calibration.calibrate import Calibration, Determining, Inherited
from abc_nb.calibration.calibrate_model import SHARES, Calibrated, average_attention, calibrate_model, sparsest
from abc_nb.certificates.certify import Certificate, contexts_of
from abc_nb.certificates.fingerprints import determined
from abc_nb.certificates.practice import practise
from abc_nb.common.devices import device
from abc_nb.common.errors import InputError
from abc_nb.language.calibration import calibrate_text
from abc_nb.language.training import practise_language, text_loss, training_on_text
from abc_nb.model import lora
from abc_nb.model.eight_bits import round_weights
from abc_nb.model.transformer import Transformer
from abc_nb.problems.sampling import Batch
from abc_nb.runs.store import Run
from abc_nb.specs.language import LanguageSpec
from abc_nb.specs.spec import Spec
from abc_nb.training.fit import Report
from abc_nb.training.problems import train
from abc_nb.training.recipe import Validation


@dataclass(frozen=True)
class Trained:
    """A model whose training has ended, of whatever kind, and what its run keeps of it."""

    model: Transformer
    steps: int = 0
    seconds: float = 0.0  # of training, over all attempts
    history: Sequence[Validation] = ()
    bias: Bias | None = None  # read out of a parent's attention
    thresholds: pd.DataFrame = field(default_factory=pd.DataFrame)  # that calibration tried
    facts: Mapping[str, Any] = field(default_factory=dict)
    certificates: Sequence[Certificate] = ()


def train_run(spec: Any, seed: int, parent: Run | None, folder: Path, report: Report | None) -> Trained:
    """The trained model of a `Spec` or a `LanguageSpec`; checkpoints are kept in a folder."""
    if isinstance(spec, LanguageSpec):
        return language_model(spec, seed, parent, folder, report)
    if spec.practice and parent is not None:
        return practised_run(spec, seed, parent, report)
    return until_accepted(spec, seed, parent, folder, report)


# ---- arithmetic


def until_accepted(spec: Spec, seed: int, parent: Run | None, folder: Path, report: Report | None) -> Trained:
    """Train; while validation is below what is accepted, read more lines and train anew; the best attempt."""
    best, highest, seconds = None, -1.0, 0.0
    validations: dict[int, float] = {}  # by the row of the threshold whose lines were trained
    for number, (bias, thresholds, calibration_seconds) in enumerate(readings(spec, seed, parent)):
        facts = {"calibration_seconds": round(calibration_seconds, 3)} if parent is not None else {}
        model = start(spec, seed, bias, parent)
        progress = train(model, spec.sampler, spec.training, seed, folder / f"attempt-{number}.pt", report)
        lora.merge(model)
        seconds += progress.seconds
        tried = thresholds.assign(validation=pd.Series(validations, dtype=float))
        validation = progress.history[-1]["accuracy"] if progress.history else 0.0
        if validation > highest:
            best, highest = Trained(model, progress.step, 0.0, progress.history, bias, tried), validation
        validations[len(thresholds) - 1] = validation
        if validation >= spec.accept:
            break
    assert best is not None
    return replace(best, seconds=seconds, facts=facts)


def readings(spec: Spec, seed: int, parent: Run | None) -> Iterator[tuple[Lines | None, pd.DataFrame, float]]:
    """The bias of each attempt, all thresholds so far, and the seconds of all calibrations so far.

    The first bias has the lines that calibration chose. Where it chose the threshold itself, those of each lower
    threshold follow, as far as they differ from the ones before.
    """
    settings = spec.calibration
    if parent is None or settings is None:
        yield None, pd.DataFrame(), 0.0
        return
    if isinstance(settings, Inherited):
        yield parent.bias().alone(settings.attention), pd.DataFrame(), 0.0
        return
    model, batch = parent.model().to(device()), spec.calibration_batch(seed)
    lines, tried, seconds, queue = None, pd.DataFrame(), 0.0, [settings]
    for calibration in queue:  # grows once
        begin = time.perf_counter()
        calibrated = calibrate_lines(spec, model, batch, calibration)
        tried, seconds = pd.concat([tried, calibrated.tried], ignore_index=True), seconds + time.perf_counter() - begin
        if calibration.share is None and calibration.kappa is None:
            lowest = calibrated.tried.share.iloc[-1]
            queue += [replace(settings, share=share) for share in SHARES if share < lowest]
        if {*calibrated.bias.lines} != lines:
            yield calibrated.bias, tried, seconds
            lines = {*calibrated.bias.lines}


def calibrate_lines(spec: Spec, model: Transformer, batch: Batch, settings: Calibration) -> Calibrated:
    """The lines that the settings ask for; of a bias that has to determine the answer all contexts are asked."""
    if not isinstance(settings, Determining):
        return calibrate_model(model, batch, settings)

    def determines(bias: Lines) -> float:
        return float(determined(contexts_of(spec.config_under(bias), spec.sampler)))

    averages = average_attention(model, batch, settings.source)
    return sparsest(averages, batch.layout, settings, determines, (1.0, 0.7, *SHARES))


def start(spec: Spec, seed: int, bias: Lines | None, parent: Run | None) -> Transformer:
    """The model to train: a new one, or one with the parent's weights."""
    model = spec.build(seed, bias)
    if spec.start == "parent" and parent is not None:
        model.load_state_dict(parent.state())
    if spec.rank:
        lora.adapt(model, spec.rank, seed)
    return model.to(device())


def practised_run(spec: Spec, seed: int, parent: Run, report: Report | None) -> Trained:
    """The parent's model, trained on until its certificate holds; as it is if it can have none."""
    bias = parent.bias()
    model = start(spec, seed, bias, parent)
    recipe = replace(spec.training, steps=max(1, spec.training.steps // spec.practice))
    facts: dict[str, Any] = {"calibration_seconds": 0.0}
    try:
        practised = practise(model, spec.sampler, recipe, seed, spec.practice, report)
    except InputError as error:
        return Trained(model, bias=bias, facts=facts | {"practice": {"rounds": 0, "refused": str(error)}})
    progress, facts["practice"] = practised.progress, practised.facts
    steps, seconds, history = progress.step, progress.seconds, progress.history
    return Trained(model, steps, seconds, history, bias, facts=facts, certificates=practised.certificates)


# ---- language models


def language_model(spec: LanguageSpec, seed: int, parent: Run | None, folder: Path, report: Report | None) -> Trained:
    """Train on a mixture, round the weights to 8 bits, and go on with contexts until none is wrong."""
    bias: SpanLines | None = None
    if parent is not None and spec.calibration is not None:  # ABC, under lines of its parent
        bias = calibrate_text(parent.model(), spec.calibration, spec.mixture.longest, seed)
    model = spec.build(seed, bias).to(device())
    progress = training_on_text(model, spec.mixture, spec.training, seed).run(folder / "attempt-0.pt", report)
    steps, seconds, history = progress.step, progress.seconds, [*progress.history]
    facts: dict[str, Any] = {"trained": {"text": text_loss(model), "steps": steps, "seconds": round(seconds, 1)}}
    model = model.cpu()  # of which certificates speak
    round_weights(model)
    certificates = ()
    if spec.practice is not None:
        practised = practise_language(model, spec.mixture, spec.practice, seed, spec.rounds, report)
        progress, certificates = practised.progress, practised.certificates
        history += [row | {"step": steps + row["step"]} for row in progress.history]
        facts["practised"] = {"text": text_loss(model), "steps": progress.step, "rounds": practised.rounds}
        facts["practised"]["seconds"] = round(progress.seconds, 1)
        facts["wrong"] = practised.wrong  # contexts of all forms, a number for each time they were tried
        steps, seconds = steps + progress.step, seconds + progress.seconds
    facts["text"] = text_loss(model, 256)
    return Trained(model, steps, seconds, history, bias, facts=facts, certificates=certificates)
