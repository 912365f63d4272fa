"""Digit arrays from integers and back, tiny models and trainings, run folders, processes, evaluation rows."""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F
from hypothesis import strategies as st
from torch import Tensor

from abc_nb.bias.base import Attention, OpenKeys, key_count
from abc_nb.calibration.calibrate import Calibration
from abc_nb.model.positions import Sinusoidal
from abc_nb.model.transformer import ModelConfig, Transformer
from abc_nb.problems.layouts import Layout, binary_aligned, binary_natural, unary
from abc_nb.problems.sampling import Batch, Sampler
from abc_nb.problems.tasks import Task
from abc_nb.problems.text import VOCABULARY
from abc_nb.runs.store import TABLES, Run
from abc_nb.specs.experiment import Name
from abc_nb.specs.spec import Spec, spec
from abc_nb.training.evaluation import exact_match, wilson
from abc_nb.training.fit import Progress, Training
from abc_nb.training.problems import training_on
from abc_nb.training.recipe import TrainingConfig


def places_of(number: int, base: int) -> int:
    """How many digits a number has; zero has one."""
    return len(np.base_repr(number, base))


def array(numbers: Sequence[int], base: int, places: int) -> np.ndarray:
    """Digits (numbers, places), least significant first."""
    return np.array([[number // base**place % base for place in range(places)] for number in numbers])


def integers(digits: np.ndarray, base: int) -> list[int]:
    """The numbers whose digits are given, least significant first."""
    return [sum(digit * base**place for place, digit in enumerate(row)) for row in digits.tolist()]


def layouts(widths: st.SearchStrategy[int]) -> st.SearchStrategy[Layout]:
    """Layouts of one number or two, side by side or place by place, and of a number with a factor of a digit."""
    return st.one_of(
        st.builds(unary, widths, st.sampled_from(["", "SM"])),
        st.builds(binary_natural, widths, st.just("+"), widths),
        st.builds(binary_natural, widths, st.just("*"), st.just(1)),
        st.builds(binary_aligned, widths, st.just("+")),
    )


def table(places: Sequence[int], shape: tuple[int, int]) -> Layout:
    """The layout of a product that is written as a table of so many rows and columns."""
    flat = binary_natural(places[0], "*", places[1])
    return replace(flat, target_length=shape[0] * shape[1] + 1, row_length=shape[1], above=(1,))


def half_trained(config: ModelConfig, batch: Batch, vocabulary_size: int, seed: int = 0) -> Transformer:
    """A model that has learned between 20% and 80% of one batch by heart."""
    torch.manual_seed(seed)
    model = Transformer(config, vocabulary_size)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for _ in range(600):
        share = exact_match(model, batch).float().mean().item()
        if share > 0.2:
            break
        logits = model(batch.source, batch.target[:, :-1], batch.layout)
        optimizer.zero_grad()
        F.cross_entropy(logits.flatten(0, 1), batch.target[:, 1:].flatten()).backward()
        optimizer.step()
    assert 0.2 < share < 0.8, f"the model knows {share:.0%} of the batch"
    return model


CHROMIUM = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
CHROMIUM += ["--disable-sync", "--no-first-run"]
TINY = ModelConfig(width=8, heads=2, feed_forward=16, encoder_layers=1, decoder_layers=1)
SHORT = TrainingConfig(steps=8, batch=8, held_batch=8, warmup=2, again=3, validate_every=3, validation=12)
SAMPLER = Sampler(Task("addition"), width_count=3)


def build(config: ModelConfig = TINY, sampler: Sampler = SAMPLER, seed: int = 0) -> Transformer:
    torch.manual_seed(seed)
    return Transformer(config, len(sampler.task.vocabulary))


def new_training(config: TrainingConfig = SHORT, model: ModelConfig = TINY, seed: int = 0) -> Training:
    return training_on(build(model, seed=seed), SAMPLER, config, seed=0)


def rates_of(run: Training) -> list[float]:
    """Of the last step, an optimiser each."""
    return [optimizer.param_groups[0]["lr"] for optimizer in run.optimizers]


def all_rates(run: Training, path: Path | None = None) -> list[float]:
    """Train to the end and give each step's rate, AdamW's."""
    rates: list[float] = []
    run.run(path, lambda progress: rates.append(rates_of(run)[0]))
    return rates


def interrupt(run: Training, path: Path, stopped: int = 5) -> None:
    """Train with a checkpoint after each step, stop after step `stopped`, and leave the checkpoint of step 4."""
    run.checkpoint_seconds = -1.0

    def report(progress: Progress) -> None:
        if progress.step == 4:
            shutil.copy(path, path.with_suffix(".kept"))
        if progress.step == stopped:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run.run(path, report)
    path.with_suffix(".kept").replace(path)


def assert_same_weights(first: Training, second: Training) -> None:
    torch.testing.assert_close(first.model.state_dict(), second.model.state_dict(), rtol=0, atol=0)


def tiny_experiment() -> Spec:
    """An experiment that trains in a fraction of a second."""
    return replace(
        spec("successor-vanilla", "smoke"),
        model=ModelConfig(width=8, heads=2, feed_forward=16, decoder_layers=1),
        training=TrainingConfig(steps=4, batch=8, warmup=2, validate_every=2, validation=8),
        tests=((1, 5), (3, 5)),
    )


def renamed(experiment: Spec, model: str) -> Spec:
    """The same experiment as if its model had this name."""
    return replace(experiment, identity=replace(experiment.identity, model=model))


def longer_experiment() -> Spec:
    """The tiny one with thirty validations, so that it can be killed in between."""
    tiny = renamed(tiny_experiment(), "longer")
    return replace(tiny, training=replace(tiny.training, steps=60, hold=60, learned=2.0, validate_every=2))


def child_of(parent: Spec) -> Spec:
    """An experiment that calibrates and retrains the tiny one."""
    return replace(
        parent,
        identity=Name("successor", "abc", 10),
        parent=parent,
        calibration=Calibration(share=0.2),
        start="parent",
        sampler=replace(parent.sampler, width_count=3),
        model=replace(parent.model, position=Sinusoidal(3)),
    )


def random_attention(layout: Layout, name: Attention, heads: int, seed: int, contrast: float = 1.0) -> Tensor:
    """Attention (head, query, key) of random logits; the higher the contrast, the fewer keys hold most of it."""
    rng = torch.Generator().manual_seed(seed)
    logits = contrast * torch.randn(heads, layout.target_length, key_count(layout, name), generator=rng)
    if name == "self":
        logits = logits.masked_fill(torch.ones_like(logits).triu(1).bool(), -float("inf"))
    return logits.softmax(-1)


def never(progress: Progress) -> None:
    raise AssertionError("nothing was to be trained")


def assert_same_result(first: Run, second: Run) -> None:
    """The same weights and results, to the bit; seconds may differ."""
    assert first.checksum == second.checksum
    for table in TABLES:
        one, other = (run.table(table).drop(columns="seconds", errors="ignore") for run in (first, second))
        pd.testing.assert_frame_equal(one, other, check_dtype=False)


def rows(model: str, accuracy: dict[int, list[float]], task: str = "Addition") -> pd.DataFrame:
    """Evaluation rows: for each length, one accuracy a seed."""
    made = [
        {"task": task, "model": model, "seed": seed, "regime": "tight", "length": length, "samples": 1000}
        | {"correct": round(1000 * value), "accuracy": value}
        | dict(zip(("ci_low", "ci_high"), wilson(round(1000 * value), 1000), strict=True))
        for length, values in accuracy.items()
        for seed, value in enumerate(values)
    ]
    return pd.DataFrame(made)


def assert_open_keys_are(keys: OpenKeys, matrix: Tensor) -> None:
    """Slot by slot the dense matrix (heads, query, key), with no key twice in a head's row."""
    for head, rows_of_head in enumerate(matrix):
        for query, expected in enumerate(rows_of_head):
            pairs = zip(keys.index[query].tolist(), keys.value[head, query].tolist(), strict=True)
            opened = [(index, value) for index, value in pairs if value > -float("inf")]
            assert len({index for index, _ in opened}) == len(opened)
            row = torch.full_like(expected, -float("inf"))
            for index, value in opened:
                row[index] = value
            torch.testing.assert_close(row, expected, rtol=0, atol=0)


def one_token_a_character() -> Any:
    """A tokenizer of `transformers`, with a token more, of the number 0, for the beginning of a text and padding."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {word: number for number, word in enumerate(["<s>", *VOCABULARY])}
    found = Tokenizer(models.WordLevel(words, unk_token="<s>"))
    found.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    found.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=found, bos_token="<s>", pad_token="<s>")
