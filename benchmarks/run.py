"""Speed on this machine, one table: training, evaluation, length, certificates, and a whole ABC.

Ratios come first: baseline and ours are measured in turn in the same run. Writes figures/benchmarks.csv
and .md. `run.py NAME ...` takes some of the measurements only and leaves the other rows as they are.
What a processor without AVX-512 would take is measured on one that has it by
`ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 MKL_ENABLE_INSTRUCTIONS=AVX2 make bench`.
"""

from __future__ import annotations

import itertools
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from unittest.mock import patch

import pandas as pd
import torch
from baselines import TorchTransformer, decode_from_the_start
from torch.utils.flop_counter import FlopCounterMode
from tqdm import tqdm

from abc_nb.bias.lines import Lines
from abc_nb.certificates.certify import certify_model
from abc_nb.common import devices, paths
from abc_nb.common.files import write_text
from abc_nb.hf import passes
from abc_nb.hf.flex import LONG
from abc_nb.problems.sampling import Batch
from abc_nb.problems.tasks import Task
from abc_nb.runs import runner, store
from abc_nb.specs.spec import SEEDS, spec
from abc_nb.training.evaluation import TEST_SEED, correct_tokens, exact_match
from abc_nb.training.problems import training_on

ROUNDS = 5  # measurements, of which the median is taken
CORES = torch.get_num_threads()
LENGTHS = (1024, 2048, 4096, 8192)
DIGITS = (85, 340, 682, 1360)  # of operands of sums, which take three times as many tokens
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
    times = [(seconds(ours), seconds(baseline)) for _ in range(rounds)]
    our_time, baseline_time = map(median, zip(*times, strict=True))
    return our_time, baseline_time, median(b / a for a, b in times)


def paper_step() -> Row:
    """A training step at the paper's size."""
    torch.set_num_threads(CORES)
    experiment = spec("addition-vanilla", "paper")
    model = experiment.build(0).to(devices.device())
    training = training_on(model, experiment.sampler, experiment.training, 0)
    baseline = TorchTransformer(experiment.model, len(experiment.task.vocabulary)).to(devices.device())
    optimizer = torch.optim.AdamW(baseline.parameters(), lr=1e-4, foreach=True)

    def baseline_step() -> None:
        batch = experiment.sampler.training_batch(0, training.progress.step, experiment.training.batch)
        optimizer.zero_grad()
        baseline.loss(batch.to(devices.device())).backward()
        optimizer.step()

    our_time, baseline_time, ratio = in_turn(training.step, baseline_step, 3)
    return {
        "what": f"training step, paper's size, padded, batch {experiment.training.batch}, dropout 0.3, {CORES} threads",
        "ratio": f"{ratio:.1f} times faster",
        "goal": "3 times",
        "ours": f"{our_time:.2f} s",
        "baseline": f"{baseline_time:.2f} s with torch.nn.Transformer",
    }


def paper_evaluation() -> Row:
    """Exact match at 60 digits at the paper's size."""
    torch.set_num_threads(CORES)
    experiment = spec("addition-vanilla", "paper")
    model = experiment.build(0).to(devices.device()).eval()
    baseline = TorchTransformer(experiment.model, len(experiment.task.vocabulary)).to(devices.device()).eval()
    batch = experiment.sampler.test_batch(60, 256, TEST_SEED)
    small = Batch(batch.source[:16], batch.target[:16], batch.layout).to(devices.device())
    # All tokens: exact match gives up on the later ones of a model that is never right, as this one is.
    actions = partial(correct_tokens, model, batch), partial(decode_from_the_start, baseline, small)
    our_time, baseline_time, _ = in_turn(*actions, 2)
    our_rate, baseline_rate = 256 / our_time, 16 / baseline_time
    return {
        "what": f"exact match at 60 digits, paper's size, {CORES} threads",
        "ratio": f"{our_rate / baseline_rate:.0f} times faster",
        "goal": "50 times",
        "ours": f"{our_rate:.0f} problems/s",
        "baseline": f"{baseline_rate:.1f} problems/s, decoding from the start for every token",
    }


def length_cost() -> Row:
    """Time and peak memory of exact match at growing length."""
    torch.set_num_threads(1)
    run = store.find(spec("addition-abc"), 0)
    assert run is not None, "addition-abc comes with the project"
    model, sampler = run.model().to(devices.device()), run.spec.sampler
    times, memory = [], []
    for length in LENGTHS:
        action = partial(exact_match, model, sampler.test_batch(length, 1, TEST_SEED))
        assert action().all(), f"addition-abc is wrong at {length} digits"
        memory.append(peak_memory(action))
        repeats = LENGTHS[-1] // length  # as long a measurement for short problems
        times.append(median(seconds(action, repeats) for _ in range(ROUNDS)))
    longer, slower, larger = (values[-1] / values[0] for values in (LENGTHS, times, memory))
    measurements = zip(LENGTHS, times, memory, strict=True)
    return {
        "what": "exact match of addition-abc, one problem, one thread",
        "ratio": f"{longer:.0f} times the length takes {slower:.1f} times as long and {larger:.1f} times the memory",
        "goal": "at most 10% above proportional",
        "ours": "; ".join(f"{n:,} digits: {1000 * t:.0f} ms, {m / 2**20:.0f} MB" for n, t, m in measurements),
        "baseline": "proportional to length",
    }


def peak_memory(action: Callable[[], object]) -> float:
    """The most bytes that an action's tensors take at once."""
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        action()
        return float(torch.cuda.max_memory_allocated() - before)
    with torch.profiler.profile(profile_memory=True) as profile:
        action()
    events = profile.profiler.kineto_results.events()  # type: ignore[union-attr]
    changes = sorted((event.start_ns(), event.nbytes()) for event in events if event.name() == "[memory]")
    return float(max(itertools.accumulate(change for _, change in changes)))


@contextmanager
def nothing_made() -> Iterator[None]:
    """Neither runs made here nor shipped ones are there; what is made goes into a folder that is removed."""
    with (
        TemporaryDirectory() as folder,
        patch.dict(os.environ, ABC_NB_RUNS=folder),
        patch.object(paths, "SHIPPED", Path(folder) / "shipped"),
    ):
        yield


def from_nothing(seed: int, name: str = "addition-abc", profile: str = "quick") -> float:
    """Seconds until a model is made as `abc-nb train` makes it: parents, calibration, practice and certificate.

    It ends with a sentence where the model is not certified, or wrong at 60 digits.
    """
    with nothing_made():
        start = time.perf_counter()
        run = runner.ensure(spec(name, profile), seed)
        spent = time.perf_counter() - start
        accuracy = run.spec.evaluate(run.model().to(devices.device()), [(60, 1000)]).eval("correct / samples").item()
    if accuracy < 1 or not run.certificates or not all(record["certified"] for record in run.certificates):
        sys.exit(f"abc-nb: {name}, seed {seed}, is right on {accuracy:.1%} at 60 digits, and has to be certified")
    return spent


def certificate() -> Row:
    """All contexts of ABS Addition, beside matrix products of as many operations."""
    torch.set_num_threads(1)
    run = store.find(spec("addition-abs"), 0)
    assert run is not None, "addition-abs comes with the project"
    model, sampler = run.model(), run.spec.sampler
    with FlopCounterMode(display=False) as counter:
        certified = certify_model(model, sampler)
    assert certified.certified
    square = torch.randn(1024, 1024, dtype=torch.float64)
    products = counter.get_total_flops() // (2 * len(square) ** 3)

    def multiply() -> None:
        for _ in range(products):
            torch.mm(square, square)

    our_time, baseline_time, ratio = in_turn(lambda: certify_model(model, sampler), multiply, 3)
    return {
        "what": f"certificate of addition-abs, {certified.contexts:,} contexts, one thread",
        "ratio": f"{ratio:.2f} of the rate of torch.mm in float64",
        "goal": "a third",
        "ours": f"{our_time:.1f} s, {certified.contexts / our_time:,.0f} contexts/s",
        "baseline": f"{baseline_time:.1f} s for as many operations",
    }


def time_to_abc() -> Row:
    """From nothing to ABC on Addition, every seed."""
    times = [from_nothing(seed) for seed in SEEDS]
    return {
        "what": "from nothing to addition-abc, with practice and certificate, median of seeds 0-4, one thread",
        "ratio": f"{median(times):.0f} s",
        "goal": "60 s, certified",
        "ours": ", ".join(f"{value:.0f} s" for value in times),
        "baseline": "20.9 hours of one GPU in the authors' logs",
    }


@contextmanager
def nothing_compiled() -> Iterator[None]:
    """TorchInductor's cache does not know of a pinned instruction set, and gives code for another: wrong numbers."""
    with TemporaryDirectory() as folder, patch.dict(os.environ, TORCHINDUCTOR_CACHE_DIR=folder):
        yield


@nothing_compiled()
def long_sequence() -> Row:
    """A pass of a Llama under a bias, by FlexAttention and with dense matrices: time, and memory with the bias."""
    from transformers import LlamaConfig, LlamaForCausalLM

    from abc_nb import hf

    torch.set_num_threads(1)
    heads, layers, task = 8, 2, Task("addition")
    sizes = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": layers, "vocab_size": 16}
    sizes |= {"num_attention_heads": heads, "num_key_value_heads": heads // 2, "max_position_embeddings": 2**13}
    model = LlamaForCausalLM(LlamaConfig(**sizes)).eval().to(devices.device())
    bias = Lines.one_key_per_head(task.layout(DIGITS[0]), heads, layers)
    texts: dict[bool, list[str]] = {True: [], False: []}
    for digits in DIGITS:
        layout, medians, logits = task.layout(digits), dict[bool, float](), list[torch.Tensor]()
        tokens = torch.randint(16, (1, layout.source_length + layout.target_length), device=devices.device())
        for flex in (True, False):
            with hf.attach(model, bias, layout) as handle, torch.inference_mode():
                handle.long = forced = 0 if flex else sys.maxsize
                action = partial(model, tokens, use_cache=False)
                first = seconds(lambda logits=logits, action=action: logits.append(action().logits))
                medians[flex] = median(seconds(action) for _ in range(ROUNDS))
                passes.values.cache_clear()
                memory = peak_memory(action) / 2**20
                assert handle.long == forced, "FlexAttention was not compiled"
            texts[flex].append(
                f"{tokens.shape[1]:,} tokens: {1000 * medians[flex]:,.0f} ms, {memory:,.0f} MB, first {first:.1f} s"
            )
        torch.testing.assert_close(*logits, rtol=1e-3, atol=1e-3)  # both give the same
        ratio = medians[False] / medians[True]
    return {
        "what": f"pass of a Llama of {layers} layers under one key per head, FlexAttention, one thread",
        "ratio": f"{ratio:.1f} times faster at {tokens.shape[1]:,} tokens",
        "goal": f"faster from {LONG:,} tokens on",
        "ours": "; ".join(texts[True]),
        "baseline": "; ".join(texts[False]) + ", with dense matrices",
    }


JOBS: dict[str, Callable[[], Row]] = {
    "step": paper_step,
    "evaluation": paper_evaluation,
    "length": length_cost,
    "certificate": certificate,
    "abc": time_to_abc,
    "flex": long_sequence,
}


def main(names: list[str]) -> None:
    unknown = [name for name in names if name not in JOBS]
    if unknown:
        print(f"abc-nb: unknown measurement {unknown[0]!r}: choose from {', '.join(JOBS)}", file=sys.stderr)
        sys.exit(2)
    path = paths.figures() / "benchmarks.csv"
    records = pd.read_csv(path, dtype=str, keep_default_na=False).to_dict("records") if path.exists() else []
    rows = {(row["name"], row["device"]): row for row in records}  # of several devices, or instruction sets of one
    facts = {"device": devices.device_name(), "torch": torch.__version__}
    for name in tqdm(names or JOBS, unit="measurement"):
        row = rows[name, facts["device"]] = {"name": name} | JOBS[name]() | facts
        print(f"{row['what']}: {row['ratio']} ({row['ours']}); goal: {row['goal']}", flush=True)
        frame = pd.DataFrame(sorted(rows.values(), key=lambda row: [*JOBS].index(row["name"])))
        write_text(path, frame.to_csv(index=False))
        write_text(path.with_suffix(".md"), frame.drop(columns="name").to_markdown(index=False) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
