"""Optimisers that do not load the compiler of PyTorch.

PyTorch's optimisers load it to ask it to leave their methods alone. It takes two seconds of every process that
trains, and nothing here uses it.
"""

from __future__ import annotations

import inspect

import torch
from torch.optim import Optimizer


class Uncompiled(Optimizer):
    """An optimiser whose methods are PyTorch's without what asks the compiler."""

    add_param_group = inspect.unwrap(Optimizer.add_param_group)
    state_dict = inspect.unwrap(Optimizer.state_dict)
    load_state_dict = inspect.unwrap(Optimizer.load_state_dict)


class AdamW(Uncompiled, torch.optim.AdamW):
    """`torch.optim.AdamW`; it computes the same, bit for bit."""

    step = torch.no_grad()(inspect.unwrap(torch.optim.AdamW.step))
