"""An encoding or a bias is one file of its folder: it is found there by its class."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from abc_nb import bias
from abc_nb.common.collect import collect
from abc_nb.model import positions


def test_a_new_file_is_found_by_its_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "room").mkdir()
    (tmp_path / "room" / "mine.py").write_text("from pathlib import Path\n\n\nclass Mine:\n    pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    try:
        assert [*collect("room", [str(tmp_path / "room")])] == ["Mine"]
    finally:
        for name in ("room", "room.mine"):
            sys.modules.pop(name, None)


def test_encodings_and_biases_are_those_of_the_files() -> None:
    assert positions.Rotary.__module__ == "abc_nb.model.positions.rotary"
    assert bias.ALiBi.__module__ == "abc_nb.bias.alibi"
    with pytest.raises(AttributeError, match="no position encoding is called 'Rotory': there are Abacus"):
        positions.Rotory  # noqa: B018
