"""Attention compiled for this processor from `attention.c`, where a C compiler is there.

Why there is C in this package: a hundred steps of Addition's plain model, validation included, take 6.2 s of one core
with it, 8.6 s with PyTorch's own attention, and 7.0 s with `torch.compile` on the same formula, which first compiles
for ten seconds (medians of three, processor time). Reckoned up to its 1,600 steps, a training without C would take 38%
longer, or 22% with `torch.compile` (12% without its compilation). Models under a window gain nothing: they look at few
keys.

Which one computes is a fact of the machine and the model, and is in a run's record: this one on a processor with a C
compiler, for the head sizes below and float32; PyTorch's own elsewhere. Both round differently (by 5e-5 in logits).
This one gives the same bits on any number of threads.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import warnings
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from abc_nb.common import paths
from abc_nb.common.devices import processor
from abc_nb.common.files import replacement

SOURCE = Path(__file__).with_name("attention.c")
FLAGS = ("-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-fPIC", "-shared")
THREADS = ("-fopenmp",)  # left out where the compiler does not know it: one thread then, and the same numbers
HEAD_SIZES = (8, 4, 16)  # for larger ones PyTorch's is as fast
MOST = 2**15  # numbers of all keys of a head, which lie on the stack
OFF = "ABC_NB_COMPILE"  # set to 0, nothing is compiled
NO_COMPILER = "no C compiler was found: with one (cc or gcc), training takes about two thirds of the time"


class Strides(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int64) for name in ("batch", "head", "token")]


class Sizes(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int64) for name in ("batches", "heads", "queries", "keys", "threads")]


def note(size: int) -> str:
    """What the record of a run with heads of this size adds to the name of the device."""
    used = not torch.cuda.is_available() and size in HEAD_SIZES and kernels(size) is not None
    return ", compiled attention" if used else ""


def warn_without() -> None:
    """A warning where training could be faster."""
    if kernels(HEAD_SIZES[0]) is None and not torch.cuda.is_available() and os.environ.get(OFF) != "0":
        warnings.warn(NO_COMPILER, stacklevel=2)


def fits(query: Tensor, keys: int) -> bool:
    """Whether the compiled attention is there for such queries (batch, head, query, size) and number of keys."""
    size = query.shape[-1]
    return (
        query.device.type == "cpu"
        and query.dtype == torch.float32
        and size in HEAD_SIZES
        and size * keys <= MOST
        and kernels(size) is not None
    )


@cache
def kernels(size: int) -> ctypes.CDLL | None:
    """The functions of `attention.c` for a head size; None where it cannot be compiled."""
    found = loaded(SOURCE, f"-DSIZE={size}")
    if found is not None:
        found.forward.argtypes = [ctypes.c_void_p] * 6 + [Sizes] + [Strides] * 5
        found.backward.argtypes = [ctypes.c_void_p] * 9 + [Sizes] + [Strides] * 6
        found.forward.restype = found.backward.restype = None
    return found


def loaded(source: Path, *defined: str) -> ctypes.CDLL | None:
    """The functions of a C file, kept for the next process on the same processor; None where it cannot be compiled."""
    compiler, text = shutil.which(os.environ.get("CC") or "cc"), source.read_text(encoding="utf-8")
    if compiler is None or os.environ.get(OFF) == "0":
        return None
    for threads in (THREADS, ()):
        command = [compiler, *FLAGS, *defined, str(source), "-lm", *threads]
        facts = [text, *command, platform.machine(), processor("flags", "Features")]
        path = paths.BUILD / "compiled" / f"{source.stem}-{hashlib.sha256(repr(facts).encode()).hexdigest()[:16]}.so"
        try:
            if not path.exists():
                with replacement(path) as temporary:
                    subprocess.run([*command, "-o", str(temporary)], check=True, capture_output=True)
            return ctypes.CDLL(str(path))
        except (OSError, subprocess.CalledProcessError):
            continue
    return None


def attend(query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None) -> Tensor:
    """softmax(query key^T / sqrt(size) + bias) value: (batch, head, query, size). `fits` must hold.

    bias is (batch or 1, head or 1, query, key). A query without an open key gives zero.
    """
    mixed: Tensor = Compiled.apply(*map(in_rows, (query, key, value)), bias, torch.is_grad_enabled())
    return mixed


def in_rows(x: Tensor) -> Tensor:
    """The same with the numbers of its last dimension together in memory."""
    return x if x.stride(-1) == 1 else x.contiguous()


def call(name: str, arrays: Sequence[Any], sizes: Sizes, strided: Sequence[Tensor | None]) -> None:
    """Call a function of `attention.c`, which takes no array for None; `strided` are those whose strides it is told."""
    function = getattr(kernels(arrays[0].shape[-1]), name)
    pointers = [None if x is None else x.data_ptr() for x in arrays]
    function(*pointers, sizes, *(Strides() if x is None else Strides(*x.stride()[:3]) for x in strided))


def by_token(like: Tensor, make: Any) -> Tensor:
    """A tensor as `like` (batch, head, token, size), whose heads lie together in memory as a linear layer wants it."""
    made: Tensor = make(like.shape[0], like.shape[2], like.shape[1], like.shape[3])
    return made.transpose(1, 2)


class Compiled(torch.autograd.Function):
    """The compiled attention for PyTorch's gradients."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, keep: bool) -> Tensor:
        shape = (*query.shape[:3], key.shape[2])
        sizes = Sizes(*shape, torch.get_num_threads())
        added = None if bias is None else in_rows(bias.expand(shape))
        out, weights = by_token(query, query.new_empty), query.new_empty(shape) if keep else None
        strided = (query, key, value, added, out)
        call("forward", (*strided, weights), sizes, strided)
        if keep:
            ctx.save_for_backward(query, key, value, weights)
            ctx.sizes, ctx.bias = sizes, None if bias is None else bias.shape
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, weights = ctx.saved_tensors
        change = in_rows(gradients[0])
        of_query = by_token(query, query.new_empty)
        of_key, of_value = by_token(key, key.new_zeros), by_token(value, value.new_zeros)
        of_bias = torch.empty_like(weights) if ctx.needs_input_grad[3] else None
        arrays = (query, key, value, weights, change, of_query, of_key, of_value, of_bias)
        call("backward", arrays, ctx.sizes, (query, key, value, change, of_query, of_key))
        return of_query, of_key, of_value, None if of_bias is None else of_bias.sum_to_size(ctx.bias), None
