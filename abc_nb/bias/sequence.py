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
    cross, own, problem = (bias.dense(layout, name, layer, heads) for name in ("cross", "self", "source"))
    answers = along_keys(as_matrix(cross, outputs, sources), as_matrix(own, outputs, outputs))
    of_problem = pad(as_matrix(problem, sources, sources), (0, outputs), value=CLOSED)
    return torch.cat([of_heads(part, heads) for part in (of_problem, answers)], dim=1) + causal(sources + outputs)


@torch.inference_mode(False)
def open_bias(bias: Bias, layout: Layout, layer: int, heads: int) -> OpenKeys | None:
    """The same as each token's few open keys, or None if the bias does not leave only a few open."""
    cross, own, problem = (bias.open_keys(layout, name, layer) for name in ("cross", "self", "source"))
    answers: Added = None if cross is None or own is None else over_sequence(cross, own, layout.source_length)
    if not isinstance(answers, OpenKeys) or problem is None:
        return None
    slots = max(answers.index.shape[1], problem.index.shape[1])
    wider = [(part, (0, slots - part.index.shape[1])) for part in (problem, answers)]
    index = torch.cat([pad(part.index, more) for part, more in wider])
    values = [pad(of_heads(part.value, heads), more, value=CLOSED) for part, more in wider]
    return OpenKeys(index, torch.cat(values, dim=1))


def over_sequence(cross: Added, own: Added, sources: int) -> Tensor | OpenKeys:
    """The bias of the answer's queries over problem and answer, which are one sequence in a decoder-only model."""
    if isinstance(cross, OpenKeys) and isinstance(own, OpenKeys):
        return OpenKeys(torch.cat([cross.index, own.index + sources], 1), along_keys(cross.value, own.value))
    assert own is not None  # at least causal
    answers = len(own.index) if isinstance(own, OpenKeys) else own.shape[1]
    matrix = as_matrix(own, answers, answers)
    return along_keys(as_matrix(cross, answers, sources).to(matrix.device), matrix)


def as_matrix(bias: Added, queries: int, keys: int) -> Tensor:
    """The same as (heads or 1, query, key)."""
    if bias is None:
        return torch.zeros(1, queries, keys)
    return bias.dense(keys) if isinstance(bias, OpenKeys) else bias


def along_keys(*parts: Tensor) -> Tensor:
    """Biases (heads or 1, query, keys of its own) of the same queries, one after the other along the keys."""
    heads = max(len(part) for part in parts)
    return torch.cat([part.expand(heads, -1, -1) for part in parts], 2)


def of_heads(part: Tensor, heads: int) -> Tensor:
    """Values (heads or 1, ...) as those of all heads; InputError for a bias of other heads."""
    if len(part) not in (1, heads):
        raise InputError(f"the bias has {len(part)} heads and the model {heads}: they must be the same")
    return part.expand(heads, -1, -1)


def cyclic_positions(layout: Layout, period: int) -> Tensor:
    """Indices from 0 to `period` - 1 of a sequence's tokens (token,), integer.

    A digit of place `p`, counted from the units, has the index `p` modulo the period in operands and answer alike.
    """
    if not isinstance(layout, Layout) or not isinstance(period, int) or period < 1:
        raise InputError(f"give a Layout and a period of 1 or more, not {layout!r} and {period!r}")
    source = torch.from_numpy(layout.source_index("place"))
    return torch.cat([source, torch.arange(layout.target_length)]) % period
