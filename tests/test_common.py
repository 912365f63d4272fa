"""Configurations as JSON, files that are written whole or not at all, and threads that are given back."""

import errno
import io
import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from IPython.core.interactiveshell import InteractiveShell

from abc_nb.bias import Causal, Window
from abc_nb.bias.lines import Line, Lines
from abc_nb.calibration.calibrate import PAPER, Calibration
from abc_nb.common import config, devices, paths
from abc_nb.common.errors import InputError, reason
from abc_nb.common.files import replacement, write_bytes, write_text
from abc_nb.model.transformer import ModelConfig
from abc_nb.training.recipe import TrainingConfig

LINES = (Line("cross", 0, 1, "antidiagonal", "operand 1", -1, 0.0), Line("self", 1, 0, "vertical", "$", 0, -1.5))
VALUES = [
    Causal(),
    Window(2, "both"),
    Lines(8, LINES, floor=-5.0, empty="closed"),
    PAPER,
    Calibration(source="logits", share=0.1, floor=-5.0),
    TrainingConfig(steps=7, optimizer="adamw"),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_a_value_comes_back_from_json(value: Any) -> None:
    data = json.loads(json.dumps(config.to_data(value)))
    assert config.from_data(data, [type(value), Line]) == value
    assert config.digest(data) == config.digest(config.to_data(value))


def read(**data: Any) -> Callable[[], object]:
    return lambda: config.from_data(data, [Window, Causal])


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Calibration(anchor="operand"), "'operand' is not possible as anchor of a Calibration: choose one of "),  # type: ignore[arg-type]
        (lambda: Calibration(kappa=(1.0,)), "is not possible as kappa of a Calibration"),  # type: ignore[arg-type]
        (read(type="Sigmoid"), "unknown configuration type 'Sigmoid': choose one of Causal, Window"),
        (read(w=1), "unknown configuration type None"),
        (read(type="Window", width=3), "Window has no setting 'width': it takes w, sides"),
        (read(type="Window", w="3"), "the setting 'w' of Window is missing or not of its type"),
        (lambda: TrainingConfig(steps=1.5), "1.5 is not possible as steps of a TrainingConfig"),  # type: ignore[arg-type]
        (lambda: ModelConfig(kind="decoder-only", encoder_layers=1), "a decoder-only model has no encoder"),
    ],
)
def test_what_is_no_configuration_is_one_sentence(make: Callable[[], object], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        make()


def test_a_notebook_shows_the_sentence_and_no_traceback() -> None:
    shell, error = InteractiveShell(), InputError("seed 1 has no weights: train it first")
    with redirect_stdout(io.StringIO()) as shown:
        shell.showtraceback((InputError, error, None))
    assert shown.getvalue().strip() == "InputError: seed 1 has no weights: train it first"


def test_a_file_is_written_whole_and_its_folder_made(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "table.csv"
    assert write_text(path, "ä\n") == path
    assert write_bytes(path, b"new") == path
    assert path.read_bytes() == b"new"
    assert [*path.parent.iterdir()] == [path]


@pytest.mark.parametrize("error", [ZeroDivisionError(), FileNotFoundError(errno.ENOENT, "none", "elsewhere")])
def test_an_error_leaves_the_old_content_with_nothing_beside_it_and_keeps_its_name(
    tmp_path: Path, error: Exception
) -> None:
    """That of another file, which is not the one that was to be written."""
    path, said = write_text(tmp_path / "table.csv", "old"), str(error)
    with pytest.raises(type(error)) as caught, replacement(path) as temporary:
        temporary.write_text("half")
        raise error
    assert str(caught.value) == said
    assert path.read_text() == "old" and [*tmp_path.iterdir()] == [path]


@pytest.mark.parametrize("known", [False, True])
def test_an_error_of_the_system_names_the_file_that_was_to_be_written(tmp_path: Path, known: bool) -> None:
    path = tmp_path / "table.csv"
    with (
        pytest.raises(OSError, match=r"No space left on device: '.*/table\.csv'") as caught,
        replacement(path) as temporary,
    ):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), *([str(temporary)] if known else []))
    assert caught.value.filename == str(path)


def test_a_link_stays_and_what_is_no_regular_file_is_refused(tmp_path: Path) -> None:
    old, link, pipe = write_text(tmp_path / "far" / "old.json", "old"), tmp_path / "link.json", tmp_path / "pipe"
    link.symlink_to(old)
    write_text(link, "new")
    assert link.is_symlink() and old.read_text() == "new" and [*old.parent.iterdir()] == [old]
    os.mkfifo(pipe)
    for path in (pipe, tmp_path, Path("/dev/null")):
        with pytest.raises(InputError, match="is no regular file"):
            write_text(path, "new")
    assert pipe.is_fifo() and {*tmp_path.iterdir()} == {old.parent, link, pipe}


def test_weights_that_the_disk_has_no_room_for_are_an_error_of_the_system(tmp_path: Path) -> None:
    path, limits = write_text(tmp_path / "weights.pt", "old"), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(OSError, match="as on a full disk") as caught, replacement(path) as temporary:
            torch.save({"weights": torch.zeros(10_000)}, temporary)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert str(path) in reason(caught.value) and [*tmp_path.iterdir()] == [path] and path.read_text() == "old"


def test_what_is_made_goes_to_the_checkout_that_one_works_in(tmp_path: Path) -> None:
    """Also with the package of another, which is said; elsewhere it goes to the package's own."""
    work = tmp_path / "clone" / "notebooks"
    work.mkdir(parents=True)
    command = [sys.executable, "-c", "from abc_nb.common import paths; print(paths.HOME, paths.NOTEBOOKS, paths.ROOT)"]
    environment = {**os.environ, "PYTHONPATH": str(paths.ROOT)}
    for name, home in (("other", paths.ROOT), ("abc-nb", tmp_path / "clone")):
        (tmp_path / "clone" / "pyproject.toml").write_text(f'[project]\nname = "{name}"\n')
        done = subprocess.run(command, cwd=work, env=environment, capture_output=True, text=True, check=True)
        assert done.stdout.split() == [str(home), str(home / "notebooks"), str(paths.ROOT)]
        assert ("pip install -e" in done.stderr) == (name == "abc-nb")


@pytest.mark.parametrize("error", [None, ValueError, KeyboardInterrupt])
def test_threads_are_given_back_however_the_work_ends(error: type[BaseException] | None) -> None:
    torch.set_num_threads(3)
    with suppress(ValueError, KeyboardInterrupt), devices.one_thread():
        assert torch.get_num_threads() == 1
        if error is not None:
            raise error
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    assert threads == 3


@pytest.mark.parametrize("where", ["cpu", "cuda"])
def test_matrix_products_may_be_less_exact_on_a_gpu_alone_and_only_in_training(where: str) -> None:
    before = torch.get_float32_matmul_precision()
    with suppress(ValueError), devices.tensor_cores(torch.device(where)):
        assert torch.get_float32_matmul_precision() == ("high" if where == "cuda" else before)
        raise ValueError
    assert torch.get_float32_matmul_precision() == before
