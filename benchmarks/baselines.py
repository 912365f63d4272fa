"""What people run today, to measure against: PyTorch's own Transformer and greedy decoding."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from abc_nb.model.transformer import ModelConfig
from abc_nb.problems.sampling import Batch


class TorchTransformer(nn.Module):
    """The same model built of `torch.nn.Transformer`: layers, sizes, dropout, pre-normalisation, sinusoids."""

    def __init__(self, config: ModelConfig, vocabulary_size: int, longest: int = 256) -> None:
        super().__init__()
        options = {"dim_feedforward": config.feed_forward, "dropout": config.dropout}
        self.transformer = nn.Transformer(
            config.width, config.heads, config.encoder_layers, config.decoder_layers, **options,
            batch_first=True, norm_first=True,
        )  # fmt: skip
        self.embedding, self.head = (
            nn.Embedding(vocabulary_size, config.width),
            nn.Linear(config.width, vocabulary_size),
        )
        self.dropout = nn.Dropout(config.dropout)
        position = config.position.embedding(torch.arange(longest), config.width)
        self.register_buffer("position", torch.zeros(longest, config.width) if position is None else position)

    def embed(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens) * self.embedding.embedding_dim**0.5
        embedded: Tensor = self.dropout(x + self.position[: tokens.shape[1]])
        return embedded

    def decode(self, target: Tensor, memory: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1], device=target.device)
        x = self.transformer.decoder(self.embed(target), memory, tgt_mask=mask, tgt_is_causal=True)
        logits: Tensor = self.head(x)
        return logits

    def loss(self, batch: Batch) -> Tensor:
        logits = self.decode(batch.target[:, :-1], self.transformer.encoder(self.embed(batch.source)))
        return F.cross_entropy(logits.flatten(0, 1), batch.target[:, 1:].flatten())


@torch.inference_mode()
def decode_from_the_start(model: TorchTransformer, batch: Batch) -> Tensor:
    """Greedy decoding that computes the whole prefix anew for every token, as the authors' code does."""
    memory = model.transformer.encoder(model.embed(batch.source))
    tokens = batch.target[:, :1]
    for _ in range(batch.layout.target_length):
        tokens = torch.cat([tokens, model.decode(tokens, memory)[:, -1:].argmax(-1)], dim=1)
    return tokens[:, 1:]
