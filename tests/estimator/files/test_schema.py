"""Tags of records stay, and every record that a fitted classifier may hold has one."""

import dataclasses
import importlib
import pkgutil
from typing import NamedTuple

import pytest
from estimator.files.test_state_file import FEW, fitted

import tabicl_linear.estimator
from tabicl_linear import RandomFeatureRidge
from tabicl_linear.errors import DataError
from tabicl_linear.estimator.files.schema import RECORDS, TAGS

STATES_OF = ("kernels.state", "ridge_inputs.recent_rows", "mixers.base")
"""Modules of other layers all of whose named tuples are parts of states."""


def named_tuples(module):
    return {
        value
        for value in vars(module).values()
        if isinstance(value, type)
        and value.__module__ == module.__name__
        and issubclass(value, tuple)
    }


def test_a_tag_stands_for_one_class():
    assert len(TAGS) == len(RECORDS)


@pytest.mark.parametrize("name", STATES_OF)
def test_no_state_is_left_out(name):
    module = importlib.import_module(f"tabicl_linear.{name}")
    assert named_tuples(module) <= set(TAGS)


def test_records_of_columns_and_views_are_all_there():
    modules = [
        importlib.import_module(info.name)
        for info in pkgutil.walk_packages(
            tabicl_linear.estimator.__path__, "tabicl_linear.estimator."
        )
    ]
    records = {
        value
        for module in modules
        for name, value in vars(module).items()
        if name.endswith(("Column", "View", "States")) and isinstance(value, type)
    }
    assert records <= set(TAGS)


class Unknown(NamedTuple):
    number: int


def test_a_record_without_a_tag_is_refused_by_name(checkpoint, tmp_path):
    classifier = fitted(RandomFeatureRidge, checkpoint)
    classifier.set_params(options=Unknown(1))
    with pytest.raises(DataError, match=r"\['options'\] is a .*Unknown.*joblib"):
        classifier.save(tmp_path / "s")
    assert dataclasses.is_dataclass(type(FEW))
    assert not list(tmp_path.iterdir())
