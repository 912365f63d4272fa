"""Attention compiled for this processor from `attention.c`, where a C compiler is there.

Why there is C in this package: with it training Addition's plain model takes 0.7 of the processor time that it takes
with PyTorch's own attention, and a context of a certificate a third. Models under a window train as fast without.

A run's record says which one computed: this one on a processor with a C compiler, for the head sizes below and float32;
PyTorch's own elsewhere. Both round differently (by 5e-5 in logits). What is compiled is kept in a folder
of the user's, which the environment variable ABC_NB_CACHE moves.
"""

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import threading
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from abc_nb.common.devices import processor
from abc_nb.common.files import replacement
from abc_nb.model.dropout import drop_threshold, random_numbers

SOURCE = Path(__file__).with_name("attention.c")
THREADS = ("-fopenmp", "-fopenmp-simd")  # OpenMP, whose threads PyTorch has, too; without it one thread
FLAGS = ("-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-fPIC", "-shared")
REAL = {torch.float32: ("-DREAL=float", "-DINT=int32_t"), torch.float64: ("-DREAL=double", "-DINT=int64_t")}
HEAD_SIZES = (8, 4, 16)  # for larger ones PyTorch's is as fast
LOCK = threading.Lock()
MOST_ON_STACK = 2**15  # numbers of all keys of a head, which lie on the stack


def can_attend(query: Tensor, keys: int) -> bool:
    """Whether the compiled attention is there for such queries (batch, head, query, size) and number of keys."""
    size, on_cpu = query.shape[-1], query.device.type == "cpu"
    return on_cpu and query.dtype == torch.float32 and size * keys <= MOST_ON_STACK and kernels(size) is not None


def kernels(size: int) -> ctypes.CDLL | None:
    """`forward` and `backward` for a head size; None where they cannot be compiled, or PyTorch's is as fast."""
    return load_library(f"-DSIZE={size}") if size in HEAD_SIZES else None


def few_keys(size: int, heads: int, dtype: torch.dtype) -> ctypes.CDLL | None:
    """`mix` for a head size, a number of heads and a type of numbers; None where it cannot be compiled."""
    return load_library(f"-DSIZE={size}", f"-DHEADS={heads}", *REAL[dtype]) if dtype in REAL else None


def load_library(*defined: str) -> ctypes.CDLL | None:
    """The compiled library, with OpenMP if it is there; one thread after the other compiles."""
    with LOCK:
        return next(filter(None, (compiled_library(threads, *defined) for threads in THREADS)), None)


@cache
def compiled_library(*defined: str) -> ctypes.CDLL | None:
    """Functions of `attention.c`, kept for the next process on the same processor; None where it cannot be compiled."""
    compiler, text = shutil.which(os.environ.get("CC") or "cc"), SOURCE.read_text(encoding="utf-8")
    if compiler is None:
        return None
    avx2 = ["-mno-avx512f"] * (torch.backends.cpu.get_cpu_capability() == "AVX2")  # as ATEN_CPU_CAPABILITY can ask
    command = [compiler, *FLAGS, *avx2, *defined, str(SOURCE), "-lm"]
    facts = [text, *command, platform.machine(), processor("flags", "Features")]
    try:
        path = folder() / f"attention-{hashlib.sha256(repr(facts).encode()).hexdigest()[:16]}.so"
        if not path.exists():
            with replacement(path) as temporary:
                subprocess.run([*command, "-o", str(temporary)], check=True, capture_output=True)
        return ctypes.CDLL(str(path))
    except (OSError, RuntimeError, subprocess.CalledProcessError):  # RuntimeError: there is no home
        return None


def folder() -> Path:
    """Where compiled files are kept."""
    own_cache, user_cache = (os.environ.get(name) for name in ("ABC_NB_CACHE", "XDG_CACHE_HOME"))
    return Path(own_cache) if own_cache else (Path(user_cache) if user_cache else Path.home() / ".cache") / "abc_nb"


def call(library: ctypes.CDLL | None, name: str, arrays: list[Tensor | None], *numbers: int | float) -> None:
    """Call a function, which takes no array for None; each must lie in a processor's memory without gaps."""
    assert library is not None
    for x in arrays:
        if x is not None and not (x.device.type == "cpu" and x.is_contiguous()):
            raise TypeError(f"{name} takes arrays without gaps on a processor, and not {x.shape} on {x.device}")
    pointers = [ctypes.c_void_p(None if x is None else x.data_ptr()) for x in arrays]
    kinds = (ctypes.c_double(x) if isinstance(x, float) else ctypes.c_int64(x) for x in numbers)
    getattr(library, name)(*pointers, *kinds)


def attend(query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, dropout: float = 0.0) -> Tensor:
    """softmax(query key^T / sqrt(size) + bias) value: (batch, head, query, size). `can_attend` must hold.

    The bias broadcasts to (batch, head, query, key). A query without an open key gives zero. What is of another type
    than the queries is converted. `dropout` is the probability with which a weight is dropped.
    """
    by_token = (x.to(query).transpose(1, 2).contiguous() for x in (query, key, value))  # as a linear layer gives them
    mixed: Tensor = Compiled.apply(*by_token, None if bias is None else bias.to(query), dropout)
    return mixed.transpose(1, 2)


class Compiled(torch.autograd.Function):
    """The compiled attention for PyTorch's gradients, of arrays (batch, token, head, size)."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, dropout: float) -> Tensor:
        batch, queries, heads, _ = query.shape
        shape = (batch, heads, queries, key.shape[1])
        if key.shape != value.shape or key.shape != (batch, shape[3], *query.shape[2:]):
            raise TypeError(f"queries {query.shape}, keys {key.shape} and values {value.shape} do not fit together")
        added = None if bias is None else bias.expand(*bias.shape[:-2], *shape[2:]).contiguous()
        steps = (0, 0) if added is None else added.expand(shape).stride()[:2]
        out, weights = torch.empty_like(query), query.new_empty(shape) if any(ctx.needs_input_grad) else None
        arrays = [query, key, value, added, random_numbers(shape) if dropout else None, out, weights]
        numbers = (*shape, *steps, torch.get_num_threads(), drop_threshold(dropout), 1 / (1 - dropout))
        call(kernels(query.shape[-1]), "forward", arrays, *numbers)
        if weights is not None:
            ctx.save_for_backward(query, key, value, weights)
            ctx.bias, ctx.dropout = None if bias is None else bias.shape, dropout
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, weights = ctx.saved_tensors
        changes = torch.empty_like(query), torch.zeros_like(key), torch.zeros_like(value)
        of_bias = torch.empty_like(weights) if ctx.needs_input_grad[3] else None
        arrays = [query, key, value, weights, gradients[0].to(query).contiguous(), *changes, of_bias]
        numbers = (*weights.shape, torch.get_num_threads(), int(ctx.dropout > 0), 1 / (1 - ctx.dropout))
        call(kernels(query.shape[-1]), "backward", arrays, *numbers)
        return *changes, None if of_bias is None else of_bias.sum_to_size(ctx.bias), None
