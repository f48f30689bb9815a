"""Weights by name."""

from pathlib import Path

import pytest

from tabicl_linear.shipped import WEIGHTS, checkpoint_path


@pytest.mark.parametrize("name", list(WEIGHTS))
def test_a_name_stands_for_a_file_of_the_package(name):
    assert checkpoint_path(name) == WEIGHTS[name]
    assert WEIGHTS[name].is_file()


def test_everything_else_is_a_path():
    assert checkpoint_path("runs/default") == Path("runs/default")
    assert checkpoint_path(Path("default")) == Path("default")
