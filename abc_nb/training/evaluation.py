"""Evaluation: exact match of the whole output, at any length; answers to typed problems; attention on the way.

Greedy decoding is right exactly if one teacher-forced pass is right at every token: as long as the decoded prefix is
right it is the teacher's, and one wrong token makes both wrong. So accuracy needs one parallel pass.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from math import sqrt

import pandas as pd
import torch
from torch import Tensor, nn

from abc_nb.common.devices import device_of
from abc_nb.common.errors import InputError
from abc_nb.model.attention import AttentionRecord
from abc_nb.model.transformer import Transformer
from abc_nb.problems.layouts import SOS, Layout
from abc_nb.problems.sampling import Batch, Sampler

TEST_SEED = 20240701  # one test set a length, the same for every model
TOKENS = 2**14  # source and target tokens computed at once: what a processor's cache holds is fastest
FIRST_TOKENS = 40  # somewhat more than any training shows, so that most models that fail have failed there


def wilson(correct: int, samples: int) -> tuple[float, float]:
    """The 95% interval of a share (Wilson 1927), as fractions."""
    if samples == 0:
        return 0.0, 1.0
    z = 1.959964  # deviations of a normal distribution
    share, shrink = correct / samples, 1 + z * z / samples
    centre = (share + z * z / (2 * samples)) / shrink
    half = z * sqrt(share * (1 - share) / samples + z * z / (4 * samples * samples)) / shrink
    return 0.0 if correct == 0 else centre - half, 1.0 if correct == samples else centre + half


def batch_parts(batch: Batch) -> list[Batch]:
    """As many problems at a time as are fast to compute together."""
    return batch.split(max(1, TOKENS // (batch.layout.target_length + batch.layout.source_length)))


@contextmanager
def evaluating(model: nn.Module) -> Iterator[torch.device]:
    """Without dropout and gradients, and each module as it was afterwards; gives the model's device."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.inference_mode():
            yield device_of(model)
    finally:
        for module, training in modes:
            module.training = training


def correct_tokens(model: Transformer, batch: Batch, first: int | None = None) -> Tensor:
    """Which output tokens, all or the `first` ones, a teacher-forced pass gets right: booleans (batch, tokens)."""
    correct = []
    with evaluating(model) as device:
        for part in (part.to(device) for part in batch_parts(batch)):
            logits = model(part.source, part.target[:, :-1][:, :first], batch.layout)
            correct.append((logits.argmax(-1) == part.target[:, 1:][:, :first]).cpu())
    return torch.cat(correct)


def exact_match(model: Transformer, batch: Batch) -> Tensor:
    """Which problems are answered without a wrong token: booleans (batch,)."""
    hopeless, correct = False, []  # after a part without a right one, first tokens alone, unless these are right
    for part in batch_parts(batch):
        part_correct = correct_tokens(model, part, FIRST_TOKENS if hopeless else None).all(1)
        if hopeless and part_correct.any():
            part_correct = correct_tokens(model, part).all(1)
        hopeless = not part_correct.any()
        correct.append(part_correct)
    return torch.cat(correct)


def evaluate(model: Transformer, sampler: Sampler, tests: Iterable[tuple[int, int]]) -> pd.DataFrame:
    """Rows of accuracy with its Wilson 95% interval for each (length, samples); InputError for no samples."""
    rows = []
    for length, samples in tests:
        if samples < 1:
            raise InputError(f"{samples} problems of {length} digits are too few: ask for one at least")
        correct = exact_match(model, sampler.test_batch(length, samples, TEST_SEED))
        rows.append((length, len(correct), int(correct.sum())))
    return with_intervals(pd.DataFrame(rows, columns=["length", "samples", "correct"], dtype=int))


def with_intervals(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows, which have `samples` and `correct`, with their accuracy, a fraction, and `ci_low` to `ci_high`."""
    bounds = [wilson(correct, samples) for correct, samples in zip(rows.correct, rows.samples, strict=True)]
    intervals = pd.DataFrame(bounds, rows.index, ["ci_low", "ci_high"], float)
    return rows.assign(accuracy=rows.correct / rows.samples).join(intervals)


def greedy(model: Transformer, source: Tensor, layout: Layout, start: int) -> Tensor:
    """Greedy decoding with cached keys and values: tokens (batch, target_length), from the `start` token."""
    outputs = []
    with evaluating(model):
        frame, cache = model.start(source, layout)
        tokens = torch.full((len(source),), start, device=source.device)
        for step in range(layout.target_length):
            tokens = model.step(tokens, step, frame, cache).argmax(-1)
            outputs.append(tokens)
        return torch.stack(outputs, dim=1)


def in_float64(model: Transformer) -> Transformer:
    """A copy that computes in float64 and without dropout, on a processor where the device has no such numbers."""
    copied = deepcopy(model).eval()
    return (copied.cpu() if copied.head.weight.device.type == "mps" else copied).double()


def answers(model: Transformer, sampler: Sampler, expressions: Iterable[str], trace: bool = False) -> Iterator[str]:
    """The answers to typed problems, in order, decoded greedily; zeros typed in front of a number count.

    In float64, for which certificates hold: so every answer of a certified model is right.
    With `trace` the table comes first that the model wrote. InputError for a task without one, or for a problem that
    cannot be read or has too many digits for the model.
    """
    task, model = sampler.task, in_float64(model)
    device = model.head.weight.device
    for expression in expressions:
        batch = sampler.typed_batch(expression)
        tokens = greedy(model, batch.source.to(device), batch.layout, task.token(SOS))[0].tolist()
        table = task.written_table(tokens, batch.layout, task.read(expression)) + "\n" if trace else ""
        yield table + task.write(tokens, batch.layout)


def attention_of(
    model: Transformer, batch: Batch, inputs: Tensor | None = None, average: bool = False
) -> AttentionRecord:
    """All attention of one pass over the decoder's `inputs` (batch, target_length), by default teacher-forced."""
    attention, inputs = AttentionRecord(average), batch.target[:, :-1] if inputs is None else inputs
    with evaluating(model) as device:
        model(batch.source.to(device), inputs.to(device), batch.layout, record=attention)
    return attention
