"""A run: what an experiment gave for one seed, read from wherever it is kept."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pandas as pd
from safetensors import SafetensorError
from safetensors.torch import load_file

from abc_nb.bias.lines import Line, Lines
from abc_nb.certificates.certify import can_be_certified
from abc_nb.certificates.shortest import Shortest, shortest_wrong
from abc_nb.common.config import from_data
from abc_nb.common.errors import InputError
from abc_nb.experiments.experiment import Experiment, train_command
from abc_nb.model.transformer import Transformer
from abc_nb.training.evaluation import tidy
from abc_nb.training.progress import schedule


class Outcome(NamedTuple):
    """One test: how many problems of a length were asked for, how many there are, and how many are right."""

    length: int
    asked: int
    samples: int  # fewer than were asked for where no more exist
    correct: int


class Source(Protocol):
    """Where the parts of a run are kept: in a folder of its own, or in the pack of shipped runs."""

    @property
    def folder(self) -> Path:
        """The folder of the run, or of the pack."""

    @property
    def checksum(self) -> str | None:
        """SHA-256 of the file of weights; None where it is unknown."""

    @property
    def has_weights(self) -> bool:
        """Whether the weights are kept too."""

    def weights_path(self) -> Path:
        """The file of weights."""

    def tests(self) -> list[Outcome]:
        """Every test that was made."""

    def history(self) -> pd.DataFrame:
        """A row a validation: step, seconds, loss, accuracy."""

    def thresholds(self) -> pd.DataFrame | None:
        """The thresholds that calibration tried, or None."""

    def bias(self, heads: int) -> Lines | None:
        """The calibrated bias, or None; InputError if what is kept is no bias of this number of heads."""

    def shortest_wrong(self) -> Shortest | None:
        """What a search for the shortest wrong problem found, or None if no search is kept."""


@dataclass(frozen=True)
class Run:
    """The result of an experiment for one seed, on disk and checked."""

    experiment: Experiment
    seed: int
    source: Source
    manifest: dict[str, Any]

    @property
    def key(self) -> str:
        return self.experiment.key(self.seed)

    @property
    def folder(self) -> Path:
        """Its folder; of a shipped run, the folder of all shipped results."""
        return self.source.folder

    def evaluation(self) -> pd.DataFrame:
        """A row for each length that was tested, those that the experiment asks for first, with intervals.

        While a length was not tested on as many problems as are asked for, the largest test of it stands there.
        """
        wanted = dict(self.experiment.tests)
        least_wanted_first = sorted(
            self.source.tests(), key=lambda row: (row.asked == wanted.get(row.length), row.asked)
        )
        best = {row.length: row for row in least_wanted_first}
        order = [*(length for length in wanted if length in best), *sorted(best.keys() - wanted.keys())]
        shown = [best[length] for length in order]
        counts = [(row.length, row.samples, row.correct) for row in shown]
        return tidy(self.experiment.name, self.seed, self.experiment.sampler.regime, counts)

    def untested(self) -> tuple[tuple[int, int], ...]:
        """The tests (length, samples) that the experiment asks for and that were not made."""
        made = {(row.length, row.asked) for row in self.source.tests()}
        return tuple(test for test in self.experiment.tests if test not in made)

    def history(self) -> pd.DataFrame:
        """A row a validation: step, seconds, loss, accuracy."""
        return self.source.history()

    @property
    def validation(self) -> float:
        """Accuracy (a fraction) at the last validation; 0 if there was none."""
        history = self.history()
        return float(history.accuracy.iloc[-1]) if len(history) else 0.0

    def problems(self, steps: int | None = None) -> int:
        """How many problems the first `steps` steps (by default all) went through; the same on any machine."""
        config, steps = self.experiment.training, int(self.manifest["steps"]) if steps is None else steps
        history: list[Any] = self.history().to_dict("records")
        held = min(steps, schedule(history, config).fall)
        return held * config.held_batch + (steps - held) * config.batch

    def reached(self, accuracy: float) -> dict[str, float]:
        """The first validation that was so good: step, seconds, problems up to it; all infinite if none was."""
        history = self.history()
        there = history[history.accuracy >= accuracy]
        if there.empty:
            return dict.fromkeys(("step", "seconds", "problems"), math.inf)
        step, seconds = there[["step", "seconds"]].iloc[0]
        return {"step": step, "seconds": seconds, "problems": float(self.problems(int(step)))}

    @property
    def has_weights(self) -> bool:
        return self.source.has_weights

    @property
    def checksum(self) -> str | None:
        """SHA-256 of the file of weights; None where it is unknown."""
        return self.source.checksum

    def bias(self) -> Lines | None:
        """The calibrated bias, or None for a run that has none."""
        return self.source.bias(self.experiment.model.heads)

    def thresholds(self) -> pd.DataFrame | None:
        """The thresholds that calibration tried: share, lines, skill under them; None for a run without calibration.

        A column `validation` holds the accuracy after training under the lines, where more than one was trained.
        """
        return self.source.thresholds()

    def shortest_wrong(self) -> Shortest | None:
        """The shortest wrong problem of a model that can have no certificate: as a search left it, or searched now.

        None where nothing is kept and the weights are not there either, or the model can have a certificate.
        """
        kept = self.source.shortest_wrong()
        if kept is not None or not self.has_weights:
            return kept
        model, sampler = self.model(), self.experiment.sampler
        return None if can_be_certified(model, sampler) else shortest_wrong(model, sampler)

    def model(self) -> Transformer:
        """The trained model, ready to evaluate; InputError where only its numbers were shipped."""
        if not self.has_weights:
            name, profile = self.experiment.name, self.experiment.profile
            command = train_command(name, self.seed, profile)
            raise InputError(f"{name} was shipped without its weights: run `{command}` first")
        model = self.experiment.build(self.seed, self.bias())
        self.restore(model)
        return model.eval()

    def restore(self, model: Transformer) -> None:
        """Give a model the trained weights; InputError if they are not those of such a model."""
        wanted = {name: (tensor.shape, tensor.dtype) for name, tensor in model.state_dict().items()}
        path = self.source.weights_path()
        try:
            tensors = load_file(path)
        except SafetensorError:
            tensors = {}
        if {name: (tensor.shape, tensor.dtype) for name, tensor in tensors.items()} != wanted:
            raise InputError(f"{path} does not hold the weights of this model")
        model.load_state_dict(tensors)


def as_lines(data: Any, heads: int, path: Path) -> Lines:
    """A calibrated bias with this number of heads from plain data; InputError for anything else in `path`."""
    try:
        bias = from_data(data, (Lines, Line))
    except (InputError, RecursionError):  # nested too deeply
        bias = None
    if not isinstance(bias, Lines) or bias.heads != heads:
        raise InputError(f"{path} does not hold a calibrated bias of {heads} heads")
    return bias
