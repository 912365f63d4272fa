"""Optimisers: what they compute is PyTorch's, and a process that trains does not load PyTorch's compiler."""

from __future__ import annotations

import copy
import subprocess
import sys
from pathlib import Path

import torch
from torch import nn

from abc_nb.training.optimizers import AdamW


def test_adamw_computes_what_pytorchs_does_bit_for_bit_also_after_it_is_restored() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3))
    models = [model, copy.deepcopy(model)]
    kinds: list[type[torch.optim.AdamW]] = [AdamW, torch.optim.AdamW]
    options = {"lr": 0.01, "betas": (0.9, 0.98), "weight_decay": 0.1, "fused": True}
    optimizers = [kind(each.parameters(), **options) for kind, each in zip(kinds, models, strict=True)]  # type: ignore[arg-type]
    for step in range(6):
        problems = torch.randn(4, 5)
        for each, optimizer in zip(models, optimizers, strict=True):
            optimizer.zero_grad()
            each(problems).square().sum().backward()
            optimizer.step()
        if step == 2:  # each goes on from a copy of the other's state
            states = [copy.deepcopy(optimizer.state_dict()) for optimizer in optimizers]
            for optimizer, state in zip(optimizers, reversed(states), strict=True):
                optimizer.load_state_dict(state)
    torch.testing.assert_close(models[0].state_dict(), models[1].state_dict(), rtol=0, atol=0)
    torch.testing.assert_close(optimizers[0].state_dict(), optimizers[1].state_dict(), rtol=0, atol=0)


TRAIN = """
import sys
from pathlib import Path

from abc_nb.model.transformer import ModelConfig, Transformer
from abc_nb.problems.sampling import Sampler
from abc_nb.problems.tasks import Task
from abc_nb.training import trainer
from abc_nb.training.progress import TrainingConfig

trainer.CHECKPOINT_SECONDS = -1.0
sampler = Sampler(Task("addition"))
config = ModelConfig(width=8, heads=2, feed_forward=16, encoder_layers=1, decoder_layers=1)
for optimizer in ("adamw", "muon"):
    recipe = TrainingConfig(steps=2, batch=8, warmup=1, validate_every=1, validation=8, optimizer=optimizer)
    for _ in range(2):  # the second goes on from the first one's checkpoint
        model = Transformer(config, len(sampler.task.vocabulary))
        trainer.Trainer(model, sampler, recipe, seed=0).run(Path(sys.argv[1], optimizer))
    print(optimizer, "torch._dynamo" in sys.modules)
"""


def test_training_does_not_load_the_compiler(tmp_path: Path) -> None:
    command = [sys.executable, "-c", TRAIN, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "adamw False\nmuon False\n"
