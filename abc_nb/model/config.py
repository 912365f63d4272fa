"""Everything that shapes a model."""

from dataclasses import dataclass, field
from typing import Literal

from abc_nb.bias.base import ENCODER_DECODER, Attention, Bias, Causal
from abc_nb.common.config import check_fields
from abc_nb.common.errors import InputError
from abc_nb.model.attention import MultiHeadAttention
from abc_nb.model.positions import PositionEncoding, Sinusoidal
from abc_nb.problems.layouts import SourceIndex


@dataclass(frozen=True)
class ModelConfig:
    """A model's sizes and kind (v4 appendix B); the vocabulary size comes from the task."""

    width: int = 64  # D, embedding size
    heads: int = 8
    feed_forward: int = 256
    encoder_layers: int = 0  # 0: the identity encoder of the authors' code
    decoder_layers: int = 2
    norm: Literal["pre"] = "pre"  # LayerNorms come before attention and feed-forward networks
    dropout: float = 0.0
    position: PositionEncoding = field(default_factory=Sinusoidal)
    bias: Bias = field(default_factory=Causal)
    source_index: SourceIndex = "right"  # what source tokens are counted by
    kind: Literal["encoder-decoder", "decoder-only"] = "encoder-decoder"

    def __post_init__(self) -> None:
        check_fields(self)
        if self.kind == "decoder-only" and self.encoder_layers:
            raise InputError(f"a decoder-only model has no encoder: give 0 encoder layers, not {self.encoder_layers}")
        if self.heads < 1 or self.width % self.heads:
            raise InputError(f"{self.heads} heads cannot share a width of {self.width}: choose a multiple of them")

    @property
    def head_size(self) -> int:
        return self.width // self.heads

    @property
    def attentions(self) -> tuple[Attention, ...]:
        """What a decoder layer has; in a decoder-only model problem and answer are one sequence."""
        return ENCODER_DECODER if self.kind == "encoder-decoder" else (*ENCODER_DECODER, "source")

    def attention(self) -> MultiHeadAttention:
        return MultiHeadAttention(self.width, self.heads, self.dropout, self.position)
