"""Problem and answer as one sequence: its bias, and its index.

The first `layout.source_length` tokens are the problem, and the next `layout.target_length` are the answer's inputs
`$ y_1 ... y_n`. The query at the answer's token `i` predicts output token `i`.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad

from abc_nb.bias.base import CLOSED, Added, Bias, OpenKeys, causal
from abc_nb.common.errors import InputError
from abc_nb.problems.layouts import Layout


def token_count(layout: Layout) -> int:
    """How many tokens problem and answer have together."""
    return layout.source_length + layout.target_length


@torch.inference_mode(False)  # kept, and used in training later
def dense_bias(bias: Bias, layout: Layout, layer: int, heads: int) -> Tensor:
    """What is added to one layer's attention logits: (heads, token, token), with minus infinity where a key is closed.

    No token sees one that comes after it. Raises InputError for a bias of other heads.
    """
    sources, outputs = layout.source_length, layout.target_length
    cross, to_self, problem = (bias.dense(layout, name, layer, heads) for name in ("cross", "self", "source"))
    answer_rows = along_keys(as_matrix(cross, outputs, sources), as_matrix(to_self, outputs, outputs))
    problem_rows = pad(as_matrix(problem, sources, sources), (0, outputs), value=CLOSED)
    return torch.cat([of_heads(rows, heads) for rows in (problem_rows, answer_rows)], dim=1) + causal(sources + outputs)


@torch.inference_mode(False)
def open_bias(bias: Bias, layout: Layout, layer: int, heads: int) -> OpenKeys | None:
    """The same as each token's few open keys, or None if the bias does not leave only a few open."""
    cross, to_self, problem = (bias.open_keys(layout, name, layer) for name in ("cross", "self", "source"))
    answer = None if cross is None or to_self is None else over_sequence(cross, to_self, layout.source_length)
    if not isinstance(answer, OpenKeys) or problem is None:
        return None
    slots = max(answer.index.shape[1], problem.index.shape[1])
    padded = [(keys, (0, slots - keys.index.shape[1])) for keys in (problem, answer)]
    index = torch.cat([pad(keys.index, padding) for keys, padding in padded])
    values = [pad(of_heads(keys.value, heads), padding, value=CLOSED) for keys, padding in padded]
    return OpenKeys(index, torch.cat(values, dim=1))


def over_sequence(cross: Added, to_self: Added, sources: int) -> Tensor | OpenKeys:
    """The bias of the answer's queries over problem and answer, which are one sequence in a decoder-only model."""
    if isinstance(cross, OpenKeys) and isinstance(to_self, OpenKeys):
        return OpenKeys(torch.cat([cross.index, to_self.index + sources], 1), along_keys(cross.value, to_self.value))
    assert to_self is not None  # at least causal
    outputs = len(to_self.index) if isinstance(to_self, OpenKeys) else to_self.shape[1]
    matrix = as_matrix(to_self, outputs, outputs)
    return along_keys(as_matrix(cross, outputs, sources).to(matrix.device), matrix)


def as_matrix(bias: Added, queries: int, keys: int) -> Tensor:
    """The same as (heads or 1, query, key); InputError for a matrix of another size, or one with NaN."""
    if bias is None:
        return torch.zeros(1, queries, keys)
    matrix = bias.dense(keys) if isinstance(bias, OpenKeys) else bias
    if matrix.shape[1:] != (queries, keys) or matrix.isnan().any():
        size = f"(heads or 1, {queries}, {keys})"
        raise InputError(f"the bias of this layout is a matrix {size} without NaN, not {tuple(matrix.shape)} as here")
    return matrix


def along_keys(*biases: Tensor) -> Tensor:
    """Biases (heads or 1, query, key) of the same queries, one after the other along the keys."""
    heads = max(map(len, biases))
    return torch.cat([bias.expand(heads, -1, -1) for bias in biases], 2)


def of_heads(values: Tensor, heads: int) -> Tensor:
    """Values (heads or 1, ...) as those of all heads; InputError for a bias of other heads."""
    if len(values) not in (1, heads):
        raise InputError(f"the bias has {len(values)} heads and the model {heads}: they must be the same")
    return values.expand(heads, -1, -1)


def cyclic_positions(layout: Layout, period: int) -> Tensor:
    """Indices from 0 to `period` - 1 of a sequence's tokens (token,), integer.

    A digit of place `p`, counted from the units, has the index `p` modulo the period in operands and answer alike.
    """
    if not isinstance(layout, Layout):
        raise InputError(f"cyclic positions need a Layout, not {layout!r}")
    if not isinstance(period, int) or period < 1:
        raise InputError(f"a period of {period!r} is not possible: give a whole number from 1 on")
    source = torch.from_numpy(layout.source_index("place"))
    return torch.cat([source, torch.arange(layout.target_length)]) % period
