"""Attention compiled for this processor from `attention.c`, where a C compiler is there.

Why there is C in this package: a hundred steps of Addition's plain model, validation included, take 6.2 s of one core
with it, 8.6 s with PyTorch's own attention, and 7.0 s with `torch.compile` on the same formula, which first compiles
for ten seconds (medians of three, processor time). Models under a window gain nothing: they look at few keys.

A run's record says which one computed: this one on a processor with a C compiler, for the head sizes below and float32,
on one thread; PyTorch's own elsewhere. Both round differently (by 5e-5 in logits).
"""

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from abc_nb.common import paths
from abc_nb.common.devices import processor
from abc_nb.common.files import replacement

SOURCE = Path(__file__).with_name("attention.c")
FLAGS = ("-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-fopenmp-simd", "-fPIC", "-shared")
HEAD_SIZES = (8, 4, 16)  # for larger ones PyTorch's is as fast
MOST = 2**15  # numbers of all keys of a head, which lie on the stack


def fits(query: Tensor, keys: int) -> bool:
    """Whether the compiled attention is there for such queries (batch, head, query, size) and number of keys."""
    size, on_cpu = query.shape[-1], query.device.type == "cpu"
    return on_cpu and query.dtype == torch.float32 and size * keys <= MOST and kernels(size) is not None


@cache
def kernels(size: int) -> ctypes.CDLL | None:
    """The functions of `attention.c` for a head size; None where it cannot be compiled, or PyTorch's is as fast."""
    found = loaded(SOURCE, f"-DSIZE={size}") if size in HEAD_SIZES else None
    if found is not None:
        found.forward.argtypes = [ctypes.c_void_p] * 6 + [ctypes.c_int64] * 6
        found.backward.argtypes = [ctypes.c_void_p] * 9 + [ctypes.c_int64] * 4
        found.forward.restype = found.backward.restype = None
    return found


def loaded(source: Path, *defined: str) -> ctypes.CDLL | None:
    """The functions of a C file, kept for the next process on the same processor; None where it cannot be compiled."""
    compiler, text = shutil.which(os.environ.get("CC") or "cc"), source.read_text(encoding="utf-8")
    if compiler is None:
        return None
    command = [compiler, *FLAGS, *defined, str(source), "-lm"]
    facts = [text, *command, platform.machine(), processor("flags", "Features")]
    path = paths.BUILD / "compiled" / f"{source.stem}-{hashlib.sha256(repr(facts).encode()).hexdigest()[:16]}.so"
    try:
        if not path.exists():
            with replacement(path) as temporary:
                subprocess.run([*command, "-o", str(temporary)], check=True, capture_output=True)
        return ctypes.CDLL(str(path))
    except (OSError, subprocess.CalledProcessError):
        return None


def attend(query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None) -> Tensor:
    """softmax(query key^T / sqrt(size) + bias) value: (batch, head, query, size). `fits` must hold.

    bias is (batch or 1, head or 1, query, key). A query without an open key gives zero.
    """
    by_token = (x.transpose(1, 2).contiguous() for x in (query, key, value))  # as a linear layer gives them
    mixed: Tensor = Compiled.apply(*by_token, bias)
    return mixed.transpose(1, 2)


def call(name: str, arrays: tuple[Tensor | None, ...], *numbers: int) -> None:
    """Call a function of `attention.c`, which takes no array for None; the first are the queries."""
    assert arrays[0] is not None
    function = getattr(kernels(arrays[0].shape[-1]), name)
    function(*(None if x is None else x.data_ptr() for x in arrays), *numbers)


class Compiled(torch.autograd.Function):
    """The compiled attention for PyTorch's gradients, of arrays (batch, token, head, size)."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None) -> Tensor:
        batch, queries, heads, _ = query.shape
        shape = (batch, heads, queries, key.shape[1])
        added = None if bias is None else bias.contiguous()
        steps = (0, 0) if added is None else added.expand(shape).stride()[:2]
        out, weights = torch.empty_like(query), query.new_empty(shape) if any(ctx.needs_input_grad) else None
        call("forward", (query, key, value, added, out, weights), *shape, *steps)
        if weights is not None:
            ctx.save_for_backward(query, key, value, weights)
            ctx.bias = None if bias is None else bias.shape
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, weights = ctx.saved_tensors
        changes = torch.empty_like(query), torch.zeros_like(key), torch.zeros_like(value)
        of_bias = torch.empty_like(weights) if ctx.needs_input_grad[3] else None
        arrays = (query, key, value, weights, gradients[0].contiguous(), *changes, of_bias)
        call("backward", arrays, *weights.shape)
        return *changes, None if of_bias is None else of_bias.sum_to_size(ctx.bias)
