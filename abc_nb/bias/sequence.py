"""Problem and answer as one sequence, as in a decoder-only model: the bias of the answer's queries over both."""

from __future__ import annotations

import torch
from torch import Tensor

from abc_nb.bias.base import Added, OpenKeys


def over_sequence(cross: Added, own: Added, sources: int) -> Tensor | OpenKeys:
    """The biases of cross- and self-attention beside each other; open keys if both of them are."""
    if isinstance(cross, OpenKeys) and isinstance(own, OpenKeys):
        return OpenKeys(torch.cat([cross.index, own.index + sources], 1), beside(cross.value, own.value))
    assert own is not None  # at least causal
    answers = len(own.index) if isinstance(own, OpenKeys) else own.shape[1]
    matrix = as_matrix(own, answers, answers)
    return beside(as_matrix(cross, answers, sources).to(matrix.device), matrix)


def as_matrix(bias: Added, queries: int, keys: int) -> Tensor:
    """The same as (heads or 1, query, key)."""
    if bias is None:
        return torch.zeros(1, queries, keys)
    return bias.dense(keys) if isinstance(bias, OpenKeys) else bias


def beside(*parts: Tensor) -> Tensor:
    """Biases (heads or 1, query, keys of its own) of the same queries, one after the other along the keys."""
    heads = max(len(part) for part in parts)
    return torch.cat([part.expand(heads, -1, -1) for part in parts], 2)
