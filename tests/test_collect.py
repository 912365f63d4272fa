"""An encoding or a bias is one file of its folder: it is found there by its class."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from abc_nb.common.collect import collect
from abc_nb.model import positions


def test_a_new_file_is_found_by_its_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "room").mkdir()
    (tmp_path / "room" / "mine.py").write_text("class Mine:\n    pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert [*collect("room", [str(tmp_path / "room")])] == ["Mine"]
    for name in ("room", "room.mine"):
        sys.modules.pop(name, None)


def test_what_is_in_no_file_is_said_with_what_there_is() -> None:
    with pytest.raises(AttributeError, match="no position encoding is called 'Rotory': there are Abacus"):
        positions.Rotory  # noqa: B018
