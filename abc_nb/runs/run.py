"""A run: what an experiment gave for one seed. A record of small tables, and a file of weights."""

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from abc_nb.bias.lines import Line, Lines
from abc_nb.certificates.certify import can_be_certified
from abc_nb.certificates.counterexamples import Shortest, shortest_wrong
from abc_nb.common.config import from_data
from abc_nb.common.errors import InputError
from abc_nb.model.eight_bits import unpacked
from abc_nb.model.transformer import Transformer
from abc_nb.specs.spec import Spec, train_command
from abc_nb.training.evaluation import tidy

TABLES: dict[str, dict[str, type]] = {  # what a run consists of, beside its facts: the columns of each table
    # A row a test: problems asked for, how many there are (fewer where no more exist), and how many are right.
    "evaluation": dict(length=int, asked=int, samples=int, correct=int),
    "history": dict(step=int, seconds=float, loss=float, accuracy=float),  # a row per validation
    "thresholds": dict(share=float, lines=int, skill=float, validation=float),  # that calibration tried
    # Of a calibrated bias.
    "lines": dict(attention=str, layer=int, head=int, direction=str, span=str, offset=int, value=float),
    "shortest": dict(problem=str, answer=str, right=str),  # wrong problem that a search found
}


def weights_in(path: Path, prefix: str = "") -> dict[str, Tensor]:
    """The weights in a file whose names there begin with `prefix`; InputError for a file that holds none."""
    try:
        with safe_open(path, "pt") as file:
            names = [name for name in file.keys() if name.startswith(prefix)]  # noqa: SIM118 (not a dict)
            return unpacked({name.removeprefix(prefix): file.get_tensor(name) for name in names})
    except SafetensorError as error:
        raise InputError(f"{path} holds no weights: remove it and train the run again") from error


def checksum(tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 of weights, the same in whatever file they are kept."""
    return hashlib.sha256(save({name: tensor.contiguous() for name, tensor in tensors.items()})).hexdigest()


@dataclass(frozen=True)
class Run:
    """The result of an experiment for one seed, made here or shipped."""

    spec: Spec
    seed: int
    manifest: Mapping[str, Any]  # its facts: steps, seconds, device, versions, where it comes from
    table: Callable[[str], pd.DataFrame] = field(compare=False)  # one of `TABLES` by its name
    weights: Callable[[], dict[str, Tensor]] | None = field(compare=False)  # None where they were not shipped
    folder: Path  # of its files; of a shipped run, the folder of all shipped results

    @property
    def key(self) -> str:
        return self.spec.key(self.seed)

    def evaluation(self) -> pd.DataFrame:
        """A row for each length that was tested, with its interval (see `tidy`)."""
        tests = self.table("evaluation")[["length", "samples", "correct"]]
        return tidy(self.spec.name, self.seed, self.spec.sampler.regime, tests.itertuples(index=False, name=None))

    @property
    def validation(self) -> float:
        """Accuracy (a fraction) at the last validation; 0 if there was none."""
        history = self.table("history")
        return float(history.accuracy.iloc[-1]) if len(history) else 0.0

    def problems(self, steps: int | None = None) -> int:
        """How many problems the first `steps` steps (by default all) went through; the same on any machine."""
        config, steps = self.spec.training, int(self.manifest["steps"]) if steps is None else steps
        history: list[Any] = self.table("history").to_dict("records")
        held = min(steps, config.schedule(history).fall)
        return held * config.held_batch + (steps - held) * config.batch

    def reached(self, accuracy: float) -> dict[str, float]:
        """The first validation that was so good: step, seconds, problems up to it; all infinite if none was."""
        history = self.table("history")
        there = history[history.accuracy >= accuracy]
        if there.empty:
            return dict.fromkeys(("step", "seconds", "problems"), math.inf)
        step, seconds = there[["step", "seconds"]].iloc[0]
        return {"step": step, "seconds": seconds, "problems": float(self.problems(int(step)))}

    @property
    def checksum(self) -> str | None:
        """SHA-256 of the weights; None where it is unknown."""
        return self.manifest.get("weights")

    def bias(self) -> Lines | None:
        """The calibrated bias, or None for a run that has none."""
        kept = self.manifest.get("bias")
        if kept is None:
            return None
        lines = [{"type": "Line"} | row for row in self.table("lines").to_dict("records")]
        bias: Lines = from_data({"type": "Lines", "floor": None} | dict(kept) | {"lines": lines}, (Lines, Line))
        return bias

    def shortest_wrong(self) -> Shortest | None:
        """The shortest wrong problem of a model that can have no certificate: as a search left it, or searched now.

        None where nothing is kept and the weights are not there either, or the model can have a certificate.
        """
        kept = [Shortest(*row) for row in self.table("shortest").itertuples(index=False)]
        if kept or self.weights is None:
            return kept[0] if kept else None
        model, sampler = self.model(), self.spec.sampler
        return None if can_be_certified(model, sampler) else shortest_wrong(model, sampler)

    def model(self) -> Transformer:
        """The trained model, ready to evaluate; InputError where only its numbers were shipped."""
        model = self.spec.build(self.seed, self.bias())
        model.load_state_dict(self.state())
        return model.eval()

    def state(self) -> dict[str, Tensor]:
        """The trained weights; InputError if they are not there, or not those of this run."""
        if self.weights is None:
            command = train_command(self.spec.name, self.seed, self.spec.profile)
            raise InputError(f"{self.spec.name} was shipped without its weights: run `{command}` first")
        tensors = self.weights()
        if checksum(tensors) != self.checksum:
            raise InputError(f"{self.folder} does not hold the weights of {self.key}: train it again")
        return tensors
