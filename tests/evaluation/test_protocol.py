"""What of a table is used: codes, shuffle, caps and folds."""

import datetime

import numpy as np
import pandas as pd
import pytest

from tabicl_linear.errors import DataError
from tabicl_linear.evaluation.protocol import (
    CC18,
    TABARENA,
    BenchmarkTable,
    Protocol,
    encode,
    folds,
    prepare,
)


def table(rows=300, columns=3, classes=2, *, name="made", openml_id=7):
    """A table of which every cell says where it was."""
    cells = np.arange(rows)[:, None] + np.arange(columns) / 1024
    frame = pd.DataFrame(cells.astype(np.float32), columns=[f"c{n}" for n in range(columns)])
    y = np.array([f"k{n % classes:02}" for n in range(rows)], dtype=object)
    return BenchmarkTable(name, openml_id, frame, ("c1",), y)


def rows_of(table):
    return table.x.iloc[:, 0].round().astype(int).to_numpy()


def columns_of(table):
    return [int(name[1:]) for name in table.x]


class TestCodes:
    def test_every_kind_of_column(self):
        day = datetime.datetime(1970, 1, 3)
        frame = pd.DataFrame(
            {
                "number": [1, 2, 3],
                "nullable": pd.array([1, None, 3], dtype="Int64"),
                "declared": pd.Categorical(["b", None, "a"], categories=["b", "x", "a"]),
                "true": [True, False, True],
                "text": ["z", "y", None],
                "figures": ["1.5", "2", None],
                "date": [day, None, day],
                4: [0.5, np.nan, np.inf],
                "y": [1, 2, 1],
            }
        )
        result = encode(frame, "y", name="made", openml_id=3)
        nan = np.nan
        expected = {
            "number": [1, 2, 3],
            "nullable": [1, nan, 3],
            "declared": [0, nan, 2],
            "true": [1, 0, 1],
            "text": [1, 0, nan],
            "figures": [1.5, 2, nan],
            "date": [2, nan, 2],
            "4": [0.5, nan, np.inf],
        }
        pd.testing.assert_frame_equal(result.x, pd.DataFrame(expected, dtype=np.float32))
        assert result.categorical == ("declared", "true")
        assert result.y.tolist() == ["1", "2", "1"]
        kinds = result.declared().dtypes
        assert [name for name in kinds.index if kinds[name] == "category"] == ["declared", "true"]
        assert result.x.dtypes.eq(np.float32).all()

    def test_a_target_that_is_missing(self):
        frame = pd.DataFrame({"x": [1.0, 2.0], "y": ["a", None]})
        with pytest.raises(DataError, match="no target column 'z'"):
            encode(frame, "z", name="made")
        with pytest.raises(DataError, match="missing in 1 of 2 rows"):
            encode(frame, "y", name="made")


class TestCaps:
    def test_a_small_table_is_only_shuffled(self):
        result = prepare(table(), CC18)
        expected = np.random.default_rng(42).permutation(300)
        np.testing.assert_array_equal(rows_of(result), expected)
        assert result.y.tolist() == [f"k{n % 2:02}" for n in expected]
        assert columns_of(result) == [0, 1, 2]

    def test_rows_and_columns_of_a_large_table(self):
        result = prepare(table(1500, 30), CC18)
        shuffled = np.random.default_rng(42).permutation(1500)
        rng = np.random.default_rng(np.random.SeedSequence([42, 7, 0]))
        subset = np.sort(rng.choice(1500, 1000, replace=False))
        np.testing.assert_array_equal(rows_of(result), shuffled[subset])
        rng = np.random.default_rng(np.random.SeedSequence([42, 7, 1]))
        assert columns_of(result) == sorted(rng.choice(30, 20, replace=False))
        assert result.declared().shape == (1000, 20)

    def test_another_table_has_other_rows_and_columns(self):
        one, other = (prepare(table(1500, 30, openml_id=n), CC18) for n in (7, 8))
        assert columns_of(one) != columns_of(other)
        assert set(rows_of(one)) != set(rows_of(other))
        unknown = [
            prepare(table(1500, 30, name=name, openml_id=None), CC18) for name in ("a", "b", "a")
        ]
        assert columns_of(unknown[0]) == columns_of(unknown[2]) != columns_of(unknown[1])

    def test_tabarena_keeps_all_rows(self):
        result = prepare(table(1500, 30), TABARENA)
        assert result.x.shape == (1500, 20)

    def test_the_ten_most_frequent_classes_are_kept(self):
        full = table(1300, classes=13)
        rare = np.isin(full.y, ["k03", "k07", "k12"]) & (np.arange(1300) > 650)
        full = BenchmarkTable("made", 7, full.x[~rare], full.categorical, full.y[~rare])
        result = prepare(full, TABARENA)
        assert set(result.y) == {f"k{n:02}" for n in range(13)} - {"k03", "k07", "k12"}
        assert len(result.y) == 1000

    def test_a_table_with_another_number_in_each_row_as_target(self):
        with pytest.raises(DataError, match="10 rows of the 10 most frequent of its 300 classes;"):
            prepare(table(300, classes=300), TABARENA)

    @pytest.mark.parametrize(
        ("made", "words"),
        [
            (table(99), "has 99 rows;"),
            (table(200, classes=1), r"is constant \('k00'\)"),
            (table(200, classes=100), "fewer than 5 rows"),
        ],
    )
    def test_a_table_that_cannot_be_used(self, made, words):
        with pytest.raises(DataError, match=words):
            prepare(made, Protocol(max_rows=None, max_classes=100))


class TestFolds:
    def test_every_row_is_predicted_once_and_classes_are_spread(self):
        made = prepare(table(503, classes=3), CC18)
        result = list(folds(made, CC18))
        assert len(result) == 5
        assert sorted(np.concatenate([queries for _, queries in result])) == list(range(503))
        for context, queries in result:
            assert not set(context) & set(queries)
            _, counts = np.unique(made.y[queries], return_counts=True)
            assert counts.max() - counts.min() <= 1

    def test_they_are_the_same_for_every_model_and_others_for_another_seed(self):
        made = prepare(table(), CC18)
        first, second = (next(iter(folds(made, CC18)))[1] for _ in range(2))
        np.testing.assert_array_equal(first, second)
        other = next(iter(folds(made, Protocol(max_rows=None, seed=1))))[1]
        assert set(first) != set(other)
