"""Speed on this machine: training steps, their share of the matrix-product rate, time to 100%, import time.

Ratios come first: baseline and ours are measured in turn in the same run. Writes
figures/benchmarks.csv and .md.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from statistics import median

import pandas as pd
import torch
from tqdm import tqdm

from abc_nb import paths, store
from abc_nb.calibration import PAPER, calibrate
from abc_nb.experiments import ARITHMETIC, Experiment, experiment
from abc_nb.files import write_text
from abc_nb.muon import Muon
from abc_nb.training import Trainer

ROUNDS = 5  # medians of so many measurements


def seconds(action: Callable[[], object], repeats: int = 1) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        action()
    return (time.perf_counter() - start) / repeats


def matrix_rate() -> float:
    """Floating-point operations a second of a large float32 matrix product, one thread."""
    size = 1024
    a, b = torch.randn(size, size), torch.randn(size, size)
    return 2 * size**3 / seconds(lambda: a @ b, 10)


def step_operations(trainer: Trainer) -> float:
    """Multiplications and additions of the matrix products of one training step, attention included."""
    from torch.utils.flop_counter import FlopCounterMode

    counter = FlopCounterMode(display=False)
    with counter:
        trainer.step()
    return float(counter.get_total_flops())


def trainer_of(chosen: Experiment) -> Trainer:
    return Trainer(store.build_model(chosen, 0), chosen.sampler, chosen.training, 0)


def training_rate(chosen: Experiment) -> dict[str, object]:
    """Samples a second, and the share of the matrix-product rate, measured in turn."""
    trainer = trainer_of(chosen)
    operations = step_operations(trainer)
    pairs = [(seconds(trainer.step, 3), matrix_rate()) for _ in range(ROUNDS)]
    step = median(pair[0] for pair in pairs)
    share = median(operations / pair[0] / pair[1] for pair in pairs)
    return {
        "what": f"training step, {chosen.name}, {chosen.profile}, one thread",
        "ratio": f"{share:.0%} of the matrix-product rate",
        "ours": f"{1000 * step:.0f} ms, {chosen.training.batch / step:.0f} samples/s",
        "baseline": f"{median(pair[1] for pair in pairs) / 1e9:.0f} GFLOP/s in a matrix product",
    }


def optimizer_rate() -> dict[str, object]:
    """Our Muon against PyTorch's, on the matrices of the quick model."""
    matrices = [p for p in store.build_model(experiment("addition-vanilla"), 0).decoder.parameters() if p.ndim == 2]
    for p in matrices:
        p.grad = torch.randn_like(p)
    ours = Muon(matrices, lr=0.0)
    theirs = torch.optim.Muon(matrices, lr=0.0, weight_decay=0.0, adjust_lr_fn="match_rms_adamw")
    pairs = [(seconds(ours.step, 3), seconds(theirs.step, 3)) for _ in range(ROUNDS)]
    return {
        "what": "Muon step, quick model, one thread",
        "ratio": f"{median(b / a for a, b in pairs):.1f} times faster",
        "ours": f"{1000 * median(a for a, _ in pairs):.1f} ms",
        "baseline": f"{1000 * median(b for _, b in pairs):.1f} ms in torch.optim.Muon",
    }


def line_means_in_loops(attention: list[list[list[float]]]) -> list[list[list[list[float]]]]:
    """The loops of Algorithm 1 (`000` appendix F), for delta = 1, 0, -1: for every cell the mean of its line."""
    found = []
    for matrix in attention:
        m, n = len(matrix), len(matrix[0])
        for delta in (1, 0, -1):
            means = [[0.0] * n for _ in range(m)]
            for i in range(m):
                for j in range(n):
                    cells = [matrix[i + k][j + k * delta] for k in range(-i, m - i) if 0 <= j + k * delta < n]
                    means[i][j] = sum(cells) / len(cells)
            found.append(means)
    return found


def calibration_time() -> dict[str, object]:
    """Calibration at the size of sixty-digit Addition against the pseudo-code's loops; the paper's settings."""
    attention = torch.rand(8, 62, 125).softmax(-1)
    pairs = []
    for _ in range(3):
        ours = seconds(lambda: calibrate(attention, settings=PAPER), 5)
        pairs.append((ours, seconds(lambda: line_means_in_loops(attention.tolist()))))
    return {
        "what": "calibration of 8 heads of 62 x 125",
        "ratio": f"{median(b / a for a, b in pairs):.0f} times faster",
        "ours": f"{1000 * median(a for a, _ in pairs):.1f} ms",
        "baseline": f"{median(b for _, b in pairs):.1f} s in loops over cells",
    }


def import_time() -> dict[str, object]:
    """`import abc_nb` and `import abc_nb.training` against `import torch`, each in a fresh process."""

    def fresh(statement: str) -> float:
        return median(seconds(lambda: subprocess.run([sys.executable, "-c", statement], check=True)) for _ in range(3))

    empty = fresh("pass")
    package, whole, baseline = (fresh(f"import {name}") - empty for name in ("abc_nb", "abc_nb.store", "torch"))
    return {
        "what": "import abc_nb (and everything that trains)",
        "ratio": f"{whole / baseline:.2f} times `import torch`",
        "ours": f"{1000 * package:.0f} ms ({whole:.1f} s)",
        "baseline": f"{baseline:.1f} s for torch",
    }


def time_to_perfect(task: str) -> dict[str, object]:
    """Training from nothing to 100% on validation numbers, one thread, seed 0."""
    chosen = experiment(f"{task}-vanilla")
    trainer = trainer_of(chosen)
    progress = trainer.run()
    perfect = [row for row in progress.history if row["accuracy"] == 1]
    reached = f"{perfect[0]['seconds']:.0f} s, {perfect[0]['step']:.0f} steps" if perfect else "not reached"
    return {
        "what": f"{chosen.name} to 100% of validation numbers, one thread",
        "ratio": "",
        "ours": reached,
        "baseline": "",
    }


def main() -> None:
    torch.set_num_threads(1)
    jobs: list[Callable[[], dict[str, object]]] = [import_time, optimizer_rate, calibration_time]
    jobs += [lambda task=task: training_rate(experiment(f"{task}-vanilla")) for task in ARITHMETIC]  # type: ignore[misc]
    jobs += [lambda task=task: time_to_perfect(task) for task in ARITHMETIC]  # type: ignore[misc]
    frame = pd.DataFrame([job() for job in tqdm(jobs, unit="measurement")])
    print(frame.to_string(index=False))
    folder = paths.figures()
    note = f"Device: {store.device_name()}; torch {torch.__version__}."
    write_text(folder / "benchmarks.csv", frame.assign(device=store.device_name()).to_csv(index=False))
    write_text(folder / "benchmarks.md", f"{frame.to_markdown(index=False)}\n\n{note}\n")


if __name__ == "__main__":
    main()
