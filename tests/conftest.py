"""What several test files need: one thread, hypothesis without timings, temporary folders, tiny experiments."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import processes
import pytest
import torch
from helpers import child_of, tiny_experiment
from hypothesis import HealthCheck, settings

import audit  # noqa: F401 (its models and tasks are known by name)
from abc_nb.common import paths
from abc_nb.runs import runner, store
from abc_nb.specs.spec import Spec, spec

os.environ["PYTHONPATH"] = str(paths.ROOT)  # of kernels and commands: the audit and the examples are not installed
os.environ.setdefault("OMP_NUM_THREADS", "1")  # of notebooks' kernels, since a worker runs on each core
torch.set_num_threads(1)  # what the store trains with; bit-for-bit comparisons need a fixed count
settings.register_profile("suite", deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")
LONGEST = ("notebooks", "slow")  # marks


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Notebooks first, then other slow tests: two workers that take the longest first end at the same time."""
    items.sort(
        key=lambda item: next((i for i, name in enumerate(LONGEST) if item.get_closest_marker(name)), len(LONGEST))
    )


@pytest.fixture(autouse=True, scope="session")
def no_runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test reads or moves what was trained in this checkout."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("ABC_NB_RUNS", str(tmp_path_factory.mktemp("none")))
        yield


@pytest.fixture(scope="session")
def forked_kernels() -> Iterator[None]:
    with processes.forked_kernels():
        yield


@pytest.fixture(scope="session")
def chromium() -> str:
    """The browser's program. Without it a test is skipped; where CI is set, its absence is a failure."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None and os.environ.get("CI"):
        pytest.fail("Chromium is not installed: apt-get install chromium")
    return found or pytest.skip("Chromium is not installed")


@pytest.fixture
def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    """FlexAttention computes at once: tracing it, as it does when it is called alone, takes most of the time."""
    monkeypatch.setattr("torch.nn.attention.flex_attention._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)


class Folders(NamedTuple):
    """Where this test's runs and shipped results are."""

    runs: Path
    shipped: Path


def made_in(folder: Path, chosen: Spec) -> store.Run:
    """A run in a folder of its own, which several tests read or copy."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("ABC_NB_RUNS", str(folder))
        return runner.ensure(chosen, 0)


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folders:
    """Empty folders in place of the project's runs/ and results/."""
    monkeypatch.setenv("ABC_NB_RUNS", str(tmp_path / "runs"))
    monkeypatch.setattr(paths, "SHIPPED", tmp_path / "shipped")
    return Folders(tmp_path / "runs", tmp_path / "shipped")


@pytest.fixture
def figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder for figures and tables."""
    monkeypatch.setenv("ABC_NB_FIGURES", str(tmp_path / "figures"))
    (tmp_path / "figures").mkdir()
    return tmp_path / "figures"


@pytest.fixture(scope="session")
def tiny() -> Spec:
    return tiny_experiment()


@pytest.fixture(scope="session")
def child(tiny: Spec) -> Spec:
    return child_of(tiny)


@pytest.fixture(scope="session")
def vanilla(tmp_path_factory: pytest.TempPathFactory) -> store.Run:
    """A plain model of Addition that has learned next to nothing, so that most of its digits are wrong."""
    return made_in(tmp_path_factory.mktemp("vanilla"), spec("addition-vanilla", "smoke"))


@pytest.fixture(scope="session")
def trained(child: Spec, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of runs that holds the child and its parent, to be copied."""
    return made_in(tmp_path_factory.mktemp("calibrated"), child).folder.parent


def copied(trained: Path, chosen: Spec, folders: Folders) -> store.Run:
    """A finished run, copied into this test's runs folder."""
    shutil.copytree(trained / chosen.key(0), folders.runs / chosen.key(0))
    return runner.ensure(chosen, 0)


@pytest.fixture
def run(trained: Path, tiny: Spec, folders: Folders) -> store.Run:
    return copied(trained, tiny, folders)


@pytest.fixture
def calibrated(trained: Path, child: Spec, folders: Folders) -> store.Run:
    return copied(trained, child, folders)
