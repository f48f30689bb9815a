"""`tabicl-linear predict --dask`, and what is left of a table when a worker dies."""

import errno
import logging
import os
import signal
import sys
import threading
import time
from pathlib import Path

import dask
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import tiny_model
from dask import dataframe
from distributed import Client, LocalCluster
from distributed.client import _global_clients
from distributed.utils import get_mp_context
from pyarrow import parquet

from tabicl_linear import TabICLLinearClassifier, dask_predict_proba
from tabicl_linear.__main__ import main
from tabicl_linear.cli import predict_dask

# Dask itself leaves sockets to the garbage collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.filterwarnings(
        "ignore:Exception ignored in:pytest.PytestUnraisableExceptionWarning"
    ),
]

METHOD = "distributed.worker.multiprocessing-method"
PRELOADED = [f"tabicl_linear.estimator.{name}" for name in ("classifier", "partitions")]
PRELOADED += ["distributed", "dask.dataframe"]
PARTS = 12
ROWS = 20


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny_model.save(tiny_model.trained(), tmp_path_factory.mktemp("model") / "tiny.ckpt")


@pytest.fixture(scope="module")
def client():
    """Two worker processes, which are started anew when they are killed.

    They are forked from a process that has imported what they need, which takes seconds in each.
    """
    with dask.config.set({METHOD: "forkserver"}):
        get_mp_context().set_forkserver_preload(PRELOADED)
        with (
            LocalCluster(
                n_workers=2,
                threads_per_worker=1,
                dashboard_address=":0",
                silence_logs=logging.CRITICAL,
            ) as cluster,
            Client(cluster) as client,
        ):
            yield client


def table(rows, seed):
    rng = np.random.default_rng(seed)
    y = np.arange(rows) % 3
    frame = pd.DataFrame({"a": y + rng.normal(size=rows), "b": rng.normal(size=rows)})
    frame["kind"] = np.array(["x", "y", None], dtype=object)[rng.integers(0, 3, rows)]
    return frame.assign(y=np.array(["no", "yes", "may, be"])[y])


@pytest.fixture
def folder(tmp_path):
    """A training file, and a table in twelve files."""
    table(70, seed=0).to_parquet(tmp_path / "train.parquet", index=False)
    (tmp_path / "test").mkdir()
    queries = table(PARTS * ROWS, seed=1).drop(columns="y")
    for number in range(PARTS):
        part = queries[number * ROWS : (number + 1) * ROWS]
        part.to_parquet(tmp_path / "test" / f"{number:02d}.parquet", index=False)
    return tmp_path


def run(folder, model, *options, train="train.parquet", test="test", output="out"):
    arguments = [folder / train, folder / test, "--target", "y", "--output", folder / output]
    return main(
        ["predict", *map(str, (*arguments, "--model", model, "--n-estimators", 2, *options))]
    )


def in_process(folder, model):
    train = pd.read_parquet(folder / "train.parquet")
    classifier = TabICLLinearClassifier(model, n_estimators=2)
    classifier.fit(train.drop(columns="y"), train["y"])
    return classifier, classifier.predict_proba(pd.read_parquet(folder / "test"))


def kill(client):
    """Kill one worker process; return its id."""
    process = next(iter(client.run(os.getpid).values()))
    os.kill(process, signal.SIGKILL)
    return process


def until(condition, seconds=120):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


@pytest.mark.slow
def test_every_row_is_scored_once_though_a_worker_is_killed(folder, model, client):
    classifier, expected = in_process(folder, model)
    table = pd.read_parquet(folder / "test")

    def read(number, waiting=folder / "waiting", gate=folder / "gate"):
        """Rows of a partition; the second half waits until a worker has been killed."""
        waiting.mkdir(exist_ok=True)
        (waiting / str(os.getpid())).touch()
        while number >= PARTS // 2 and not gate.exists():
            time.sleep(0.02)
        return table[number * ROWS : (number + 1) * ROWS]

    ddf = dataframe.from_map(read, list(range(PARTS)), meta=table[:0])
    result = client.compute(dask_predict_proba(classifier, ddf))
    until(lambda: (folder / "waiting").exists() and len(list((folder / "waiting").iterdir())) == 2)
    killed = kill(client)
    (folder / "gate").touch()
    outcome = result.result(timeout=200)
    assert outcome.index.tolist() == list(range(PARTS * ROWS))
    np.testing.assert_allclose(outcome, expected, atol=1e-6)
    until(lambda: len(client.scheduler_info()["workers"]) == 2)
    assert killed not in client.run(os.getpid).values()


@pytest.mark.slow
def test_parts_are_whole_and_complete_though_a_worker_is_killed(
    folder, model, client, capsys, monkeypatch
):
    classifier, expected = in_process(folder, model)
    seen, killed = [], []
    write = predict_dask.write_part

    def write_slowly(*arguments):
        time.sleep(0.2)
        return write(*arguments)

    def kill_in_the_middle():
        until(lambda: list(folder.glob(".out.*.partial/part-*.parquet")))
        seen.extend(path.name for path in folder.iterdir())
        killed.append(kill(client))

    monkeypatch.setattr(predict_dask, "write_part", write_slowly)
    killer = threading.Thread(target=kill_in_the_middle)
    killer.start()
    assert run(folder, model, "--dask", client.scheduler.address) == 0
    killer.join()
    assert killed
    assert "out" not in seen
    files = sorted(path.name for path in (folder / "out").iterdir())
    assert files == [f"part-{number:06d}.parquet" for number in range(PARTS)]
    result = pd.read_parquet(folder / "out")
    assert result.columns.tolist() == ["prediction", *(f"proba_{c}" for c in classifier.classes_)]
    np.testing.assert_allclose(result.iloc[:, 1:], expected, atol=1e-6)
    assert result.prediction.tolist() == classifier.classes_[expected.argmax(1)].tolist()
    assert not list(folder.glob(".*"))
    assert capsys.readouterr().err.splitlines() == [
        f"read {folder / 'train.parquet'}: 70 rows, 3 columns, classes may, be, no, yes; "
        f"wrote {folder / 'out'}: {PARTS * ROWS} rows in {PARTS} parts"
    ]


@pytest.mark.slow
def test_processes_of_this_machine(folder, model, capfd):
    _, expected = in_process(folder, model)
    with dask.config.set({METHOD: "spawn"}):  # as without these tests
        assert run(folder, model, "--dask", "local:1", "--quiet") == 0
    np.testing.assert_allclose(pd.read_parquet(folder / "out").iloc[:, 1:], expected, atol=1e-6)
    assert capfd.readouterr().err == ""


@pytest.mark.slow
def test_rows_that_workers_refuse_are_one_line(folder, model, client, capsys):
    pd.read_parquet(folder / "test" / "07.parquet").assign(b="text").to_parquet(
        folder / "test" / "07.parquet", index=False
    )
    address = client.scheduler.address
    assert run(folder, model, "--dask", address) == 2
    error = capsys.readouterr().err
    assert "'b'" in error
    assert len(error.splitlines()) == 1
    assert sorted(path.name for path in folder.iterdir()) == ["test", "train.parquet"]


@pytest.mark.slow
def test_ids_with_gaps_keep_their_digits(folder, model, client):
    ids = [2**60 + number for number in range(3)]
    train = pa.table({"id": ids * 20, "y": [0, 1, 2] * 20})
    parquet.write_table(train, folder / "train.parquet")
    parquet.write_table(pa.table({"id": [*ids, None]}), folder / "test.parquet")
    options = ("--dask", client.scheduler.address, "--categorical", "id")
    assert run(folder, model, *options, test="test.parquet") == 0
    probabilities = pd.read_parquet(folder / "out").iloc[:3, 1:]
    assert not probabilities.duplicated().any()  # as floats, all ids would be one category


def test_a_full_disk_is_found_before_the_work(folder, model, capsys, monkeypatch):
    """An empty folder has room on it, and a byte has none."""

    def full(self, *_):
        self.touch()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(TabICLLinearClassifier, "fit", None)
    monkeypatch.setattr(Path, "write_bytes", full)
    before = sorted(folder.iterdir())
    assert run(folder, model, "--dask", "local:1") == 2
    error = capsys.readouterr().err
    assert f"--output {folder / 'out'} cannot be written: No space left on device" in error
    assert len(error.splitlines()) == 1
    assert sorted(folder.iterdir()) == before


@pytest.mark.slow
def test_workers_that_cannot_write_are_found_before_the_work(
    folder, model, client, capsys, monkeypatch
):
    def elsewhere(path):
        return predict_dask.why_not_writable(Path("/nowhere") / path.name)

    monkeypatch.setattr(TabICLLinearClassifier, "fit", None)
    monkeypatch.setattr(predict_dask, "why_not_writable", elsewhere)
    before = sorted(folder.iterdir())
    address = client.scheduler.address
    assert run(folder, model, "--dask", address) == 2
    error = capsys.readouterr().err
    assert f"--output {folder / 'out'}: the worker tcp://" in error
    assert f"cannot write in {folder} (No such file or directory); name a folder" in error
    assert len(error.splitlines()) == 1
    assert sorted(folder.iterdir()) == before


@pytest.mark.slow
def test_a_disk_that_is_full_later_leaves_nothing_and_is_named_as_it_was_given(
    folder, model, client, capsys, monkeypatch
):
    write = predict_dask.write_part

    def write_elsewhere(rows, classifier, label_type, path):
        at = path if path.stem == "part-000000" else Path("/nowhere") / path.name
        return write(rows, classifier, label_type, at)

    monkeypatch.setattr(predict_dask, "write_part", write_elsewhere)
    before = sorted(folder.iterdir())
    assert run(folder, model, "--dask", client.scheduler.address) == 2
    error = capsys.readouterr().err
    assert (
        f"--output {folder / 'out'} cannot be written: No such file or directory; name a" in error
    )
    assert len(error.splitlines()) == 1
    assert sorted(folder.iterdir()) == before


@pytest.mark.slow
def test_workers_of_another_version(folder, model, client, capsys, monkeypatch):
    monkeypatch.setattr(predict_dask, "__version__", "99.0")
    assert run(folder, model, "--dask", client.scheduler.address) == 2
    error = capsys.readouterr().err
    assert "and this is 99.0: install the same version there" in error
    assert len(error.splitlines()) == 1


@pytest.mark.parametrize(
    ("cluster", "message"),
    [
        ("local:0", "--dask local:0: give local:N for N processes"),
        ("local", "--dask local: give local:N"),
        ("10.0.0.1:8786", "such as tcp://10.0.0.1:8786"),
        ("tcp://127.0.0.1:9", "--dask tcp://127.0.0.1:9: no scheduler answers"),
        ("carrier://pigeon", "--dask carrier://pigeon: no scheduler answers"),
    ],
)
def test_clusters_that_are_none(folder, model, client, cluster, message, capsys, monkeypatch):
    monkeypatch.setattr(predict_dask, "TIMEOUT", 0.5)
    before = sorted(folder.iterdir())
    assert run(folder, model, "--dask", cluster) == 2
    # One that is left would be asked for everything that Dask computes in this process.
    assert list(_global_clients.values()) == [client]
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize(
    ("change", "names", "message"),
    [
        (lambda f: (f / "out").mkdir(), {}, "out exists; name a new folder"),
        (lambda f: None, {"output": "nowhere/out"}, "nowhere/out cannot be written: No such file"),
        (lambda f: None, {"test": "none"}, "--dask reads a .parquet file, or a folder"),
        (lambda f: (f / "t.csv").touch(), {"test": "t.csv"}, "--dask reads a .parquet file"),
        (lambda f: (f / "void").mkdir(), {"test": "void"}, "void is not readable as Parquet"),
        (lambda f: None, {"train": "none.parquet"}, "none.parquet: no such file"),
    ],
)
def test_files_that_do_not_fit(folder, model, change, names, message, capsys, monkeypatch):
    monkeypatch.setattr(TabICLLinearClassifier, "fit", None)
    change(folder)
    before = sorted(folder.iterdir())
    assert run(folder, model, "--dask", "local:1", **names) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1
    assert sorted(folder.iterdir()) == before


def test_columns_that_differ_are_found_before_the_fit(folder, model, capsys, monkeypatch):
    monkeypatch.setattr(TabICLLinearClassifier, "fit", None)
    train = pd.read_parquet(folder / "train.parquet")
    train.assign(more=1).drop(columns="b").to_parquet(folder / "train.parquet", index=False)
    assert run(folder, model, "--dask", "local:1") == 2
    error = capsys.readouterr().err
    assert "missing 'more'; unknown 'b'" in error
    assert len(error.splitlines()) == 1


def test_a_table_without_rows_and_options_that_do_not_fit(folder, model, capsys):
    assert run(folder, model, "--dask", "local:1", "--sep", ";", "--stream") == 2
    assert "--dask does not take --sep, --stream: prepare" in capsys.readouterr().err


def test_dask_may_be_missing(folder, model, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert run(folder, model, "--dask", "local:1") == 2
    error = capsys.readouterr().err
    assert "`predict --dask` needs distributed: pip install 'tabicl-linear[dask]'" in error
    assert Path(folder / "out").exists() is False
