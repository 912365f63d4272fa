"""What a layout fixes for a model."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from abc_nb.bias.base import Added, OpenKeys


@dataclass(frozen=True)
class Frame:
    """Positions of source and target tokens, and every layer's biases.

    A layer has the biases of the decoder's attentions: `self` and `cross`; in a decoder-only model `sequence`, of the
    answer's queries over problem and answer, and `problem`, of the problem to itself.
    """

    source: Tensor  # (S,)
    target: Tensor  # (L,)
    queries: Tensor  # (L,), or (1,) in a decoding step: the target positions asked about
    biases: tuple[dict[str, Added], ...]

    def row(self, step: int) -> Frame:
        """The frame of one decoding step."""
        return self.cut(slice(step, step + 1), len(self.target))

    def first(self, count: int) -> Frame:
        """The frame of the first output tokens alone; being causal, they do not depend on those after them."""
        return self.cut(slice(count), count)

    def cut(self, rows: slice, outputs: int) -> Frame:
        """Some queries alone, and the first outputs alone as keys."""
        sources = len(self.source)
        keys = {"self": outputs, "cross": sources, "sequence": sources + outputs}
        biases = tuple(
            {name: bias if name == "problem" else cut_bias(bias, rows, keys[name]) for name, bias in layer.items()}
            for layer in self.biases
        )
        return Frame(self.source, self.target[:outputs], self.queries[rows], biases)


def cut_bias(bias: Added, rows: slice, keys: int) -> Added:
    if isinstance(bias, OpenKeys):
        return OpenKeys(bias.index[rows].clamp(max=keys - 1), bias.value[:, rows])
    return None if bias is None else bias[:, rows, :keys]
