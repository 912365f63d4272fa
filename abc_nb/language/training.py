"""Training a language model on a mixture: the project's trainer, on rows of text."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from abc_nb.language.mixture import Mixture, TextBatch
from abc_nb.model.transformer import Transformer
from abc_nb.problems.sampling import VALIDATION, generator
from abc_nb.problems.spans import Pattern, ProblemSpan, spans_in, text_of, tokens_of
from abc_nb.training.evaluation import evaluating
from abc_nb.training.progress import TrainingConfig
from abc_nb.training.trainer import Batches, Trainer
from abc_nb.training.writer import logits, rows_of

TEXTS = 64  # rows of held-out text
MISSED = 256  # problems that are kept to be met again


def losses(model: Transformer, batch: TextBatch) -> tuple[Tensor, Tensor]:
    """The cross-entropy of every token but the first, (rows, tokens - 1), in nats, and whether it was the likeliest."""
    inputs = [text[:-1] for text in batch.texts]
    found = logits(model, batch.tokens[:, :-1], rows_of(model, inputs))
    wanted = batch.tokens[:, 1:]
    return F.cross_entropy(found.flatten(0, 1), wanted.flatten(), reduction="none").view(wanted.shape), (
        found.argmax(-1) == wanted
    )


class RowBatches(Batches):
    """Rows of text in which half of the problems, where there are some, are those missed lately.

    What it keeps are tokens of solved problems.
    """

    sampler: Mixture  # type: ignore[assignment]

    def again(self, step: int, size: int) -> list[str]:  # type: ignore[override]
        return [text_of(tokens.tolist()) for tokens in self.missed] if self.config.again else []

    def remember(self, batch: TextBatch, wrong: Tensor) -> None:  # type: ignore[override]
        """Keep the problems that had a wrong token, the last ones of `MISSED`; `wrong` is (rows, tokens - 1)."""
        for text, own in zip(batch.texts, wrong.cpu(), strict=True):
            for span in written_out(self.sampler.patterns, text):
                if own[span.equals : span.end].any():
                    self.missed.append(np.array(tokens_of(text[span.start : span.end + 1])))
        self.missed = self.missed[-MISSED:]


class LanguageTrainer(Trainer):
    """The loss is that of every character; validation is on held-out text with problems."""

    sampler: Mixture  # type: ignore[assignment]

    def __init__(self, model: Transformer, mixture: Mixture, config: TrainingConfig, seed: int) -> None:
        super().__init__(model, mixture, config, seed, RowBatches(mixture, config, seed))  # type: ignore[arg-type]

    def gradients(self, batch: TextBatch, phase: Tensor | int) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        self.model.zero_grad()
        loss, right = losses(self.model, batch)
        loss.mean().backward()
        return loss.detach().mean(), ~right

    def validate(self, batches: list[TextBatch], loss: Tensor) -> None:  # type: ignore[override]
        """Add a row to the history: the share of problems answered right, and the loss on held-out text."""
        right = list[bool]()
        for batch in batches:
            with evaluating(self.model) as device:
                _, tokens = losses(self.model, batch.to(device))
            for text, own in zip(batch.texts, tokens.cpu(), strict=True):
                right += [bool(own[s.equals : s.end].all()) for s in written_out(self.sampler.patterns, text)]
        row = {"step": self.progress.step, "seconds": self.progress.seconds, "loss": loss.item()}
        share = sum(right) / max(1, len(right))
        self.progress.history.append(row | {"accuracy": share, "text": text_loss(self.model)})


def written_out(patterns: tuple[Pattern, ...], text: str) -> list[ProblemSpan]:
    """The problems of a row whose answers are written with their ends."""
    return [span for span in spans_in(text, patterns) if span.answer and span.end < len(text)]


def text_loss(model: Transformer, rows: int = TEXTS) -> float:
    """Nats per character of held-out text without problems."""
    mixture, rng = Mixture(()), generator(0, VALIDATION, 1)
    with evaluating(model) as device:
        parts = [losses(model, mixture.rows(rng, 32, held_out=True).to(device))[0] for _ in range(-(-rows // 32))]
    return torch.cat(parts).mean().item()
