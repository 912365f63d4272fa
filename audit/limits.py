"""Three limits: of plain attention (Hahn 2020), of a finite bias off the lines, and of what a deep decoder sees.

The first two, measured of shipped weights, are in `results/flipped_bits.csv` and `results/floors.csv`.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pandas as pd
import torch

from abc_nb.analysis.results import identity
from abc_nb.bias.lines import Lines
from abc_nb.certificates.certify import contexts_of
from abc_nb.common.devices import one_thread
from abc_nb.common.files import write_text
from abc_nb.common.paths import SHIPPED
from abc_nb.model.transformer import ModelConfig, Transformer
from abc_nb.problems.sampling import Sampler
from abc_nb.runs.store import Run
from abc_nb.specs.experiment import Name
from abc_nb.specs.names import ARITHMETIC
from abc_nb.specs.spec import SEEDS, spec
from abc_nb.training.evaluation import TEST_SEED, evaluating, exact_match
from audit.results import Results
from audit.statistics import BAR
from audit.studies import ABLATED

LENGTHS = (5, 10, 20, 40, 80, 160, 320)  # bits
FLIPS = 16  # bits of a problem that are flipped, evenly spread
FLOORS = (-5.0, -20.0, -80.0, -320.0, -1280.0, None)
PROBLEMS = 50  # of sixty digits, for every model and floor
LAYERS = range(1, 7)
MIDDLE = 40, 20  # a width and a step far from both of its ends


def parity_runs(results: Results) -> list[Run]:
    return [run for run in results.every_seed("parity-vanilla") if run.weights] + results.runs(["parity-abc"])


def changes(run: Run) -> Iterator[dict[str, object]]:
    """How far a flipped bit of Parity moves the lead of 1 over 0 at its own step: a row a length."""
    model, sampler = run.model(), run.spec.sampler
    for length in LENGTHS:
        yield identity(run) | {"length": length, "change": change_per_bit(model, sampler, length)}


def change_per_bit(model: Transformer, sampler: Sampler, length: int) -> float:
    """The mean over flipped bits of one problem; the answer so far stays that of the problem as it was."""
    batch = sampler.test_batch(length, 1, TEST_SEED)
    zero, one = map(sampler.task.token, "01")
    steps = torch.linspace(0, length - 1, FLIPS).round().long().unique()
    rows, columns = torch.arange(len(steps)), torch.from_numpy(batch.layout.operands[0].columns)[steps]
    source = batch.source.repeat(len(steps) + 1, 1)  # the last row is not flipped
    source[rows, columns] = zero + one - source[rows, columns]
    with evaluating(model):
        targets = batch.target[:, :-1].expand(len(source), -1)
        parts = zip(source.split(4), targets.split(4), strict=True)
        logits = torch.cat([model(*part, batch.layout) for part in parts])
    lead = logits[..., one] - logits[..., zero]
    return (lead[rows, steps] - lead[-1, steps]).abs().mean().item()


def calibrated_runs(results: Results) -> list[Run]:
    return results.runs([Name(task, "abc") for task in ARITHMETIC])


def floors(run: Run) -> Iterator[dict[str, object]]:
    """The accuracy of ABC, trained at minus infinity, at sixty digits with another bias off its lines: a row a bias."""
    model, batch = run.model(), run.spec.sampler.test_batch(60, PROBLEMS, TEST_SEED)
    for floor in FLOORS:
        right = exact_match(model.with_bias(with_floor(model, floor)), batch)
        title = "minus infinity" if floor is None else f"{floor:g}"
        yield identity(run) | {"floor": title, "accuracy": right.double().mean().item()}


def with_floor(model: Transformer, floor: float | None) -> Lines:
    """A model's lines with another bias off them."""
    assert isinstance(model.config.bias, Lines)
    return replace(model.config.bias, floor=floor)


# By file: which runs are measured, and what of them.
MEASURES = {"flipped_bits": (parity_runs, changes), "floors": (calibrated_runs, floors)}


def file_of(name: str) -> Path:
    return SHIPPED / f"{name}.csv"


def measured(results: Results, name: str) -> pd.DataFrame:
    """A measure of its runs: from its file where that has their weights; others are measured, which takes seconds."""
    runs_of, measure = MEASURES[name]
    stored = {str(weights): rows for weights, rows in pd.read_csv(file_of(name)).groupby("weights")}
    runs = [(run, str(run.checksum)) for run in runs_of(results)]
    parts = [stored[weights] if weights in stored else pd.DataFrame(measure(run)) for run, weights in runs]
    return pd.concat(parts, ignore_index=True).drop(columns="weights", errors="ignore")


def study() -> None:
    """Measure the shipped weights and write both files."""
    results = Results("quick", "shipped", SEEDS)
    with one_thread():
        for name, (runs_of, measure) in MEASURES.items():
            rows = [pd.DataFrame(measure(run)).assign(weights=str(run.checksum)) for run in runs_of(results)]
            write_text(file_of(name), pd.concat(rows).to_csv(index=False))


def floors_wide(frame: pd.DataFrame) -> pd.DataFrame:
    """`floors` for reading: the models that are right on 99%, of those there are, and the worst in percent."""
    grouped = frame.groupby(["task", "floor"], sort=False).accuracy
    cells = grouped.agg(lambda group: f"{(group >= BAR).sum()} of {len(group)} ({100 * group.min():.0f})")
    return cells.unstack()[list(dict.fromkeys(frame.floor))]


def cones(results: Results) -> pd.DataFrame:
    """On how many tokens a digit in the middle depends through a decoder of some layers, and in how many contexts.

    Of the window with an index modulo 3 by layers, and of ABC in the paper's size. An encoder layer is left out, since
    with it a digit depends on the whole problem.
    """
    rows = []
    for task in ABLATED:
        window = spec(Name(task, "window-cyclic"), results.profile)
        configs: list[tuple[str, ModelConfig, int | str]] = [
            ("window-cyclic", replace(window.model, decoder_layers=layers), "") for layers in LAYERS
        ]
        for run in results.existing_runs([Name(task, "abc-paper-batch")]):
            config = replace(run.spec.config_under(run.bias()), encoder_layers=0)
            configs.append(("abc-paper-batch", config, run.seed))
        for model, config, seed in configs:
            row = {"task": task, "model": model, "layers": config.decoder_layers, "seed": seed}
            rows.append(row | cone(config, window.sampler))
    return pd.DataFrame(rows)


def cone(config: ModelConfig, sampler: Sampler) -> dict[str, int]:
    contexts = contexts_of(config, sampler)
    shape = contexts.shape(MIDDLE)
    return {"tokens": len(shape.leaves), "contexts": contexts.count(shape)}
