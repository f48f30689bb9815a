"""Which tables of a folder are a benchmark."""

import pandas as pd
import pytest
from evaluation import benchmark_folder

from tabicl_linear.errors import ConfigError
from tabicl_linear.evaluation.benchmarks import folder_benchmark


def test_numbers_are_names_of_suites(tmp_path):
    folder = benchmark_folder.write(tmp_path / "tables")
    index = pd.read_csv(folder / "index.csv")
    index.assign(suite=[457, 457, 99], name=[1, 2, 3]).to_csv(folder / "index.csv", index=False)
    result = folder_benchmark(folder, "457")
    assert [source.name for source in result.sources] == ["1", "2"]
    with pytest.raises(ConfigError, match="give --suite, one of 457, 99"):
        folder_benchmark(folder, None)


def test_tables_of_no_suite_are_not_those_of_the_only_one(tmp_path):
    folder = benchmark_folder.write(tmp_path / "tables")
    index = pd.read_csv(folder / "index.csv")
    index.assign(suite=["only", None, None]).to_csv(folder / "index.csv", index=False)
    with pytest.raises(ConfigError, match="tables of the suite only and tables of none"):
        folder_benchmark(folder, None)
    assert len(folder_benchmark(folder, "only").sources) == 1
    index.drop(columns="suite", errors="ignore").to_csv(folder / "index.csv", index=False)
    with pytest.raises(ConfigError, match=r"no such suite \(none: leave the option out\)"):
        folder_benchmark(folder, "only")
