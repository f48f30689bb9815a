"""What OpenML, or a file of its cache, calls a table leads to no path outside the folders."""

import json
from pathlib import Path

import pytest

from tabicl_linear.errors import ConfigError, DataError
from tabicl_linear.evaluation.benchmarks import Source
from tabicl_linear.evaluation.openml_cache import OpenMLCache
from tabicl_linear.evaluation.trials import Task
from tabicl_linear.files import DIGEST, digest_of

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


def write_suite(cache, tables):
    """A list as the cache writes it, with a digest that anybody can compute."""
    content = {"tables": tables}
    content[DIGEST] = digest_of(content)
    (cache.folder / "suite-99.json").write_text(json.dumps(content))


def test_a_list_of_tables_has_numbers(cache):
    write_suite(cache, {UPWARDS: "a"})
    with pytest.raises(DataError, match="no list of tables"):
        cache.sources("openml-cc18", "99")


@pytest.mark.parametrize(
    "text", ['{"7": "a"}', "[1]", "{", '{"tables": {"7": "a"}, "digest": "0"}']
)
def test_a_list_without_its_digest_is_named_and_not_believed(cache, text, capsys):
    (cache.folder / "suite-99.json").write_text(text)
    with pytest.raises(DataError, match="suite 99 is not in the cache"):
        cache.sources("openml-cc18", "99")
    assert "suite-99.json is damaged" in capsys.readouterr().out
    write_suite(cache, [1])
    with pytest.raises(DataError, match="suite 99 is not in the cache"):
        cache.sources("openml-cc18", "99")


@pytest.mark.parametrize("name", [UPWARDS, "/etc/passwd", "..", "a\\..\\b", "a\0b"])
def test_a_name_is_no_path(cache, tmp_path, name):
    write_suite(cache, {"7": name})
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
