"""Training a language model on a mixture: the project's trainer, on rows of text."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from abc_nb.bias.base import causal
from abc_nb.bias.spans import SpanLines, positions
from abc_nb.language.mixture import Mixture, TextBatch
from abc_nb.model.rows import Rows, logits
from abc_nb.model.transformer import Transformer
from abc_nb.problems.sampling import VALIDATION, generator
from abc_nb.problems.spans import Pattern, Patterns
from abc_nb.training.batches import Batches
from abc_nb.training.evaluation import evaluating
from abc_nb.training.progress import TrainingConfig
from abc_nb.training.trainer import Trainer

TEXTS = 96  # rows of held-out text


def rows_of(model: Transformer, texts: Sequence[str]) -> Rows:
    """Positions and biases of rows of one length, as the model's bias says where problems stand in them."""
    bias, tokens, device = model.config.bias, len(texts[0]), model.head.weight.device
    if not isinstance(bias, SpanLines) or not bias.patterns:
        plain = torch.arange(tokens, device=device).expand(len(texts), -1)
        return Rows(plain, [causal(tokens).to(device)[None]] * model.config.decoder_layers)
    spans, biases = [bias.spans(text) for text in texts], list[Tensor]()
    for layer in range(model.config.decoder_layers):
        repeated = layer > 0 and bias.same(layer - 1, layer)
        biases.append(biases[-1] if repeated else bias.dense(spans, tokens, layer).to(device))
    return Rows(torch.stack([positions(own, tokens) for own in spans]).to(device), biases)


def losses(model: Transformer, batch: TextBatch) -> tuple[Tensor, Tensor]:
    """The cross-entropy of every token but the first, (rows, tokens - 1), in nats, and whether it was the likeliest."""
    inputs = [text[:-1] for text in batch.texts]
    found = logits(model, batch.tokens[:, :-1], rows_of(model, inputs))
    wanted = batch.tokens[:, 1:]
    return F.cross_entropy(found.flatten(0, 1), wanted.flatten(), reduction="none").view(wanted.shape), (
        found.argmax(-1) == wanted
    )


class RowBatches(Batches):
    """What a training is given in each step; `again` are problems that are practised."""

    def __init__(self, mixture: Mixture, config: TrainingConfig, seed: int, again: Sequence[str] = ()) -> None:
        self.mixture, self.config, self.seed, self.practised = mixture, config, seed, again
        self.missed = []

    def batch(self, step: int, size: int) -> TextBatch:  # type: ignore[override]
        return self.mixture.training_batch(self.seed, step, size, self.practised)

    def remember(self, batch: TextBatch, wrong: Tensor) -> None:  # type: ignore[override]
        """Fresh problems are many; those missed are practised after a certificate has found them."""


class LanguageTrainer(Trainer):
    """The loss is that of every character; validation is on held-out text with problems."""

    def __init__(
        self, model: Transformer, mixture: Mixture, config: TrainingConfig, seed: int, again: Sequence[str] = ()
    ) -> None:
        super().__init__(model, mixture, config, seed, RowBatches(mixture, config, seed, again))  # type: ignore[arg-type]

    def gradients(self, batch: TextBatch, phase: Tensor | int) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        for parameter in self.parameters:
            parameter.grad = None
        loss, right = losses(self.model, batch)
        loss.mean().backward()
        return loss.detach().mean(), ~right.all(1)

    def phases(self, step: int, size: int) -> int:
        return 0

    def validate(self, batches: list[TextBatch], loss: Tensor) -> None:  # type: ignore[override]
        """Add a row to the history: the share of problems answered right, and the loss on held-out text."""
        right = [own for batch in batches for own in answered(self.model, batch)]
        row = {"step": self.progress.step, "seconds": self.progress.seconds, "loss": loss.item()}
        share = sum(right) / max(1, len(right))
        self.progress.history.append(row | {"accuracy": share, "text": text_loss(self.model)})


def answered(model: Transformer, batch: TextBatch) -> list[bool]:
    """Of each problem in rows of text whose answer is written, whether one pass gets it and its end right."""
    found = list[bool]()
    patterns = Patterns(patterns_of(model)) if patterns_of(model) else None
    with evaluating(model) as device:
        _, right = losses(model, batch.to(device))
    for text, own in zip(batch.texts, right.cpu(), strict=True):
        spans = patterns.spans(text) if patterns else []
        found += [bool(own[span.equals : span.end].all()) for span in spans if span.answer and span.end < len(text)]
    return found


def patterns_of(model: Transformer) -> tuple[Pattern, ...]:
    bias = model.config.bias
    return bias.patterns if isinstance(bias, SpanLines) else ()


def text_loss(model: Transformer, rows: int = TEXTS, characters: int = 256) -> float:
    """Nats a character of held-out text without problems."""
    mixture, rng = Mixture((), characters), generator(0, VALIDATION, 1)
    with evaluating(model) as device:
        parts = [losses(model, mixture.rows(rng, 32, held_out=True).to(device))[0] for _ in range(-(-rows // 32))]
    return torch.cat(parts).mean().item()
