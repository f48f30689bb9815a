"""Columns of frames in files: as they were, whatever their dtype."""

import numpy as np
import pandas as pd
import pytest
import torch

from tabicl_linear.errors import CheckpointError, DataError
from tabicl_linear.estimator.files.records import Packer, Unpacker
from tabicl_linear.estimator.learners.chosen_trees.task_fit import TreePredictor

COLUMNS = {
    "category": pd.Series(pd.Categorical(["b", "a", None], categories=["b", "c", "a"])),
    "ordered": pd.Series(pd.Categorical(["b", "a", "b"], ["b", "a"], ordered=True)),
    "text": pd.Series(["x", None, "y"], dtype="string"),
    "nullable": pd.Series([1, None, 3], dtype="Int64"),
    "truth": pd.Series([True, None, False], dtype="boolean"),
    # Arrow would take an hour off the first when it is read, and cannot read the others.
    "zoned": pd.Series(pd.date_range("2024", periods=3, tz="Europe/Berlin"), dtype="category"),
    "cut": pd.cut(pd.Series([1.0, 2.0, 3.0]), 2),
    "pairs": pd.Series(pd.Categorical([(1, 2), (3, 4), None])),
    "objects": pd.Series(pd.Categorical(pd.Series(["a", "b", "a"], dtype=object))),
    "time": pd.to_datetime(pd.Series(["2024-01-01", "2024-06-01", None])).dt.tz_localize("UTC"),
}


def test_frames_come_back_with_names_of_any_kind():
    frame = pd.DataFrame({"number": [1.5, np.nan, 3], "object": ["a", 2, None]})
    frame["day"] = pd.to_datetime(["2024-01-01", "2024-06-01", "2024-07-01"])
    frame = frame.assign(**COLUMNS)
    frame.columns = range(frame.shape[1])
    packer = Packer()
    tree = packer.pack(frame.set_axis([7, 8, 9]), "frame")
    again = Unpacker(packer.tensors, None, torch.device("cpu"), None).unpack(tree)
    pd.testing.assert_frame_equal(again, frame, check_column_type=False)


def test_what_arrow_has_no_type_for_is_refused():
    frame = pd.DataFrame({"a": pd.arrays.SparseArray([0, 0, 1])})
    with pytest.raises(DataError, match=r"held\['a'\] holds Sparse.* joblib.dump"):
        Packer().pack(frame, "held")


def test_so_are_arrays_that_torch_has_no_type_for():
    with pytest.raises(DataError, match=r"classes holds complex128 .* at most 64 bits.* joblib"):
        Packer().pack(np.array([1j]), "classes")


def test_named_tuples_of_older_files_lack_fields_that_have_a_default():
    weights = torch.ones(2, 3)
    predictor = TreePredictor(
        None, weights, weights, weights, weights[0], weights, weights[0], weights
    )
    packer = Packer()
    tree = packer.pack(predictor, "the state")
    del tree["fields"]["columns"]
    unpacker = Unpacker(packer.tensors, None, torch.device("cpu"), None)
    assert unpacker.unpack(tree).columns is None
    del tree["fields"]["prior"]
    with pytest.raises(CheckpointError, match="does not know"):
        unpacker.unpack(tree)
