"""What OpenML, or a file of its cache, calls a table leads to no path outside the folders."""

import json
from pathlib import Path

import pytest

from tabicl_linear.errors import ConfigError, DataError
from tabicl_linear.evaluation.benchmarks import Source
from tabicl_linear.evaluation.openml_cache import OpenMLCache
from tabicl_linear.evaluation.trials import Task

UPWARDS = "../../elsewhere"


@pytest.fixture
def cache(tmp_path):
    folder = tmp_path / "deep" / "cache"
    folder.mkdir(parents=True)
    return OpenMLCache(folder, offline=True, say=print)


@pytest.mark.parametrize("suite", [UPWARDS, "/etc/99", "99/../98", "99.json", ""])
def test_a_suite_is_a_number(cache, suite):
    with pytest.raises(ConfigError, match="number of a suite"):
        cache.sources("openml-cc18", suite)


@pytest.mark.parametrize("text", [json.dumps({UPWARDS: "a"}), "[1]", "{"])
def test_a_list_of_tables_has_numbers(cache, text):
    (cache.folder / "suite-99.json").write_text(text)
    with pytest.raises(DataError, match="no list of tables"):
        cache.sources("openml-cc18", "99")


@pytest.mark.parametrize("name", [UPWARDS, "/etc/passwd", "..", "a\\..\\b", "a\0b"])
def test_a_name_is_no_path(cache, tmp_path, name):
    (cache.folder / "suite-99.json").write_text(json.dumps({"7": name}))
    (source,) = cache.sources("openml-cc18", "99")
    assert source.path == cache.folder / "7.parquet"
    path = _task(source).path(tmp_path / "out")
    assert path.parent == tmp_path / "out"
    assert "\0" not in path.name


def _task(source: Source) -> Task:

    from tabicl_linear.evaluation.benchmarks import Benchmark
    from tabicl_linear.evaluation.candidates import Candidate

    candidate = Candidate(UPWARDS, "0", "model", Path("m.ckpt"), "default")
    return Task(candidate, Benchmark("openml-cc18", "", (source,)), source, 0, None)
