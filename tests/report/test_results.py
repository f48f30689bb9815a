"""Folders are read whole, or refused in one line; what is missing is known and has a reason."""

import json

import numpy as np
import pytest
from report.folders import fail, rows, tables, write

from tabicl_linear.errors import DataError
from tabicl_linear.report.coverage import coverage
from tabicl_linear.report.results import read


@pytest.fixture
def two(tmp_path):
    """Two models on three tables; one failed on a fold, and t3 was listed and not begun."""
    b = fail(rows("b", [0.6, 0.7, 0.8]), "t1", 1, "ValueError: out of memory")
    return write(tmp_path / "two", rows("a", [0.5, 0.6, 0.7]), b, listed=tables(4))


def test_means_are_over_folds_and_models_keep_their_order(two):
    results = read([two], {})
    assert results.models == ("a", "b")
    result = coverage(results, "small")
    assert result.means["roc_auc"]["a"].tolist()[:3] == pytest.approx([0.5, 0.6, 0.7])
    assert result.seconds["s per fold"].loc["t0", "a"] == 1.5
    assert result.datasets.loc["t2", "rows"] == 300


def test_a_failed_fold_takes_the_table_out_of_the_common_ones(two):
    result = coverage(read([two], {}), "small")
    assert result.common == ("t0", "t2")
    assert np.isnan(result.means["roc_auc"].loc["t1", "b"])
    assert result.shared("accuracy").shape == (2, 2)
    assert result.counts() == {"a": 3, "b": 2}
    missing = result.missing.set_index(["model", "dataset"])
    assert missing.loc[("b", "t1")].tolist() == ["1 of 2", "ValueError: out of memory"]
    assert missing.loc[("a", "t3")].tolist() == ["0 of 2", "not scored yet"]
    assert len(missing) == 3


def test_folds_that_no_model_has_are_missing_too(tmp_path):
    frame = rows("a", [0.5, 0.6])
    frame = frame[(frame["dataset"] != "t1") | (frame["fold"] == 0)]
    result = coverage(read([write(tmp_path / "x", frame)], {}), "small")
    assert result.common == ("t0",)
    assert result.missing["folds"].tolist() == ["1 of 2"]


def test_a_fold_that_failed_in_one_metric_has_no_scores(tmp_path):
    frame = rows("a", [0.5, 0.6])
    failed = (frame["dataset"] == "t1") & (frame["fold"] == 0) & (frame["metric"] == "accuracy")
    frame.loc[failed, ["value", "error"]] = ["", "out of memory"]
    result = coverage(read([write(tmp_path / "x", frame)], {}), "small")
    assert result.common == ("t0",)
    assert result.missing[["folds", "reason"]].values.tolist() == [["1 of 2", "out of memory"]]


def test_a_model_without_any_table_is_left_out_and_counted(tmp_path):
    bad = rows("b", [0.5])
    for fold in (0, 1):
        bad = fail(bad, "t0", fold, "")
    result = coverage(read([write(tmp_path / "x", rows("a", [0.5]), bad)], {}), "small")
    assert (result.models, result.common) == (("a",), ("t0",))
    assert result.counts() == {"a": 1, "b": 0}
    assert result.missing["reason"].tolist() == ["no reason given"]


def test_a_score_may_be_zero(tmp_path):
    result = coverage(read([write(tmp_path / "x", rows("a", [0.01]))], {}), "small")
    assert result.means["roc_auc"].loc["t0", "a"] == pytest.approx(0.01)


def test_times_are_no_scores(tmp_path):
    frame = rows("a", [0.5], metrics=["roc_auc", "fit_seconds"])
    result = coverage(read([write(tmp_path / "x", frame)], {}), "small")
    assert list(result.means) == ["roc_auc"]
    assert result.seconds["fit"].loc["t0", "a"] == pytest.approx(0.5)


def test_folders_are_joined_by_benchmark_and_models_renamed(tmp_path):
    one = write(tmp_path / "one", rows("a", [0.5]))
    two = write(tmp_path / "two", rows("last", [0.6]))
    other = write(
        tmp_path / "other", rows("a", [0.7], benchmark="big"), protocol={"folds": 2, "x": 1}
    )
    results = read([one, two, other], {"last": "b"})
    assert results.models == ("a", "b")
    assert coverage(results, "small").models == ("a", "b")
    assert coverage(results, "big").models == ("a",)
    assert read([one, two], {"last": "b"}, ["b"]).models == ("b",)


def test_a_table_that_could_not_be_had_at_first_gets_its_sizes_from_a_later_folder(tmp_path):
    unknown = [tables(1)[0] | dict.fromkeys(("rows", "columns", "classes"))]
    bad = fail(fail(rows("a", [0.5]), "t0", 0, "404"), "t0", 1, "404")
    folders = [
        write(tmp_path / "one", bad, listed=unknown),
        write(tmp_path / "two", rows("b", [0.5])),
    ]
    for order in (folders, folders[::-1]):
        result = coverage(read(order, {}), "small")
        assert result.datasets.loc["t0", "rows"] == 100
        assert result.models == ("b",)


def test_names_that_look_missing_are_names(tmp_path):
    frame = rows("NA", [0.5])
    assert read([write(tmp_path / "x", frame)], {}).models == ("NA",)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda frame: frame.rename(columns={"value": "score"}), ["'score'", "'value'"]),
        (lambda frame: frame.assign(extra=1), ["'extra'"]),
        (lambda frame: frame.assign(metric="auc"), ["'auc'", "roc_auc"]),
        (lambda frame: frame.assign(value="high"), ["line 2", "value=high"]),
        (lambda frame: frame.assign(value="inf"), ["line 2", "value=inf"]),
        (
            lambda frame: frame.assign(value=7.5),
            ["line 2", "roc_auc=7.5 of a on t0", "from 0 to 1;"],
        ),
        (lambda frame: frame.assign(value=-0.5), ["line 2", "roc_auc=-0.5", "from 0 to 1;"]),
        (lambda frame: frame.assign(metric="log_loss", value=-2), ["log_loss=-2", "0 or more"]),
        (lambda frame: frame.assign(seconds=-1), ["line 2", "seconds=-1", "0 or more"]),
        (lambda frame: frame.assign(fold="one"), ["line 2", "fold=one", "from 0 to 1;"]),
        (lambda frame: frame.assign(fold=2), ["line 2", "fold=2"]),
        (lambda frame: frame.assign(dataset="t9"), ["t9", "evaluation.json"]),
        (lambda frame: frame[:0], ["no rows yet"]),
        (lambda frame: frame.iloc[[0, 0]], ["a, small, t0, 0, roc_auc", "two results"]),
    ],
)
def test_tables_that_are_no_results_are_refused(tmp_path, change, words):
    folder = write(tmp_path / "x", change(rows("a", [0.5])), listed=tables(1))
    refused(lambda: read([folder], {}), words)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, ["holds no evaluation.json", "output folder"]),
        ("{", ["evaluation.json cannot be read"]),
        # The other faults of the file: evaluation/test_trial_files.py.
        ('{"protocol": {"folds": 2}}', ["evaluation.json", "lacks benchmark"]),
        ('{"digest": "a"}', ["digest is another", "delete"]),
    ],
)
def test_a_folder_that_does_not_say_what_it_holds_is_refused(tmp_path, content, words):
    folder = write(tmp_path / "x", rows("a", [0.5]))
    path = folder / "evaluation.json"
    path.unlink() if content is None else path.write_text(content)
    refused(lambda: read([folder], {}), words)


def test_folders_that_do_not_belong_together_are_refused(tmp_path):
    one = write(tmp_path / "one", rows("a", [0.5]))
    two = write(tmp_path / "two", rows("b", [0.5]), protocol={"folds": 2, "max_rows": 9})
    refused(lambda: read([one, two], {}), ["different protocols", "max_rows: None and 9"])
    refused(lambda: read([one, one], {}), ["two results"])
    larger = [tables(1)[0] | {"rows": 7}]
    three = write(tmp_path / "three", rows("b", [0.5]), listed=larger)
    refused(lambda: read([one, three], {}), ["t0", "other sizes"])
    refused(lambda: read([tmp_path], {}), ["no results.csv", "evaluate"])
    refused(lambda: read([one], {"c": "d"}), ["--name c", "there are a"])
    refused(lambda: read([one], {}, ["c"]), ["--models c", "there are a"])
    (one / "evaluation.json").write_text(json.dumps({"datasets": []}))
    refused(lambda: read([one], {}), ["protocol"])


def refused(call, words):
    with pytest.raises(DataError) as error:
        call()
    for word in words:
        assert word in str(error.value)
