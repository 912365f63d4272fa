"""How a run of a language model is trained: on its mixture, and then on contexts until none is wrong."""

from pathlib import Path
from typing import Any

from abc_nb.bias.spans import SpanLines
from abc_nb.common.devices import device
from abc_nb.language.calibration import calibrated
from abc_nb.language.evaluation import generated
from abc_nb.language.training import practise_language, text_loss, training_on_text
from abc_nb.model.eight_bits import round_weights
from abc_nb.runs.store import Run
from abc_nb.runs.trained import Trained
from abc_nb.specs.language import LanguageSpec
from abc_nb.training.fit import Report


def train_language(spec: LanguageSpec, seed: int, parent: Run | None, folder: Path, report: Report | None) -> Trained:
    """The trained model of a spec, its weights rounded to 8 bits; checkpoints are kept in a folder."""
    bias: SpanLines | None = None
    if parent is not None and spec.calibration is not None:  # ABC, under lines of its parent
        bias = calibrated(parent.model(), spec.calibration, spec.mixture.longest, seed)
    model = spec.build(seed, bias).to(device())
    progress = training_on_text(model, spec.mixture, spec.training, seed).run(folder / "attempt-0.pt", report)
    steps, seconds, history = progress.step, progress.seconds, [*progress.history]
    facts: dict[str, Any] = {"trained": {"text": text_loss(model), "steps": steps, "seconds": round(seconds, 1)}}
    model = model.cpu()  # of which certificates speak
    round_weights(model)
    certificates = ()
    if spec.practice is not None:
        practised = practise_language(model, spec.mixture, spec.practice, seed, spec.rounds, report)
        rounds, certificates = practised.progress, practised.certificates
        history += [row | {"step": steps + row["step"]} for row in rounds.history]
        facts["practised"] = {"text": text_loss(model), "steps": rounds.step, "rounds": practised.rounds}
        facts["practised"]["seconds"] = round(rounds.seconds, 1)
        facts["wrong"] = practised.wrong  # contexts, a list a look: of each form
        steps, seconds = steps + rounds.step, seconds + rounds.seconds
    facts |= {"text": text_loss(model, 256), "generated": generated(model.eval(), spec.mixture.patterns, seed)}
    return Trained(model, steps, seconds, history, bias, facts=facts, certificates=certificates)
