"""Speed on this machine, one table: training, evaluation, calibration, length, an explorer, whole reproductions.

Ratios come first: baseline and ours are measured in turn in the same run. Writes figures/benchmarks.csv
and .md. `run.py NAME ...` takes some of the measurements only and leaves the other rows as they are;
`reproduce`, which takes the best part of an hour, is taken only if named.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from unittest.mock import patch

import pandas as pd
import torch
from baselines import TorchTransformer, decode_from_the_start, draw_heads, line_means_in_loops
from tqdm import tqdm

from abc_nb.api import load
from abc_nb.calibration.calibrate import calibrate
from abc_nb.calibration.of_model import calibrate_model
from abc_nb.calibration.settings import PAPER, Calibration
from abc_nb.common import devices, paths
from abc_nb.common.files import write_text
from abc_nb.model import compiled
from abc_nb.problems.layouts import Layout
from abc_nb.problems.sampling import Batch
from abc_nb.runs import store
from abc_nb.show.explorers.calibration import Bench, explore_calibration
from abc_nb.show.explorers.frame import Explorer
from abc_nb.specs.spec import SEEDS, Spec, calibrated, spec
from abc_nb.specs.studies import ARITHMETIC
from abc_nb.training.evaluation import TEST_SEED, exact_match
from abc_nb.training.optimizers import Muon
from abc_nb.training.trainer import Trainer

ROUNDS = 5  # measurements, of which the median is taken
CORES = torch.get_num_threads()
SHARES = (0.05, 0.1, 0.15, 0.2, 0.25)  # thresholds that a slider is moved to
LENGTHS = (1024, 2048, 4096, 8192)
Row = dict[str, str]


def seconds(action: Callable[[], object], repeats: int = 1) -> float:
    """Wall time of an action, the device's work included."""
    start = time.perf_counter()
    for _ in range(repeats):
        action()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return (time.perf_counter() - start) / repeats


def in_turn(ours: Callable[[], object], baseline: Callable[[], object], rounds: int) -> tuple[float, float, float]:
    """Medians of our seconds, the baseline's, and their ratio, after a first round that does not count."""
    ours(), baseline()
    pairs = [(seconds(ours), seconds(baseline)) for _ in range(rounds)]
    mine, theirs = (median(pair[i] for pair in pairs) for i in (0, 1))
    return mine, theirs, median(b / a for a, b in pairs)


def verdict(met: bool) -> str:
    """What a row says about its goal."""
    return "yes" if met else "no"


def line(row: Row) -> str:
    """A row as one line to print, with its goal and whether it was met."""
    goal = {"yes": f"; goal {row['goal']}: met", "no": f"; goal {row['goal']}: MISSED"}.get(row.get("met", ""), "")
    return f"{row['what']}: {row['ratio']}{goal} ({row['ours']})"


def matrix_rate() -> float:
    """Floating-point operations a second of a large float32 matrix product, with as many threads as are set."""
    size = 1024 if devices.device() == "cpu" else 8192
    a, b = (torch.randn(size, size, device=devices.device()) for _ in range(2))
    return 2 * size**3 / seconds(lambda: a @ b, 10)


def step_operations(trainer: Trainer) -> float:
    """Multiplications and additions of the matrix products of one training step, attention included.

    They are counted in PyTorch's attention, since the counter does not see into compiled code.
    """
    from torch.utils.flop_counter import FlopCounterMode

    counter = FlopCounterMode(display=False)
    with counter, patch.object(compiled, "fits", lambda *_: False):
        trainer.step()
    return float(counter.get_total_flops())


def trainer_of(chosen: Spec, seed: int = 0) -> Trainer:
    model = chosen.build(seed).to(devices.device())
    return Trainer(model, chosen.sampler, chosen.training, seed)


def paper_step() -> Row:
    """1: a training step at the paper's size."""
    torch.set_num_threads(CORES)
    chosen = spec("addition-vanilla", "paper")
    trainer = trainer_of(chosen)
    theirs = TorchTransformer(chosen.model, len(chosen.task.vocabulary)).to(devices.device())
    optimizer = torch.optim.AdamW(theirs.parameters(), lr=1e-4, foreach=True)

    def baseline() -> None:
        batch = chosen.sampler.training_batch(0, trainer.progress.step, chosen.training.batch).to(devices.device())
        optimizer.zero_grad()
        theirs.loss(batch).backward()
        optimizer.step()

    ours, other, ratio = in_turn(trainer.step, baseline, 3)
    return {
        "what": f"training step, paper's size, padded, batch {chosen.training.batch}, dropout 0.3, {CORES} threads",
        "ratio": f"{ratio:.1f} times faster",
        "goal": "3 times",
        "met": verdict(ratio >= 3),
        "ours": f"{ours:.2f} s",
        "baseline": f"{other:.2f} s with torch.nn.Transformer",
    }


def paper_evaluation() -> Row:
    """2: exact match at 60 digits at the paper's size."""
    torch.set_num_threads(CORES)
    chosen = spec("addition-vanilla", "paper")
    model = chosen.build(0).to(devices.device()).eval()
    theirs = TorchTransformer(chosen.model, len(chosen.task.vocabulary)).to(devices.device()).eval()
    batch = chosen.sampler.test_batch(60, 256, TEST_SEED)
    few = Batch(batch.source[:16], batch.target[:16], batch.layout).to(devices.device())
    ours, other, _ = in_turn(lambda: exact_match(model, batch), lambda: decode_from_the_start(theirs, few), 2)
    mine, rate = 256 / ours, 16 / other
    return {
        "what": f"exact match at 60 digits, paper's size, {CORES} threads",
        "ratio": f"{mine / rate:.0f} times faster",
        "goal": "50 times",
        "met": verdict(mine / rate >= 50),
        "ours": f"{mine:.0f} problems/s",
        "baseline": f"{rate:.1f} problems/s, decoding from the start for every token",
    }


def calibration() -> Row:
    """3: calibration at the size of sixty-digit Addition against the pseudo-code's loops; the paper's settings."""
    torch.set_num_threads(1)
    attention = torch.rand(8, 62, 125).softmax(-1)
    lists = attention.tolist()
    calibrate(attention, settings=PAPER)
    pairs = []
    for _ in range(3):
        ours = seconds(lambda: calibrate(attention, settings=PAPER), 20)
        pairs.append((ours, seconds(lambda: line_means_in_loops(lists))))
    faster = median(b / a for a, b in pairs)
    return {
        "what": "calibration of 8 heads of 62 x 125",
        "ratio": f"{faster:.0f} times faster",
        "goal": "1,000 times",
        "met": verdict(faster >= 1000),
        "ours": f"{1000 * median(a for a, _ in pairs):.1f} ms",
        "baseline": f"{median(b for _, b in pairs):.1f} s in loops over cells",
    }


def training_rate(name: str, profile: str, goal: float) -> Row:
    """4: samples a second, and the share of the matrix-product rate, measured in turn."""
    torch.set_num_threads(CORES if profile == "paper" else 1)
    chosen = spec(name, profile)
    trainer = trainer_of(chosen)
    operations, size = step_operations(trainer), chosen.training.held_batch
    rounds = 2 if profile == "paper" else ROUNDS
    pairs = [(seconds(trainer.step, 1 if profile == "paper" else 3), matrix_rate()) for _ in range(rounds)]
    step = median(pair[0] for pair in pairs)
    share = median(operations / pair[0] / pair[1] for pair in pairs)
    return {
        "what": f"training step, {chosen.name}, {profile}, batch {size}, {torch.get_num_threads()} threads",
        "ratio": f"{share:.0%} of the matrix-product rate",
        "goal": f"{goal:.0%}",
        "met": verdict(share >= goal),
        "ours": f"{1000 * step:.0f} ms, {size / step:.0f} samples/s",
        "baseline": f"{median(pair[1] for pair in pairs) / 1e9:.0f} GFLOP/s in a matrix product",
    }


def length_cost() -> Row:
    """5: time and peak memory of exact match at growing length."""
    torch.set_num_threads(1)
    run = store.find(spec("addition-abc"), 0)
    assert run is not None, "addition-abc comes with the project"
    model, sampler = run.model().to(devices.device()), run.spec.sampler
    times, memory = [], []
    for length in LENGTHS:
        batch = sampler.test_batch(length, 1, TEST_SEED)
        memory.append(peak_memory(lambda batch=batch: exact_match(model, batch)))  # type: ignore[misc]
        repeats = LENGTHS[-1] // length  # as long a measurement for short problems
        rounds = (seconds(lambda batch=batch: exact_match(model, batch), repeats) for _ in range(ROUNDS))  # type: ignore[misc]
        times.append(median(rounds))
    longer, slower, larger = (values[-1] / values[0] for values in (LENGTHS, times, memory))
    shown = zip(LENGTHS, times, memory, strict=True)
    return {
        "what": "exact match of addition-abc, one problem, one thread",
        "ratio": f"{longer:.0f} times the length takes {slower:.1f} times as long and {larger:.1f} times the memory",
        "goal": "at most 10% above proportional",
        "met": verdict(max(slower, larger) <= 1.1 * longer),
        "ours": "; ".join(f"{n:,} digits: {1000 * t:.0f} ms, {m / 2**20:.0f} MB" for n, t, m in shown),
        "baseline": "proportional to length",
    }


def peak_memory(action: Callable[[], object]) -> float:
    """The most bytes that an action's tensors take at once."""
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        action()
        return float(torch.cuda.max_memory_allocated() - before)
    with torch.profiler.profile(profile_memory=True) as found:
        action()
    events = found.profiler.kineto_results.events()  # type: ignore[union-attr]
    changes = sorted((event.start_ns(), event.nbytes()) for event in events if event.name() == "[memory]")
    return float(max(itertools.accumulate(change for _, change in changes)))


def from_nothing(seed: int) -> tuple[float, float]:
    """Seconds of training, calibration and retraining of addition-abc, and its accuracy at 60 digits."""
    child = spec("addition-abc")
    assert child.parent is not None
    start = time.perf_counter()
    trainer = trainer_of(child.parent, seed)
    trainer.run()
    bias = calibrate_model(trainer.model, child.parent.sampler.calibration_batch(seed), child.calibration).bias
    model = child.build(seed, bias).to(devices.device())
    model.load_state_dict(trainer.model.state_dict())
    Trainer(model, child.sampler, child.training, seed).run()
    spent = time.perf_counter() - start
    return spent, exact_match(model, child.sampler.test_batch(60, 1000, TEST_SEED)).float().mean().item()


def time_to_abc() -> Row:
    """6: from nothing to ABC on Addition, every seed."""
    torch.set_num_threads(CORES)
    found = [from_nothing(seed) for seed in SEEDS]
    times = [spent for spent, _ in found]
    return {
        "what": f"from nothing to addition-abc, median of seeds 0-4, {CORES} threads",
        "ratio": f"{median(times):.0f} s",
        "goal": "60 s, 100% at 60 digits",
        "met": verdict(median(times) <= 60 and all(accuracy == 1 for _, accuracy in found)),
        "ours": ", ".join(f"{spent:.0f} s ({100 * accuracy:.1f}%)" for spent, accuracy in found),
        "baseline": "20.9 hours of one GPU in the authors' logs",
    }


def reproduction() -> Row:
    """7: `make reproduce` in a fresh clone of what is committed, its environment included."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("ABC_NB_", "MAKE"))}
    with TemporaryDirectory() as folder:
        subprocess.run(["git", "clone", "--quiet", str(paths.ROOT), folder], check=True)
        command = ["make", f"PYTHON={sys.executable}", "reproduce"]
        spent = seconds(lambda: subprocess.run(command, cwd=folder, env=environment, check=True))
        manifests = [json.loads(path.read_text()) for path in Path(folder, "runs").glob("*/manifest.json")]
    training, evaluation = (sum(one["seconds"][what] for one in manifests) / 60 for what in ("training", "evaluation"))
    return {
        "what": f"make reproduce, quick, from nothing, {CORES} cores",
        "ratio": f"{spent / 60:.0f} min",
        "goal": "15 min",
        "met": verdict(spent <= 15 * 60),
        "ours": f"{len(manifests)} runs: {training:.0f} min of training, {evaluation:.0f} of evaluation, all workers",
        "baseline": "",
    }


def optimizer_rate() -> Row:
    """Our Muon against PyTorch's, on the matrices of the quick model."""
    torch.set_num_threads(1)
    matrices = [p for p in spec("addition-vanilla").build(0).decoder.parameters() if p.ndim == 2]
    for p in matrices:
        p.grad = torch.randn_like(p)
    ours = Muon(matrices, lr=0.0)
    theirs = torch.optim.Muon(matrices, lr=0.0, weight_decay=0.0, adjust_lr_fn="match_rms_adamw")
    mine, other, ratio = in_turn(ours.step, theirs.step, ROUNDS)
    return {
        "what": "Muon step, quick model, one thread",
        "ratio": f"{ratio:.1f} times faster",
        "goal": "",
        "met": "",
        "ours": f"{1000 * mine:.1f} ms",
        "baseline": f"{1000 * other:.1f} ms in torch.optim.Muon",
    }


def import_time() -> Row:
    """`import abc_nb` and `import abc_nb.runs.runner` against `import torch`, each in a fresh process."""

    def fresh(statement: str) -> float:
        return median(seconds(lambda: subprocess.run([sys.executable, "-c", statement], check=True)) for _ in range(3))

    empty = fresh("pass")
    package, whole, baseline = (fresh(f"import {name}") - empty for name in ("abc_nb", "abc_nb.runs.runner", "torch"))
    return {
        "what": "import abc_nb (and everything that trains)",
        "ratio": f"{whole / baseline:.2f} times `import torch`",
        "goal": "",
        "met": "",
        "ours": f"{1000 * package:.0f} ms ({whole:.1f} s)",
        "baseline": f"{baseline:.1f} s for torch",
    }


def slider_time() -> Row:
    """From a slider's change in the calibration explorer to the last picture, in every task."""
    torch.set_num_threads(CORES)
    shown, ratios, times = [], [], []
    for task in ARITHMETIC:
        explorer = explore_calibration(f"{task}-vanilla")
        assert isinstance(explorer, Explorer)
        bench = Bench(load(f"{task}-vanilla"), calibrated(f"{task}-vanilla"))
        shares, longer = itertools.cycle(SHARES), bench.parent.spec.sampler.layout(explorer.values["length"])

        def ours(explorer: Explorer = explorer, shares: Iterator[float] = shares) -> None:
            explorer.controls["share"].value = next(shares)

        def baseline(bench: Bench = bench, longer: Layout = longer) -> None:
            draw_heads(bench.averages["cross", 0])
            draw_heads(bench.calibrate(Calibration(share=SHARES[0])).dense(longer, "cross", 0))

        mine, _, ratio = in_turn(ours, baseline, len(SHARES))
        shown.append(f"{task} {1000 * mine:.0f} ms")
        ratios.append(ratio)
        times.append(mine)
    return {
        "what": f"a slider of the calibration explorer moved, until all is drawn, {CORES} threads",
        "ratio": f"{median(ratios):.1f} times faster",
        "goal": "200 ms",
        "met": verdict(max(times) <= 0.2),
        "ours": ", ".join(shown),
        "baseline": "its two pictures alone, as notebooks draw them",
    }


JOBS: dict[str, Callable[[], Row]] = {
    "step": paper_step,
    "evaluation": paper_evaluation,
    "calibration": calibration,
    "rate-paper": lambda: training_rate("addition-vanilla", "paper", 0.60),
    "rate-quick": lambda: training_rate("addition-vanilla", "quick", 0.45),
    "rate-window": lambda: training_rate("addition-window-cyclic", "quick", 0.45),
    "length": length_cost,
    "abc": time_to_abc,
    "muon": optimizer_rate,
    "import": import_time,
    "slider": slider_time,
    "reproduce": reproduction,
}
LONG = ("reproduce",)  # taken only if named


def main(names: list[str]) -> None:
    unknown = [name for name in names if name not in JOBS]
    if unknown:
        print(f"abc-nb: unknown measurement {unknown[0]!r}: choose from {', '.join(JOBS)}", file=sys.stderr)
        sys.exit(2)
    path = paths.figures() / "benchmarks.csv"
    known = path.exists()
    kept = pd.read_csv(path, dtype=str, keep_default_na=False).set_index("name") if known else pd.DataFrame()
    rows = {str(name): dict(row) for name, row in kept.iterrows()}
    facts = {"device": devices.device_name(), "torch": torch.__version__}
    for name in tqdm(names or [name for name in JOBS if name not in LONG], unit="measurement"):
        rows[name] = JOBS[name]() | facts
        print(line(rows[name]), flush=True)
    frame = pd.DataFrame([{"name": name} | rows[name] for name in JOBS if name in rows]).fillna("")
    write_text(path, frame.to_csv(index=False))
    write_text(path.with_suffix(".md"), frame.drop(columns="name").to_markdown(index=False) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
