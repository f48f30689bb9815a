"""Tables from OpenML: the real client against a server of our own, with every fault of the net."""

import json
import os
import socket
import time
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
from evaluation import openml_server
from evaluation.openml_server import Table, dense, sparse
from fuzz import budget, flipped_bits

from tabicl_linear.errors import ConfigError, DataError
from tabicl_linear.evaluation import openml_cache
from tabicl_linear.evaluation.openml_cache import OpenMLCache
from tabicl_linear.evaluation.openml_lists import TABLES
from tabicl_linear.parquet import write_table

ARFF = "/data/v1/download/11"


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A server, a configuration of the client that names it, and a home of their own."""
    with openml_server.running({11: Table(dense())}) as server:
        folder = tmp_path / "config" / "openml"
        folder.mkdir(parents=True)
        (folder / "config").write_text(f"server={server.url}\napikey=\n")
        monkeypatch.setenv("XDG_CONFIG_HOME", str(folder.parent))
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
        monkeypatch.delenv("OPENML_CACHE_DIR", raising=False)
        monkeypatch.delenv("OPENML_SKIP_PARQUET", raising=False)
        monkeypatch.setattr(openml_cache, "PAUSES", ())
        monkeypatch.setitem(TABLES, "openml-cc18", {11: "weather"})
        yield server


@pytest.fixture(autouse=True)
def client(request, monkeypatch):
    """The client in this process: importing it takes seconds, in each process of its own."""
    if "own_process" in request.keywords:
        return
    server = request.getfixturevalue("server")
    fetch = pytest.importorskip("tabicl_linear.evaluation.openml_fetch")
    monkeypatch.setattr(fetch.openml.config, "server", server.url)
    monkeypatch.setattr(fetch.openml.config, "_root_cache_directory", None)

    def answer(request, environment):
        with monkeypatch.context() as patch:
            for name, value in environment.items():
                patch.setenv(name, value)
            return fetch.answer(request)

    monkeypatch.setattr(openml_cache, "_answer", answer)


@pytest.fixture
def read(tmp_path, server):
    """The sources of a benchmark, through a cache that stays from call to call."""

    def call(*, suite=None, offline=False):
        cache = OpenMLCache(tmp_path / "cache", offline=offline, say=print)
        return cache.sources("openml-cc18", suite)

    return call


def files(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_dense_table_with_every_kind_of_column(read, tmp_path):
    (source,) = read()
    assert (source.name, source.openml_id, source.target, source.fault) == (
        *("weather", 11, "play"),
        None,
    )
    table = source.read()
    assert list(table.x) == ["heat", "sky", "wind", "remark"]  # no row numbers
    assert table.categorical == ("sky", "wind")  # declared; texts are not
    expected_sky = np.arange(120) % 3
    np.testing.assert_array_equal(table.x["sky"], [np.nan, *expected_sky[1:]])
    np.testing.assert_array_equal(table.x["heat"][2:], np.arange(2, 120) / 8)
    assert np.isnan(table.x["heat"][1])
    np.testing.assert_array_equal(table.x["remark"], np.arange(120) % 4)
    assert table.x["wind"].nunique() == 2
    assert table.y.tolist() == ["no", "yes"] * 60
    assert files(tmp_path / "cache") == ["11.parquet"]


@pytest.mark.own_process
def test_a_table_is_read_in_a_process_of_its_own(read, tmp_path):
    assert read()[0].read().x.shape == (120, 4)
    assert files(tmp_path / "cache") == ["11.parquet"]
    assert files(tmp_path) == ["cache", "config"]


def test_a_table_is_read_once(read, server):
    first = read()
    server.tables.clear()
    server.requests.clear()
    assert read() == first
    assert read(offline=True) == first
    assert not server.requests


def test_sparse_arff(read, server):
    server.tables[11] = Table(sparse(), target="class", sparse=True)
    table = read()[0].read()
    rows = np.arange(120)
    said = rows % 4 != 3
    np.testing.assert_array_equal(table.x["first"], np.where(said, rows / 8, 0))
    np.testing.assert_array_equal(table.x["second"], np.where(said, rows % 3 > 0, 0))
    assert table.y.tolist() == ["ab"[n % 2] if n % 4 != 3 else "a" for n in rows]
    assert table.categorical == ("second",)


class TestParquet:
    @pytest.fixture
    def frame(self, server):
        sky = pd.Categorical.from_codes(np.arange(120) % 3, ["sunny", "overcast", "rainy"])
        frame = pd.DataFrame({"sky": sky, "wind": np.arange(120) % 5 > 0})
        frame["play"] = pd.Categorical(["no", "yes"] * 60)
        server.tables[11].frame = frame
        return frame

    def test_it_is_taken_where_there_is_one(self, frame, read, server):
        table = read()[0].read()
        assert list(table.x) == ["sky", "wind"]
        assert table.categorical == ("sky", "wind")
        np.testing.assert_array_equal(table.x["sky"], np.arange(120) % 3)
        assert not server.requests[f"{ARFF}/table.arff"]

    @pytest.mark.parametrize("fault", ["truncated", 404])
    def test_arff_stands_in_for_a_file_that_does_not_come(
        self, frame, read, server, fault, monkeypatch
    ):
        monkeypatch.setattr(openml_cache, "PAUSES", (0.0,))
        server.faults["/datasets/11.pq"] = (fault, 1000)
        assert "heat" in read()[0].read().x


class TestFaults:
    @pytest.mark.parametrize(
        ("path", "fault"),
        [
            *(("/api/v1/xml/data/11", status) for status in (404, 412)),
            *((ARFF, fault) for fault in (404, 412, "truncated", "garbled")),
        ],
    )
    def test_one_table_is_missing_with_its_reason(self, read, server, tmp_path, path, fault):
        server.faults[path] = (fault, 1000)
        (source,) = read()
        assert "has no table 11" in source.fault
        assert server.url in source.fault
        words = {404: "404", 412: "Unknown dataset", "garbled": "Checksum"}
        assert words.get(fault, "") in source.fault
        assert files(tmp_path / "cache") == []
        server.faults.clear()
        assert read()[0].fault is None

    def test_without_a_network_one_line_says_why_and_what_else_there_is(self, read, monkeypatch):
        from tabicl_linear.evaluation import openml_fetch

        with socket.socket() as unanswered:
            unanswered.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{unanswered.getsockname()[1]}/api"
            monkeypatch.setattr(openml_fetch.openml.config, "server", url)
            with pytest.raises(DataError, match=r"Connection refused.*folder:PATH") as caught:
                read()
        assert "Max retries" not in str(caught.value)
        assert "\n" not in str(caught.value)

    @pytest.mark.parametrize("path", ["/api", ARFF])
    def test_a_server_that_does_not_answer(self, read, server, tmp_path, path):
        server.faults[path] = (503, 1000)
        with pytest.raises(DataError, match=r"does not answer for table 11.*--offline") as caught:
            read()
        assert "\n" not in str(caught.value)
        assert files(tmp_path / "cache") == []
        assert "not in the cache" in read(offline=True)[0].fault

    @pytest.mark.own_process
    def test_a_server_that_hangs(self, read, server, tmp_path, monkeypatch):
        monkeypatch.setattr(openml_cache, "TIME_LIMIT", 10.0)
        server.faults[ARFF] = ("hung", 1000)
        with pytest.raises(DataError, match=r"table 11 \(no answer within 10 s\)"):
            read()
        assert files(tmp_path / "cache") == []

    @pytest.mark.parametrize("fault", [503, "truncated", "garbled"])
    def test_what_passes_is_asked_for_again(self, read, server, fault, monkeypatch):
        monkeypatch.setattr(openml_cache, "PAUSES", (0.0,))
        server.faults[ARFF] = (fault, 1)
        assert read()[0].fault is None
        assert server.requests[f"{ARFF}/table.arff"] == 2

    @pytest.mark.parametrize("how", ["cut", "a bit", "another writer"])
    def test_a_damaged_file_of_the_cache_is_named_and_read_again(self, read, tmp_path, how, capsys):
        """One by another writer is one of an earlier version, which wrote no digest."""
        (first,) = read()
        path = tmp_path / "cache" / "11.parquet"
        content = path.read_bytes()
        if how == "another writer":
            pd.read_parquet(path).to_parquet(path)
        else:
            changed = content[:100] if how == "cut" else bytes([content[0] ^ 1]) + content[1:]
            path.write_bytes(changed)
        (offline,) = read(offline=True)
        assert offline.fault is not None
        assert "11.parquet is damaged" in capsys.readouterr().out
        assert read() == (first,)
        assert path.read_bytes() == content

    def test_a_file_of_something_else_in_the_cache_is_refused(self, read, tmp_path):
        read()
        write_table(tmp_path / "cache" / "11.parquet", pd.DataFrame({"a": [1]}))
        with pytest.raises(DataError, match=r"11\.parquet is no table of the cache.*delete it"):
            read()

    def test_no_flipped_bit_of_a_table_is_believed(self, read, tmp_path):
        read()
        path = tmp_path / "cache" / "11.parquet"
        for bit, damaged in flipped_bits(path.read_bytes(), budget(30)):
            path.write_bytes(damaged)
            assert read(offline=True)[0].fault is not None, bit

    def test_a_table_without_a_target(self, read, server):
        server.tables[11] = Table(dense(), target=None)
        assert "its target None is none of its columns" in read()[0].fault


class TestSuites:
    def test_classification_tables_of_a_suite(self, read, server, tmp_path):
        server.tables |= {21: Table(dense()), 32: Table(dense(), classes=0)}
        result = [(source.name, source.openml_id) for source in read(suite="457")]
        assert result == [("table1-11", 11), ("table1-21", 21)]
        server.requests.clear()
        assert [source.openml_id for source in read(suite="457", offline=True)] == [11, 21]
        assert not server.requests

    def test_what_is_no_suite(self, read, server, tmp_path):
        with pytest.raises(ConfigError, match="give the number"):
            read(suite="all")
        with pytest.raises(DataError, match="suite 3 is not in the cache"):
            read(suite="3", offline=True)
        server.faults["/api/v1/xml/study"] = (412, 1000)
        with pytest.raises(DataError, match="has no suite 3"):
            read(suite="3")


class TestUnusable:
    """Tables that OpenML gives, but that the protocol cannot use."""

    FILES: ClassVar = {
        12: dense().replace(",no\n", ",?\n", 1),
        13: dense().replace(",no\n", ",yes\n"),
        14: dense(50),
    }
    REASONS: ClassVar = {
        "gaps": "The target 'play' of the table gaps is missing in 1 of 120 rows",
        "constant": "The target of the table constant is constant ('yes')",
        "short": "The table short has 50 rows",
    }

    @pytest.fixture
    def call(self, server, evaluate, tmp_path, monkeypatch):
        """Evaluate the baseline on the tables of the server that have a name."""

        def call(names):
            monkeypatch.setitem(TABLES, "openml-cc18", names)
            options = ("--cache", tmp_path / "cache")
            return evaluate(*options, benchmark="openml-cc18", suite=None)

        server.tables |= {number: Table(arff) for number, arff in self.FILES.items()}
        return call

    def test_they_are_failed_rows_and_the_others_run(self, call, server, tmp_path, capsys):
        assert call({12: "gaps", 11: "weather", 13: "constant", 14: "short"}) == 1
        assert "15 trials failed" in capsys.readouterr().err
        table = pd.read_csv(tmp_path / "out" / "results.csv")
        reasons = table.groupby("dataset")["error"].unique()
        assert table.loc[table["dataset"] == "weather", "error"].isna().all()
        for name, reason in self.REASONS.items():
            (result,) = reasons[name]
            assert result.startswith(reason)
        failed = table[table["error"].notna()]
        assert failed[["value", "seconds"]].isna().all(axis=None)
        assert set(failed["fold"]) == set(range(5))
        assert table.loc[table["error"].isna(), "value"].notna().all()
        content = json.loads((tmp_path / "out" / "evaluation.json").read_text())
        sizes = {one["name"]: one["rows"] for one in content["datasets"]}
        assert sizes == {"gaps": None, "weather": 120, "constant": None, "short": None}

    def test_one_that_has_been_mended_is_scored(self, call, server, tmp_path):
        names = {12: "gaps", 11: "weather"}
        assert call(names) == 1
        server.requests.clear()
        assert call(names) == 1  # it is in the cache, and as it was
        assert not server.requests
        before = pd.read_csv(tmp_path / "out" / "results.csv")
        assert before["error"].notna().sum() == len(before) / 2
        server.tables[12] = Table(dense())
        (tmp_path / "cache" / "12.parquet").unlink()
        assert call(names) == 0
        after = pd.read_csv(tmp_path / "out" / "results.csv")
        assert after["error"].isna().all()
        kept = before["dataset"] == "weather"
        numbers = ["fold", "value", "seconds"]  # not scored again: even the seconds are the same
        pd.testing.assert_frame_equal(before.loc[kept, numbers], after.loc[kept, numbers])

    def test_none_that_can_be_used_is_bad_input(self, call, tmp_path, capsys):
        assert call({13: "constant", 14: "short"}) == 2
        said = capsys.readouterr().err.splitlines()[-1]
        assert "None of the 2 tables of openml-cc18 can be used; constant: The target" in said
        assert not (tmp_path / "out").exists()


def test_what_a_killed_reader_left_is_swept(read, tmp_path):
    folders = [tmp_path / "cache" / f"{openml_cache.SCRATCH}{n}" for n in "ab"]
    for folder in folders:
        folder.mkdir(parents=True)
        (folder / "half").touch()
    old = time.time() - 2 * openml_cache.TIME_LIMIT - 10
    os.utime(folders[0], (old, old))
    read()
    assert files(tmp_path / "cache") == [folders[1].name, "11.parquet"]


def test_lists_of_the_paper():
    from tabicl_linear.evaluation.openml_lists import CC18, TABARENA

    assert (len(CC18), len(TABARENA)) == (30, 38)
    assert not set(CC18) & set(TABARENA)
