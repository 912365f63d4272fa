"""Weights of 8 bits each: whole numbers up to 127, times a power of two a row; so they are of bfloat16, too."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

EXPONENT = ".exponent"  # end of the name of the exponents of two that belong to a tensor
LARGEST_WEIGHT = 127
LARGEST_OF_5_BITS = 15  # for sums that are not to round: whole numbers of 5 bits


@torch.no_grad()
def round_weights(model: nn.Module, largest: int = LARGEST_WEIGHT) -> None:
    """Round all weights of a model to 8 bits each, or fewer."""
    for weights in model.parameters():
        weights.copy_(value(*split(weights, largest)))


def split(weights: Tensor, largest: int = LARGEST_WEIGHT) -> tuple[Tensor, Tensor]:
    """Whole numbers up to `largest` like `weights`, and an exponent of two for each row; a vector is one row."""
    rows = weights.float().reshape(-1, weights.shape[-1] if weights.ndim else 1)
    exponent = torch.frexp(rows.abs().amax(1)).exponent - largest.bit_length()
    whole = torch.ldexp(rows, -exponent[:, None]).round().clamp(-largest, largest)
    return whole.to(torch.int8).reshape(weights.shape), exponent.to(torch.int8)


def value(whole: Tensor, exponent: Tensor) -> Tensor:
    """The weights (float32) that `split` has taken apart."""
    rows = torch.ldexp(whole.float().reshape(len(exponent), -1), exponent.int()[:, None])
    return rows.reshape(whole.shape)


def packed(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same weights for a file: those that are of 8 bits each are taken apart, others stay in float32."""
    stored: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        whole, exponent = split(tensor)
        exact = value(whole, exponent).equal(tensor)
        stored |= {name: whole, name + EXPONENT: exponent} if exact else {name: tensor.contiguous()}
    return stored


def unpacked(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights (float32) that `packed` was given."""
    return {
        name: value(tensor, tensors[name + EXPONENT]) if name + EXPONENT in tensors else tensor
        for name, tensor in tensors.items()
        if not name.endswith(EXPONENT)
    }
