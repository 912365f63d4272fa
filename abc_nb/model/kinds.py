"""The kinds of model that a configuration can ask for."""

from __future__ import annotations

from abc_nb.model.decoder_only import DecoderOnly
from abc_nb.model.transformer import ModelConfig, Transformer

KINDS: dict[str, type[Transformer]] = {"encoder-decoder": Transformer, "decoder-only": DecoderOnly}


def build(config: ModelConfig, vocabulary_size: int) -> Transformer:
    """A new model with weights drawn from torch's generator."""
    return KINDS[config.kind](config, vocabulary_size)
