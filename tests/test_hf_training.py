"""The lines of docs/own-attention.md carry a model of transformers from six digits to sixty."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import abc_nb
from abc_nb import Sampler, Task
from abc_nb.problems.layouts import unary
from abc_nb.problems.sampling import Batch

transformers = pytest.importorskip("transformers")


def sequence(batch: Batch) -> Tensor:
    return torch.cat([batch.source, batch.target[:, :-1]], dim=1)


def train(model: Any, sampler: Sampler, steps: int, attached: Any = None) -> None:
    """A plain loop, in which the loss is that of the answer's tokens alone."""
    optimizer = torch.optim.AdamW(model.parameters(), 5e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 5e-3, total_steps=steps)
    for step in range(steps):
        batch = sampler.training_batch(0, step, 64)
        if attached is not None:
            attached.layout = batch.layout
        logits = model(sequence(batch), use_cache=False).logits[:, batch.layout.source_length :]
        optimizer.zero_grad()
        F.cross_entropy(logits.flatten(0, 1), batch.target[:, 1:].flatten()).backward()
        optimizer.step()
        schedule.step()


@torch.no_grad()
def right(model: Any, batch: Batch) -> float:
    """The share of problems that are answered without a mistake."""
    answers = model(sequence(batch)).logits[:, batch.layout.source_length :].argmax(-1)
    return (answers == batch.target[:, 1:]).all(1).float().mean().item()


@pytest.mark.slow
def test_the_lines_of_the_page_carry_a_llama_from_six_digits_to_sixty() -> None:
    page = Path(__file__).parents[1] / "docs" / "own-attention.md"
    found = re.search(r"```python\n(from abc_nb import hf\n.*?)```", page.read_text(), re.DOTALL)
    assert found is not None
    sampler = Sampler(Task("successor"))
    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 8, "num_key_value_heads": 8}
    more = {
        "vocab_size": len(sampler.task.vocabulary),
        "num_hidden_layers": 2,
        "eos_token_id": None,
        "bos_token_id": None,
    }
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, **more))
    train(model, sampler, 250)
    assert right(model, sampler.test_batch(6, 50, 0)) > 0.9
    assert right(model, sampler.test_batch(20, 50, 0)) < 0.05
    seen, long = sampler.calibration_batch(0, 500), sampler.test_batch(60, 50, 0)
    names: dict[str, Any] = {
        "abc_nb": abc_nb,
        "model": model,
        "token_ids": sequence(seen),
        "layout": unary,
        "train": lambda model, attached: train(model, sampler, 120, attached),
        "prompts": torch.cat([long.source, long.target[:, :1]], dim=1),
    }
    exec(found[1], names)
    answers = names["answers"][:, names["prompts"].shape[1] :]
    assert (answers == long.target[:, 1:]).all(1).float().mean() > 0.95
    assert model.config._attn_implementation == "eager"
