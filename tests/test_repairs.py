"""Accuracy that is computed from wrong contexts, next to what was sampled."""

from __future__ import annotations

from pathlib import Path

import pytest

from abc_nb.analysis import repairs
from abc_nb.analysis.results import Results
from abc_nb.common import paths

FOUND = Results("quick", "shipped", [0, 1, 2, 3, 4])


def test_predicted_shares_stand_beside_samples() -> None:
    frame = repairs.predicted(Results("quick", "shipped", [0]))
    assert {60, 200, 10**6} <= {*frame.length} and {*frame.seed} == {0}
    sampled = frame.dropna()
    assert len(sampled) > 10 and sampled.predicted.between(sampled.ci_low, sampled.ci_high).all()
    shown = repairs.side_by_side(frame)
    assert [*shown.columns] == ["task", "model", "seed", *repairs.SHOWN]
    assert shown[60].str.fullmatch(r"99\.\d{4}% \(\d+ of 1000\)").all()
    assert shown[10**6].str.fullmatch(r"99\.\d{4}%").all()


def test_without_certificates_tables_are_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "certificates", lambda: tmp_path)
    assert repairs.side_by_side(repairs.predicted(FOUND)).empty
