"""A causal language model on this package's problems: trained in a plain loop, tested, and calibrated.

`transformers.Trainer` is not needed: it wants one more package (accelerate), and the layout of a bias is to be set
before each batch, which a loop does in a line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from abc_nb.bias.lines import Lines
from abc_nb.calibration.calibrate import Calibration, given
from abc_nb.calibration.of_model import Calibrated, sparsest
from abc_nb.hf.attach import Attached, under_own
from abc_nb.hf.averages import averaged_attention
from abc_nb.problems.sampling import Batch, Sampler

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
    optimizer = torch.optim.AdamW(model.parameters(), RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=steps)
    model.train()
    for step in range(steps):
        batch = sampler.training_batch(seed, step, ROWS).to(model.device)
        logits = answer_logits(model, batch, attached)
        optimizer.zero_grad()
        F.cross_entropy(logits.flatten(0, 1), batch.target[:, 1:].flatten()).backward()
        optimizer.step()
        schedule.step()
    model.eval()


def answer_logits(model: PreTrainedModel, batch: Batch, attached: Attached | None = None) -> Tensor:
    """Logits (batch, answer token, vocabulary) of each token of the answer, given those before it."""
    if attached is not None:
        attached.layout = batch.layout
    logits: Tensor = model(sequence(batch), use_cache=False).logits
    return logits[:, batch.layout.source_length :]


@torch.no_grad()
def correct_tokens(model: PreTrainedModel, batch: Batch, attached: Attached | None = None) -> Tensor:
    """Which tokens of the answers are right, given those before them: booleans (batch, answer token)."""
    parts = [part.to(model.device) for part in batch.split(ROWS)]
    found = [answer_logits(model, part, attached).argmax(-1) == part.target[:, 1:] for part in parts]
    return torch.cat(found).cpu()


def exact_match(model: PreTrainedModel, batch: Batch, attached: Attached | None = None) -> float:
    """The share of problems, from 0 to 1, that are answered without a wrong token."""
    return correct_tokens(model, batch, attached).all(1).float().mean().item()


def calibrate_model(model: PreTrainedModel, batch: Batch, settings: Calibration | None = None) -> Calibrated:
    """A bias from a model's own attention on problems that it was trained on, as `abc_nb.calibrate_model` reads it.

    Without a fixed share the sparsest lines are taken under which the model still gets `keep` of its answers' tokens
    right. Of a model under a bias, that is its attention under the bias, and the lines are tried in the bias's place.
    Raises InputError as `attach` does.
    """
    with under_own(model, batch.layout) as handle:
        averages = averaged_attention(model, sequence(batch), batch.layout)

        def skill(bias: Lines) -> float:
            with handle.lent(bias, batch.layout):
                return correct_tokens(model, batch, handle).float().mean().item()

        return sparsest(averages, batch.layout, given(settings), skill)
