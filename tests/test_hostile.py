"""Hostile results: run folders whose checksums are right. Refused in one sentence, and nothing is executed."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import Folders
from helpers import correct_checksums, correct_pack, weights
from safetensors.torch import save_file

from abc_nb.cli import main
from abc_nb.common.errors import InputError
from abc_nb.experiments.experiment import Experiment
from abc_nb.runs import manifest, runner, store
from abc_nb.training.answers import answers

REFUSED = "does not hold the weights of this model"
Tensors = dict[str, torch.Tensor]


# ---- weights ----------------------------------------------------------------------------------------


class Trap:
    """Unpickling it leaves a file behind."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return os.mkdir, (str(self.path),)


def test_weights_that_are_a_pickle_are_refused_and_never_unpickled(run: store.Run, tmp_path: Path) -> None:
    sprung, file = tmp_path / "sprung", run.folder / "weights.safetensors"
    for content in (pickle.dumps(Trap(sprung)), torch_file(Trap(sprung), tmp_path)):
        file.write_bytes(content)
        correct_checksums(run.folder)
        with pytest.raises(InputError, match=REFUSED):
            run.model()
        assert not sprung.exists()
    pickle.loads(pickle.dumps(Trap(sprung)))
    assert sprung.exists(), "the trap itself works"


def torch_file(value: object, folder: Path) -> bytes:
    torch.save(value, folder / "saved.pt")
    return (folder / "saved.pt").read_bytes()


def wider(tensors: Tensors) -> None:
    tensors["head.weight"] = torch.zeros(99, 8)


def turned(tensors: Tensors) -> None:
    tensors["head.weight"] = tensors["head.weight"].T.contiguous()


def fewer(tensors: Tensors) -> None:
    del tensors["head.weight"]


def more(tensors: Tensors) -> None:
    tensors["another.weight"] = torch.zeros(2)


def of_integers(tensors: Tensors) -> None:
    tensors["head.weight"] = tensors["head.weight"].long()


def of_double_precision(tensors: Tensors) -> None:
    tensors["head.weight"] = tensors["head.weight"].double()


@pytest.mark.parametrize("change", [wider, turned, fewer, more, of_integers, of_double_precision])
def test_weights_of_another_model_are_refused(
    change: Callable[[Tensors], None], run: store.Run, tiny: Experiment
) -> None:
    tensors = weights(run.folder)
    change(tensors)
    save_file(tensors, run.folder / "weights.safetensors")
    correct_checksums(run.folder)
    found = store.find(tiny, 0)
    assert found is not None
    with pytest.raises(InputError, match=REFUSED):
        found.model()


def header(text: bytes, length: int | None = None) -> bytes:
    """A safetensors file without data, which says that its header has `length` bytes."""
    return (len(text) if length is None else length).to_bytes(8, "little") + text


TENSOR = b'{"head.weight": {"dtype": "F32", "shape": [%d], "data_offsets": [0, %d]}}'
NO_WEIGHTS = {
    "nothing": b"",
    "text": b"no tensors here",
    "ones": b"\xff" * 64,
    "a header of 2^60 bytes": header(b"{}", 2**60),
    "a header of 2^64 - 1 bytes": header(b"{}", 2**64 - 1),
    "a tensor of 2^60 bytes": header(TENSOR % (2**58, 2**60)),
    "a tensor whose size overflows": header(TENSOR % (2**62, 0)),
    "a header nested deeply": header(b"[" * 100_000),
}


@pytest.mark.parametrize("content", NO_WEIGHTS.values(), ids=NO_WEIGHTS.keys())
def test_weights_that_are_no_tensors_are_refused(content: bytes, run: store.Run) -> None:
    (run.folder / "weights.safetensors").write_bytes(content)
    correct_checksums(run.folder)
    with pytest.raises(InputError, match=REFUSED):
        run.model()


def test_a_parents_weights_are_checked_before_they_are_trained_on(run: store.Run, child: Experiment) -> None:
    (run.folder / "weights.safetensors").write_bytes(header(b"{}", 2**60))
    correct_checksums(run.folder)
    with pytest.raises(InputError, match=REFUSED):
        runner.ensure(replace(child, calibration=None), 0)


def test_weights_that_are_no_numbers_make_a_model_that_answers_nonsense(run: store.Run, tiny: Experiment) -> None:
    """A training that diverged ends so; its result is a result."""
    save_file({name: tensor * torch.nan for name, tensor in weights(run.folder).items()}, run.folder / manifest.WEIGHTS)
    correct_checksums(run.folder)
    assert isinstance(next(answers(run.model(), tiny.sampler, ["99"])), str)


# ---- manifest and configuration ---------------------------------------------------------------------


def rewrite(folder: Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Change the manifest and give it the right checksum."""
    facts = change(json.loads((folder / "manifest.json").read_text()))
    facts.pop("checksum")
    text = facts | {"checksum": manifest.fingerprint(facts)}
    (folder / "manifest.json").write_text(json.dumps(text))


NAMES = ["../../outside", "/dev/zero", "/etc/passwd", "sub/weights.safetensors", ".", "", "a\0b", "x" * 5000, "\x1b[2J"]


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_a_manifest_that_names_a_file_elsewhere_is_damage(
    name: str, run: store.Run, tiny: Experiment, folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folders.runs.parent / "outside").write_text("nobody's business")
    rewrite(run.folder, lambda facts: facts | {"files": facts["files"] | {name: "0" * 64}})
    read: list[Path] = []
    monkeypatch.setattr(manifest, "sha256", lambda path: read.append(path) or "")
    with pytest.warns(UserWarning, match=r"damaged: manifest\.json is not what was written; it is kept in") as caught:
        assert store.find(tiny, 0) is None
    assert not read
    assert str(caught[0].message).isprintable()


@pytest.mark.parametrize("place", ["/dev/zero", "/dev/stdin", "/"])
def test_weights_that_lead_to_a_device_are_damage(place: str, run: store.Run, tiny: Experiment) -> None:
    (run.folder / "weights.safetensors").unlink()
    (run.folder / "weights.safetensors").symlink_to(place)
    with pytest.warns(UserWarning, match="weights.safetensors is not what was written"):
        assert store.find(tiny, 0) is None


@pytest.mark.parametrize("fact", ["steps", "seconds", "device", "shipped"])
def test_a_manifest_without_what_is_shown_of_it_is_damage(fact: str, run: store.Run, tiny: Experiment) -> None:
    rewrite(run.folder, lambda facts: {name: value for name, value in facts.items() if name != fact})
    with pytest.warns(UserWarning, match="manifest.json does not say all that it should"):
        assert store.find(tiny, 0) is None


@pytest.mark.parametrize("file", ["evaluation.csv", "history.csv", "bias.json", "thresholds.csv"])
def test_a_manifest_without_a_file_that_the_run_needs_is_damage(
    file: str, calibrated: store.Run, child: Experiment
) -> None:
    (calibrated.folder / file).unlink()
    correct_checksums(calibrated.folder)
    with pytest.warns(UserWarning, match="manifest.json does not say all that it should"):
        assert store.find(child, 0) is None


JSON = [b"[]", b"3", b"null", b'"manifest"', b"[" * 100_000, b'{"files": 3}', b'{"files": [1]}', b"\xff\xfe\xff"]


@pytest.mark.parametrize("content", JSON, ids=range(len(JSON)))
@pytest.mark.parametrize("name", ["manifest.json", "config.json"])
def test_anything_else_in_place_of_manifest_or_configuration_is_set_aside(
    name: str, content: bytes, run: store.Run, tiny: Experiment
) -> None:
    (run.folder / name).write_bytes(content)
    if name == "config.json":
        correct_checksums(run.folder)
    wanted = "manifest.json is not what was written" if name == "manifest.json" else "holds another experiment"
    with pytest.warns(UserWarning, match=wanted):
        assert store.find(tiny, 0) is None


def test_a_huge_file_is_checked_in_parts(tmp_path: Path) -> None:
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(2**28)
    tracemalloc.start()
    manifest.sha256(tmp_path / "huge")
    assert tracemalloc.get_traced_memory()[1] < 2**22
    tracemalloc.stop()


def test_a_hostile_shipped_result_is_one_sentence_of_the_command(
    run: store.Run,
    tiny: Experiment,
    folders: Folders,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("abc_nb.experiments.experiment", lambda *_: tiny)
    monkeypatch.setattr("abc_nb.api.experiment", lambda *_: tiny)
    shipped = store.ship(run, weights=True)
    shutil.rmtree(run.folder)
    (shipped / "weights" / f"{run.key}.safetensors").write_bytes(header(b"{}", 2**60))
    correct_pack(shipped)
    capsys.readouterr()
    assert main(["compute", "successor-vanilla", "99"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert REFUSED in line
