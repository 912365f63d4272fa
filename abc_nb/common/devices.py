"""What computes: the device, its name for manifests, and how many threads a run takes."""

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch


@contextmanager
def one_thread() -> Iterator[None]:
    """PyTorch computes on one thread in here, so that a run can be repeated bit for bit; afterwards as before."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@contextmanager
def tensor_cores(device: torch.device) -> Iterator[None]:
    """On a GPU, matrix products of float32 are computed in TF32 in here; on a processor nothing changes."""
    precision = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if device.type == "cuda" else precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(precision)


def device() -> str:
    """Where models are trained: a CUDA device if there is one, the CPU otherwise."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def device_of(model: torch.nn.Module) -> torch.device:
    """Where a model's weights are, and so its inputs; those that wait elsewhere are put on the CPU when used."""
    return next((weights.device for weights in model.parameters() if not weights.is_meta), torch.device("cpu"))


def device_name() -> str:
    """The device in words, for manifests."""
    if device() == "cuda":
        return torch.cuda.get_device_name()
    model = processor("model name").partition(":")[2].strip() or platform.machine()
    return f"CPU ({model}, {os.cpu_count()} cores, {torch.backends.cpu.get_cpu_capability()})"


def processor(*fields: str) -> str:
    """The first line of /proc/cpuinfo that begins with one of `fields`; without that file the processor's name."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    return next((line for line in lines if line.startswith(fields)), platform.processor())
