"""Writing files: the old content or the new, and nothing left beside them."""

import errno
import os
import time
from pathlib import Path

import pytest

from abc_nb.common import files
from abc_nb.common.files import replacement, write_bytes, write_text


def test_a_file_is_written_whole_and_its_folder_made(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "table.csv"
    assert write_text(path, "ä\n") == path
    assert write_bytes(path, b"new") == path
    assert path.read_bytes() == b"new"
    assert [*path.parent.iterdir()] == [path]


def test_an_error_leaves_the_old_content_and_nothing_beside_it(tmp_path: Path) -> None:
    path = write_text(tmp_path / "table.csv", "old")
    with pytest.raises(ZeroDivisionError), replacement(path) as temporary:
        temporary.write_text("half")
        raise ZeroDivisionError
    assert path.read_text() == "old"
    assert [*tmp_path.iterdir()] == [path]


@pytest.mark.parametrize("known", [False, True])
def test_an_error_of_the_system_names_the_file_that_was_to_be_written(tmp_path: Path, known: bool) -> None:
    path = tmp_path / "table.csv"
    with (
        pytest.raises(OSError, match=r"No space left on device: '.*/table\.csv'") as caught,
        replacement(path) as temporary,
    ):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), *([str(temporary)] if known else []))
    assert caught.value.filename == str(path)


def test_an_error_about_another_file_keeps_its_name(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="'elsewhere'"), replacement(tmp_path / "table.csv"):
        Path("elsewhere").read_text()


def test_what_killed_processes_left_is_removed_once_it_is_old(tmp_path: Path) -> None:
    for name, age in ((".tmp-1-table.csv", 2), (".tmp-2-table.csv", 0.5), (".tmp-1-other.csv", 2)):
        (tmp_path / name).touch()
        then = time.time() - age * files.ABANDONED
        os.utime(tmp_path / name, (then, then))
    write_text(tmp_path / "table.csv", "new")
    assert {path.name for path in tmp_path.iterdir()} == {".tmp-2-table.csv", ".tmp-1-other.csv", "table.csv"}
