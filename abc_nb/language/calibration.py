"""ABC at problems: lines of each pattern, read out of a plain model's own attention inside of problems."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from abc_nb.bias.base import Attention
from abc_nb.bias.lines import Lines, lines_of_keys
from abc_nb.bias.text import ITSELF, SpanLines
from abc_nb.calibration.calibrate import Calibration
from abc_nb.calibration.calibrate_model import SHARES, sparsest
from abc_nb.certificates.fingerprints import determined
from abc_nb.certificates.text import SpanContexts
from abc_nb.language.mixture import TextBatch, draw, solved
from abc_nb.model.attention import AttentionRecord
from abc_nb.model.transformer import Transformer
from abc_nb.problems.layouts import Layout
from abc_nb.problems.sampling import CALIBRATION, generator
from abc_nb.problems.text import END, EQUALS, Pattern, spans_in
from abc_nb.training.evaluation import evaluating
from abc_nb.training.writer import logits_of_texts, spans_of_rows

FINER_SHARES = sorted({*SHARES, 0.17, 0.14, 0.12}, reverse=True)  # that are tried, a few more than elsewhere
PROBLEMS, BATCH = 512, 64  # problems over which attention is averaged, so many at a time


def calibrate_text(model: Transformer, settings: Calibration, longest: int, seed: int) -> SpanLines:
    """The lines of every pattern, from problems of training length."""
    patterns = model.config.bias.patterns
    lines = [calibrate_pattern(model, pattern, settings, longest, seed) for pattern in patterns]
    return SpanLines(model.config.heads, patterns, tuple(lines))


def calibrate_pattern(model: Transformer, pattern: Pattern, settings: Calibration, longest: int, seed: int) -> Lines:
    """The sparsest lines under which what an answer's token sees determines it, or those of a fixed share.

    A token before the `=` sees itself alone. One of an answer sees no more than the lines, lest a digit that equals it
    be lost beside it.
    """
    layers, texts = model.config.decoder_layers, problems(pattern, longest, seed)
    layout = replace(spans_in(texts[0], [pattern])[0].layout, target_length=len(texts[0].partition(EQUALS)[2]))
    itself = lines_of_keys((), ITSELF[:1], model.config.heads, layers).lines

    def completed(lines: Lines) -> Lines:
        return Lines(lines.heads, (*lines.lines, *itself), empty="closed")

    def determines(lines: Lines) -> float:
        return float(determined(SpanContexts(completed(lines), layers, pattern)))

    averages = average_attention_of_answers(model, texts, layout)
    return completed(sparsest(averages, layout, settings, determines, FINER_SHARES).bias)


def problems(pattern: Pattern, longest: int, seed: int) -> list[str]:
    """Solved problems with numbers of so many digits, whose answers have the most frequent length."""
    rng, lengths = generator(seed, CALIBRATION), [longest] * len(pattern.short)
    texts = [solved(pattern, draw(pattern, lengths, rng)) for _ in range(3 * PROBLEMS)]
    length = int(np.bincount([len(text) for text in texts]).argmax())
    return [text for text in texts if len(text) == length][:PROBLEMS]


def average_attention_of_answers(
    model: Transformer, texts: Sequence[str], layout: Layout
) -> dict[tuple[Attention, int], Tensor]:
    """Mean attention of the answers' tokens to the problem and to the answer, (head, query, key), of each layer.

    All texts are of the one layout.
    """
    sources, sums = layout.source_length, dict[tuple[Attention, int], Tensor]()
    for first in range(0, len(texts), BATCH):
        batch = TextBatch.of([text.removesuffix(END) for text in texts[first : first + BATCH]])
        record = AttentionRecord()
        with evaluating(model) as device:
            logits_of_texts(model, batch.tokens.to(device), spans_of_rows(model, batch.texts), record=record)
        for (_, layer), weights in record.weights.items():
            total = weights[:, :, sources:].sum(0).cpu()
            parts: dict[Attention, Tensor] = {"cross": total[..., :sources], "self": total[..., sources:]}
            for name, part in parts.items():
                sums[name, layer] = sums.get((name, layer), torch.zeros_like(part)) + part
    return {key: total / len(texts) for key, total in sums.items()}
