"""Averaged attention of a causal language model of `transformers`, in the form that calibration reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from abc_nb.bias.base import Attention
from abc_nb.bias.sequence import token_count
from abc_nb.common.errors import InputError
from abc_nb.hf.attach import under_own
from abc_nb.problems.layouts import Layout
from abc_nb.training.evaluation import evaluating

if TYPE_CHECKING:
    from transformers import PreTrainedModel

ROWS = 64  # sequences at once


def averaged_attention(
    model: PreTrainedModel, token_ids: Tensor, layout: Layout
) -> dict[tuple[Attention, int], Tensor]:
    """Weights (head, query, key) of each attention and layer, the mean over problems of one layout.

    `token_ids` (batch, source_length + target_length) hold one token for a digit: the problem, and then the answer's
    input tokens. Of a model under a bias, the weights are those under the bias. The result goes to
    `bias_from_attention`. Raises InputError for tokens that do not fit the layout, and as `attach` does.
    """
    check_tokens(token_ids, layout)
    sums: list[Tensor] = []
    with under_own(model, layout) as handle, handle.lent(handle.bias, layout), evaluating(model) as device:
        for part in token_ids.split(ROWS):
            found = model(input_ids=part.to(device), output_attentions=True, use_cache=False).attentions
            of_part = [weights.float().sum(0) for weights in found]
            sums = [old + new for old, new in zip(sums, of_part, strict=True)] if sums else of_part
    split, averages = layout.source_length, dict[tuple[Attention, int], Tensor]()
    for layer, total in enumerate(sums):
        mean = (total / len(token_ids)).cpu()
        averages["cross", layer] = mean[:, split:, :split]
        averages["self", layer] = mean[:, split:, split:]
        averages["source", layer] = mean[:, :split, :split]
    return averages


def check_tokens(token_ids: Tensor, layout: Layout) -> None:
    if not isinstance(layout, Layout):
        raise InputError(f"{layout!r} is no layout: give a Layout, which says where the operands stand")
    if not isinstance(token_ids, Tensor) or token_ids.ndim != 2 or token_ids.is_floating_point() or not len(token_ids):
        raise InputError("give token ids as a tensor of integers (batch, tokens)")
    if token_ids.shape[1] != token_count(layout):
        raise InputError(
            f"a sequence has {token_ids.shape[1]} tokens and the layout {token_count(layout)}: give the problem and "
            "the answer's input tokens, with one token for each digit, which a tokenizer must not merge"
        )
