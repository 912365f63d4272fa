"""A causal language model on this package's problems: trained, tested, and calibrated."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from abc_nb.bias.base import Attention
from abc_nb.bias.lines import Lines
from abc_nb.bias.sequence import token_count
from abc_nb.calibration.calibrate import Calibration, checked_settings
from abc_nb.calibration.calibrate_model import Calibrated, as_mask, sparsest
from abc_nb.common.errors import InputError
from abc_nb.hf.attach import attached_or_zero
from abc_nb.hf.handle import Attached
from abc_nb.hf.passes import as_layout
from abc_nb.problems.layouts import Layout
from abc_nb.problems.sampling import Batch, Sampler
from abc_nb.training.evaluation import evaluating
from abc_nb.training.fit import fit
from abc_nb.training.recipe import OneCycle

if TYPE_CHECKING:
    from transformers import PreTrainedModel

RATE, ROWS = 5e-3, 64  # learning rate at its highest; problems of a batch


def sequence(batch: Batch) -> Tensor:
    """Problems and the answers' input tokens, one after the other: (batch, tokens), integer."""
    return torch.cat([batch.source, batch.target[:, :-1]], dim=1)


def train(
    model: PreTrainedModel, sampler: Sampler, steps: int, attached: Attached | None = None, seed: int = 0
) -> None:
    """AdamW under a one-cycle learning rate; the loss is that of the answer's tokens alone.

    The model's vocabulary is the task's. `attached` is the handle of the bias that is on the model, if one is.
    """

    def losses(step: int, rows: int) -> Iterator[Tensor]:
        batch = sampler.training_batch(seed, step, rows).to(model.device)
        logits = answer_logits(model, batch, attached)
        yield F.cross_entropy(logits.flatten(0, 1), batch.target[:, 1:].flatten())

    fit(model, losses, OneCycle(steps, ROWS, RATE), seed)


def answer_logits(model: PreTrainedModel, batch: Batch, attached: Attached | None = None) -> Tensor:
    """Logits (batch, answer token, vocabulary) of each token of the answer, given those before it."""
    if attached is not None:
        attached.layout = batch.layout
    return model(sequence(batch), use_cache=False).logits[:, batch.layout.source_length :]


def correct_tokens(model: PreTrainedModel, batch: Batch, attached: Attached | None = None) -> Tensor:
    """Which tokens of the answers are right, given those before them: booleans (batch, answer token)."""
    with evaluating(model) as device:
        parts = [part.to(device) for part in batch.split(ROWS)]
        correct = [answer_logits(model, part, attached).argmax(-1) == part.target[:, 1:] for part in parts]
    return torch.cat(correct).cpu()


def exact_match(model: PreTrainedModel, batch: Batch, attached: Attached | None = None) -> float:
    """The share of problems, from 0 to 1, that are answered without a wrong token."""
    return correct_tokens(model, batch, attached).all(1).float().mean().item()


def calibrate_model(model: PreTrainedModel, batch: Batch, settings: Calibration | None = None) -> Calibrated:
    """A bias from a model's own attention on problems that it was trained on, as `abc_nb.calibrate_model` reads it.

    Without a fixed share the sparsest lines are taken under which the model still gets `keep` of its answers' tokens
    right. Of a model under a bias, that is its attention under the bias, and the lines are tried in the bias's place.
    Raises InputError as `attach` does.
    """
    with attached_or_zero(model, batch.layout) as handle:
        averages = averaged_attention(model, sequence(batch), batch.layout)

        def skill(bias: Lines) -> float:
            with handle.lent(bias=as_mask(bias), layout=batch.layout):
                return correct_tokens(model, batch, handle).float().mean().item()

        return sparsest(averages, batch.layout, checked_settings(settings), skill)


def averaged_attention(
    model: PreTrainedModel, token_ids: Tensor, layout: Layout
) -> dict[tuple[Attention, int], Tensor]:
    """Weights (head, query, key) of each attention and layer, the mean over problems of one layout.

    `token_ids` (batch, source_length + target_length) hold one token for a digit: the problem, and then the answer's
    input tokens. Of a model under a bias, the weights are those under the bias. The result goes to
    `bias_from_attention`. Raises InputError for tokens that do not fit the layout, and as `attach` does.
    """
    as_layout(layout)
    integers, count = isinstance(token_ids, Tensor) and not token_ids.is_floating_point(), token_count(layout)
    if not integers or token_ids.shape[1:] != (count,) or not len(token_ids):
        raise InputError(
            f"give token ids as a tensor of integers (batch, tokens), with {count} tokens, which are the problem and "
            "the answer's input tokens: one for each digit, which a tokenizer must not merge"
        )
    split, averages = layout.source_length, dict[tuple[Attention, int], Tensor]()
    with attached_or_zero(model, layout) as handle, handle.lent(layout=layout), evaluating(model) as device:
        for part in token_ids.split(ROWS):
            attentions = model(input_ids=part.to(device), output_attentions=True, use_cache=False).attentions
            for layer, weights in enumerate(attentions):
                mean = weights.float().sum(0).cpu() / len(token_ids)
                parts: dict[Attention, Tensor] = {"cross": mean[:, split:, :split], "self": mean[:, split:, split:]}
                for name, part_mean in (parts | {"source": mean[:, :split, :split]}).items():
                    averages[name, layer] = averages.get((name, layer), torch.zeros_like(part_mean)) + part_mean
    return averages
