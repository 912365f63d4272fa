"""Sweeps on a Dask cluster: a real scheduler and real workers, each a process of its own on the loopback address."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import sys
import warnings
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import dask
import distributed
import pandas as pd
import pytest
from conftest import Folders
from dask_processes import Cluster, dask_process, kill, started
from filelock import FileLock
from helpers import assert_same_result, history, holds, longer_experiment, renamed, step_of, wait_for

from abc_nb.cli import main
from abc_nb.common import paths
from abc_nb.common.errors import InputError
from abc_nb.experiments.experiment import Experiment, experiment
from abc_nb.model.positions import Learned
from abc_nb.runs import cluster, runner, sweep, workers
from abc_nb.training import trainer as training


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A scheduler with two workers."""
    with started(tmp_path_factory.mktemp("dask"), workers=2) as both:
        with distributed.Client(both.address, set_as_default=False) as client:
            client.wait_for_workers(2, timeout=300)
        yield both


def assert_same_as_in_turn(folders: Folders, chosen: Experiment, seed: int) -> None:
    made = folders.runs / chosen.key(seed)
    aside = made.rename(folders.runs / f"aside-{made.name}")
    assert sweep.sweep([(chosen, seed)], show=False, in_turn=True) == []
    assert_same_result(aside, made)


# ---- a short form of what the long tests check ------------------------------------------------------


@pytest.mark.slow
def test_a_worker_trains_what_this_process_trains_in_turn_and_reports_what_fails(
    folders: Folders, tiny: Experiment, tmp_path: Path
) -> None:
    broken = replace(renamed(tiny, "broken"), model=replace(tiny.model, position=Learned(longest=2)))
    with started(tmp_path, workers=1) as alone, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "no Dask worker has come yet")
        (failure,) = sweep.sweep([(broken, 0), (tiny, 0)], dask=alone.address)
    assert failure.name == "successor-broken"
    assert "positions are too many" in failure.error
    assert not [*folders.runs.glob(".sweep-*")]
    assert_same_as_in_turn(folders, tiny, 0)


def test_a_run_ends_with_its_sweep_and_keeps_its_checkpoint(
    folders: Folders, tiny: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "INTERVAL", -1.0)
    monkeypatch.setattr(training, "CHECKPOINT_SECONDS", -1.0)
    with cluster.marked(folders.runs) as mark:
        reported: list[tuple[str, int, int]] = []

        def log_event(topic: str, step: tuple[str, int, int]) -> None:
            reported.append(step)
            mark.rename(mark.with_name("moved"))

        worker = SimpleNamespace(state=SimpleNamespace(nthreads=1), log_event=log_event)
        monkeypatch.setattr(distributed, "get_worker", lambda: worker)
        with pytest.raises(cluster.Stopped):
            cluster.work(mark, tiny, 0)
        mark.with_name("moved").rename(mark)
    assert reported == [(tiny.name, 0, 1)]
    checkpoint = folders.runs / ".partial" / tiny.key(0) / runner.CHECKPOINT
    assert step_of(checkpoint) == 2


def test_runs_that_are_cancelled_mean_a_lost_scheduler(
    folders: Folders, tiny: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cancelled(*_: object) -> Future[None]:
        future: Future[None] = Future()
        future.cancel()
        future.set_running_or_notify_cancel()
        return future

    pool = SimpleNamespace(submit=cancelled, shutdown=lambda wait: None)
    client = SimpleNamespace(subscribe_topic=lambda *_: None, get_executor=lambda pure: pool)
    monkeypatch.setattr(cluster, "connect", lambda address: nullcontext(client))
    monkeypatch.setattr(cluster, "check", lambda *_: None)
    with pytest.raises(InputError, match="lost the Dask scheduler at tcp://host:1: start it again"):
        sweep.sweep([(tiny, 0)], show=False, dask="tcp://host:1")


# ---- sweeping ---------------------------------------------------------------------------------------


@pytest.mark.long
def test_workers_train_what_this_process_trains_in_turn(folders: Folders, tiny: Experiment, pair: Cluster) -> None:
    jobs = [(tiny, 0), (renamed(tiny, "other"), 1), (tiny, 2)]
    assert sweep.sweep(jobs, dask=pair.address) == []
    assert sweep.missing(jobs) == []
    assert not [*folders.runs.glob(".sweep-*")]
    for job in jobs:
        assert_same_as_in_turn(folders, *job)


@pytest.mark.long
def test_a_run_that_fails_is_reported_and_the_others_go_on(folders: Folders, tiny: Experiment, pair: Cluster) -> None:
    broken = replace(renamed(tiny, "broken"), model=replace(tiny.model, position=Learned(longest=2)))
    failures = sweep.sweep([(broken, 0), (tiny, 0)], show=False, dask=pair.address)
    assert [(failure.name, failure.seed) for failure in failures] == [("successor-broken", 0)]
    assert "positions are too many" in failures[0].error
    assert sweep.missing([(tiny, 0)]) == []


@pytest.mark.long
def test_a_stopped_sweep_stops_its_workers_too(folders: Folders, pair: Cluster) -> None:
    script = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from abc_nb.cli import main;"
        f"raise SystemExit(main(['sweep', 'successor-vanilla', '--dask', '{pair.address}']))"
    )
    client = subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE, text=True)
    key = experiment("successor-vanilla").key(0)
    checkpoint = folders.runs / ".partial" / key / runner.CHECKPOINT
    wait_for(checkpoint.exists)
    client.send_signal(signal.SIGINT)
    _, said = client.communicate(timeout=180)
    assert client.returncode == 130
    assert said.splitlines()[-1] == "abc-nb: stopped; the same command goes on from the last checkpoint"
    with FileLock(folders.runs / ".locks" / f"{key}.lock", timeout=30):
        assert checkpoint.exists()
        assert sweep.missing([(experiment("successor-vanilla"), 0)])


@pytest.mark.long
def test_the_run_of_a_lost_worker_goes_on_from_its_checkpoint_on_another(folders: Folders, pair: Cluster) -> None:
    """Seconds, in a history, are those of the process that trained; a run begun anew would have others."""
    longer = longer_experiment()
    lock = folders.runs / ".locks" / f"{longer.key(0)}.lock"
    checkpoint = folders.runs / ".partial" / longer.key(0) / runner.CHECKPOINT
    with ThreadPoolExecutor(1) as thread:
        swept = thread.submit(sweep.sweep, [(longer, 0)], False, dask=pair.address)
        wait_for(lambda: len(history(checkpoint)) > 2)
        before = history(checkpoint)
        (busy,) = [worker for worker in pair.workers if holds(worker.pid, lock)]
        kill(busy)
        assert not swept.done()
        assert swept.result(timeout=300) == []
    after = runner.ensure(longer, 0).history()
    pd.testing.assert_frame_equal(after[: len(before)], before, check_dtype=False, rtol=1e-12)
    assert len(after) == 30
    assert_same_as_in_turn(folders, longer, 0)


@pytest.mark.long
def test_a_lost_scheduler_is_one_sentence(folders: Folders, tiny: Experiment, tmp_path: Path) -> None:
    with started(tmp_path, workers=0) as alone, ThreadPoolExecutor(1) as thread:
        with pytest.warns(UserWarning, match="no Dask worker has come yet"):
            swept = thread.submit(sweep.sweep, [(tiny, 0)], False, dask=alone.address)
            wait_for(lambda: [*folders.runs.glob(".sweep-*")] != [])
            wait_for(lambda: swept.done() or asked(alone.address))
        kill(alone.scheduler)
        with pytest.raises(InputError, match=f"lost the Dask scheduler at {alone.address}: start it again"):
            swept.result(timeout=180)


def asked(address: str) -> bool:
    """Whether the scheduler has been given a run."""
    with distributed.Client(address, set_as_default=False) as client:
        return client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks)) > 0


# ---- TLS --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """ca.pem; node.pem and node.key, which it signed; and stranger.pem and stranger.key, which it did not."""
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl to make certificates with")
    folder = tmp_path_factory.mktemp("certificates")

    def openssl(arguments: str) -> None:
        subprocess.run(["openssl", *arguments.split()], cwd=folder, check=True, capture_output=True)

    new = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"
    for name in ("ca", "stranger"):
        openssl(f"req -x509 {new} -keyout {name}.key -out {name}.pem -days 2 -subj /CN={name}")
    openssl(f"req {new} -keyout node.key -out node.csr -subj /CN=node")
    openssl("x509 -req -in node.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -out node.pem")
    return folder


def settings_of_client(folder: Path, name: str) -> dict[str, str]:
    tls = {"ca-file": "ca.pem", "client.cert": f"{name}.pem", "client.key": f"{name}.key"}
    return {f"distributed.comm.tls.{setting}": str(folder / file) for setting, file in tls.items()}


def unreachable() -> AbstractContextManager[object]:
    return pytest.raises(InputError, match="cannot reach a Dask scheduler")


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:no Dask worker has come yet")
def test_a_sweep_over_tls_needs_a_certificate_that_the_cluster_trusts(
    folders: Folders, tiny: Experiment, tmp_path: Path, certificates: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "PATIENCE", 5)
    environment = {"COMM__REQUIRE_ENCRYPTION": "true", "COMM__TLS__CA_FILE": str(certificates / "ca.pem")}
    for role in ("SCHEDULER", "WORKER"):
        environment |= {f"COMM__TLS__{role}__CERT": str(certificates / "node.pem")}
        environment |= {f"COMM__TLS__{role}__KEY": str(certificates / "node.key")}
    with started(tmp_path, workers=1, protocol="tls", **environment) as secured:
        assert secured.address.startswith("tls://127.0.0.1:")
        with unreachable():
            sweep.sweep([(tiny, 0)], show=False, dask=secured.address.replace("tls", "tcp"))
        with dask.config.set(settings_of_client(certificates, "stranger")), unreachable():
            sweep.sweep([(tiny, 0)], show=False, dask=secured.address)
        with dask.config.set(settings_of_client(certificates, "node")):
            assert sweep.sweep([(tiny, 0)], show=False, dask=secured.address) == []
    assert sweep.missing([(tiny, 0)]) == []


# ---- bad input --------------------------------------------------------------------------------------


COUNTED = "runs asked for: 1, to be made: 1\n"


def refused(capsys: pytest.CaptureFixture[str], *arguments: str, said: str = COUNTED) -> str:
    """The one sentence of a sweep that cannot begin, and on the other stream what it had `said` before."""
    capsys.readouterr()
    assert main(["sweep", "successor-vanilla", "--profile", "smoke", *arguments]) == 2
    out, err = capsys.readouterr()
    (line,) = err.splitlines()
    assert out == said
    assert line.startswith("abc-nb: ")
    return line


@pytest.mark.parametrize("listens", [False, True], ids=["nobody", "something else"])
def test_where_no_scheduler_answers_is_one_sentence(
    listens: bool, folders: Folders, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "PATIENCE", 1)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        if not listens:
            server.close()
        assert f"cannot reach a Dask scheduler at '{address}': " in refused(capsys, "--dask", address)
    assert not folders.runs.exists()


@pytest.mark.parametrize("address", ["", "host", "host:port", "http://host:1", "inproc://host"])
def test_an_address_that_is_none_is_one_sentence(
    address: str, folders: Folders, capsys: pytest.CaptureFixture[str]
) -> None:
    assert f"cannot reach a Dask scheduler at '{address}': " in refused(capsys, "--dask", address)


def test_tls_without_certificates_is_one_sentence(folders: Folders, capsys: pytest.CaptureFixture[str]) -> None:
    assert "distributed.comm.tls.ca-file" in refused(capsys, "--dask", "tls://127.0.0.1:1")


def test_without_dask_a_sentence_says_how_to_install_it(
    folders: Folders, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert "pip install -e '.[dask]'" in refused(capsys, "--dask", "tcp://127.0.0.1:1")


def test_a_sweep_is_either_in_turn_or_on_a_cluster(folders: Folders, capsys: pytest.CaptureFixture[str]) -> None:
    assert "not allowed with" in refused(capsys, "--in-turn", "--dask", "tcp://127.0.0.1:1", said="")


def test_a_worker_of_many_threads_or_without_our_folder_is_not_fit(tmp_path: Path) -> None:
    def worker(threads: int) -> SimpleNamespace:
        return SimpleNamespace(state=SimpleNamespace(nthreads=threads))

    with cluster.marked(tmp_path / "runs") as mark:
        cluster.fit(mark, worker(1))
        with pytest.raises(InputError, match="it has 4 threads"):
            cluster.fit(mark, worker(4))
    with pytest.raises(InputError, match=f"does not see {tmp_path / 'runs'}: the folder of runs has to be shared"):
        cluster.fit(mark, worker(1))


@pytest.mark.long
def test_a_worker_that_cannot_train_is_named_before_the_sweep(
    folders: Folders, tiny: Experiment, pair: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def elsewhere(runs: Path) -> Iterator[Path]:
        yield runs / "of another machine"

    monkeypatch.setattr(cluster, "marked", elsewhere)
    with pytest.raises(InputError, match=r"the Dask worker tcp://\S+ cannot train: .* has to be shared"):
        sweep.sweep([(tiny, 0)], show=False, dask=pair.address)
    assert sweep.missing([(tiny, 0)]) == [(tiny, 0)]
    assert not (paths.runs() / ".partial").exists()


@pytest.mark.long
def test_a_worker_of_many_threads_that_comes_later_trains_nothing(
    folders: Folders, tiny: Experiment, tmp_path: Path
) -> None:
    with started(tmp_path, workers=0) as alone, ThreadPoolExecutor(1) as thread:
        with pytest.warns(UserWarning, match="no Dask worker has come yet"):
            swept = thread.submit(sweep.sweep, [(tiny, 0)], False, dask=alone.address)
            wait_for(lambda: swept.done() or ([*folders.runs.glob(".sweep-*")] != [] and asked(alone.address)))
        with dask_process("worker", alone.address, "--nthreads", "2", "--local-directory", tmp_path):
            (failure,) = swept.result(timeout=300)
    assert "it has 2 threads" in failure.error
    assert sweep.missing([(tiny, 0)]) == [(tiny, 0)]
