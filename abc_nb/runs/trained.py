"""A model whose training has ended, of whatever kind, and what a run keeps of it."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import pandas as pd

from abc_nb.bias import Bias
from abc_nb.certificates.certify import Certificate
from abc_nb.model.transformer import Transformer
from abc_nb.training.recipe import Validation


@dataclass(frozen=True)
class Trained:
    """The model, and what stands in its run's record."""

    model: Transformer
    steps: int = 0
    seconds: float = 0.0  # of training, over all attempts
    history: Sequence[Validation] = ()
    bias: Bias | None = None  # read out of a parent's attention
    thresholds: pd.DataFrame = field(default_factory=pd.DataFrame)  # that calibration tried
    facts: Mapping[str, Any] = field(default_factory=dict)
    certificates: Sequence[Certificate] = ()

    @property
    def proofs(self) -> list[dict[str, Any]]:
        """The certificates as plain data."""
        return [asdict(certificate) for certificate in self.certificates]
