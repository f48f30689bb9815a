"""The small benchmark folder, and the verb called on it."""

import pytest
import tiny_model
from evaluation import benchmark_folder
from forked import forked

from tabicl_linear.__main__ import main

__all__ = ["forked"]
BASELINE = "logistic_regression"


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    return benchmark_folder.write(tmp_path_factory.mktemp("made") / "tables")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny_model.save(tiny_model.untrained(), tmp_path_factory.mktemp("model") / "tiny.ckpt")


@pytest.fixture
def evaluate(tables, tmp_path):
    """Call the verb on the small suite and return the exit code."""

    def call(*options, output="out", suite="small", benchmark=f"folder:{tables}", baseline=True):
        base = ["--benchmark", benchmark, "--output", str(tmp_path / output), "--threads", "1"]
        base += ["--suite", suite] if suite else []
        base += ["--baseline", BASELINE] if baseline else []
        return main(["evaluate", *base, *map(str, options)])

    return call
