"""`tabicl-linear predict` on real files."""

import os
from itertools import chain

import numpy as np
import pandas as pd
import pytest
import tiny_model
from sklearn.datasets import load_iris

from tabicl_linear import TabICLLinearClassifier
from tabicl_linear.__main__ import main
from tabicl_linear.cli.table_output import write_table
from tabicl_linear.errors import DataError
from tabicl_linear.estimator.rows.table_file import TableFile


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny_model.save(tiny_model.trained(), tmp_path_factory.mktemp("model") / "tiny.ckpt")


@pytest.fixture(scope="module")
def tables():
    table = load_iris(as_frame=True).frame.sample(frac=1, random_state=0, ignore_index=True)
    table["kind"] = np.where(table["petal width (cm)"] > 1.3, "wide", "slim")
    table["y"] = table.pop("target").map({0: "setosa", 1: "versicolor", 2: "virginica"})
    table.loc[::9, ["kind", "sepal width (cm)"]] = None
    return table[:110], table[110:].reset_index(drop=True)


@pytest.fixture
def folder(tmp_path, tables):
    train, test = tables
    train.to_csv(tmp_path / "train.csv", index=False)
    test.drop(columns="y").to_csv(tmp_path / "test.csv", index=False)
    return tmp_path


def run(folder, model, *options, train="train.csv", test="test.csv", output="out.csv", target="y"):
    arguments = [folder / train, folder / test, "--target", target, "--output", folder / output]
    options = (*arguments, "--model", model, "--n-estimators", 2, *options)
    return main(["predict", *map(str, options)])


def one_line_error(capsys):
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1, lines
    assert lines[0].startswith("tabicl-linear predict: ")
    assert not lines[0].startswith("tabicl-linear predict: error")
    return lines[0]


def test_warnings_name_the_option_of_the_command(folder, model, tables, capsys):
    for name, table in zip(("train", "test"), tables, strict=True):
        table.assign(code=2**60 + np.arange(len(table))).to_csv(folder / f"{name}.csv", index=False)
    assert run(folder, model) == 0
    assert "['code']. (categorical_features is --categorical here.)" in capsys.readouterr().err


def test_options_about_text_are_refused_where_no_file_is_text(folder, model, tables, capsys):
    for name, table in zip(("train", "test"), tables, strict=True):
        table.to_parquet(folder / f"{name}.parquet")
    options = ["--na-values", "wide", "--sep", ";"]
    assert run(folder, model, *options, train="train.parquet", test="test.parquet") == 2
    assert one_line_error(capsys).endswith(
        "--sep, --na-values: for CSV and TSV files, and these are Parquet; leave it out."
    )
    assert run(folder, model, "--na-values", "wide", train="train.parquet") == 0


def test_columns_may_be_named_by_several_options(folder, model):
    columns = ["sepal length (cm)", "kind"]
    assert run(folder, model, "--drop", *columns, output="one.csv") == 0
    several = [word for column in columns for word in ("--drop", column)]
    assert run(folder, model, *several, output="several.csv") == 0
    assert (folder / "one.csv").read_text() == (folder / "several.csv").read_text()


def test_an_option_that_takes_the_files_as_its_values_is_explained(capsys):
    assert (
        main(["predict", "--target", "y", "--output", "o.csv", "--drop", "id", "a.csv", "b.csv"])
        == 2
    )
    error = one_line_error(capsys)
    assert "required: train, test (options such as --" in error
    assert "take all words that follow; files go before" in error


def test_csv_to_csv_equals_the_classifier(folder, model, tables, capsys):
    train, test = tables
    assert run(folder, model) == 0
    out = pd.read_csv(folder / "out.csv")
    assert out.columns.tolist() == [
        "prediction",
        "proba_setosa",
        "proba_versicolor",
        "proba_virginica",
    ]
    classifier = TabICLLinearClassifier(model, n_estimators=2).fit(train.drop(columns="y"), train.y)
    expected = classifier.predict_proba(test.drop(columns="y"))
    np.testing.assert_allclose(out.iloc[:, 1:], expected, atol=1e-6)
    assert out.prediction.tolist() == classifier.classes_[expected.argmax(1)].tolist()
    assert (out.prediction == test.y).mean() > 0.7  # two views of a tiny model; chance is 1/3
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "110 rows, 5 columns, classes setosa, versicolor, virginica; wrote" in captured.err
    assert len(captured.err.splitlines()) == 1


def test_parquet_columns_in_another_order_and_with_the_target(folder, model, tables, capsys):
    train, test = tables
    train.to_parquet(folder / "train.parquet")
    test[test.columns[::-1]].to_parquet(folder / "test.PARQUET")
    files = {"train": "train.parquet", "test": "test.PARQUET", "output": "out.parquet"}
    assert run(folder, model, "--quiet", **files) == 0
    assert capsys.readouterr().err == ""
    assert run(folder, model) == 0
    from_parquet, from_csv = (
        pd.read_parquet(folder / "out.parquet"),
        TableFile(folder / "out.csv").frame(),
    )
    pd.testing.assert_frame_equal(from_parquet, from_csv, check_dtype=False)


@pytest.mark.parametrize("labels", [[5, 3], [True, False], [2.0, 1.0], ["a b", "ä"]], ids=str)
def test_labels_keep_their_type(tmp_path, model, labels):
    x = np.repeat([-1.0, 1.0], 6) + np.arange(12) / 100
    pd.DataFrame({"x": x, "y": np.repeat(labels, 6)}).to_csv(tmp_path / "train.csv", index=False)
    pd.DataFrame({"x": [1.0, -1.0]}).to_csv(tmp_path / "test.csv", index=False)
    assert run(tmp_path, model, output="out.parquet") == 0
    out = pd.read_parquet(tmp_path / "out.parquet")
    assert out.prediction.tolist() == labels[::-1]
    assert type(out.prediction.tolist()[0]) is type(labels[0])
    assert set(out.columns[1:]) == {f"proba_{label}" for label in labels}


def test_options_reach_the_classifier(folder, model, tables):
    train, test = tables
    options = ("--categorical", "sepal length (cm)", "--seed", "3", "--device", "cpu", "--refine")
    assert run(folder, model, *options) == 0
    arguments = {"categorical_features": ["sepal length (cm)"], "random_state": 3, "refine": True}
    classifier = TabICLLinearClassifier(model, n_estimators=2, **arguments)
    classifier.fit(train.drop(columns="y"), train.y)
    assert classifier.refine_["used"].any()
    out = pd.read_csv(folder / "out.csv")
    expected = classifier.predict_proba(test.drop(columns="y"))
    np.testing.assert_allclose(out.iloc[:, 1:], expected, atol=1e-6)


def test_options_have_the_names_of_the_arguments(folder, model, monkeypatch):
    made = []
    fit = TabICLLinearClassifier.fit
    monkeypatch.setattr(
        TabICLLinearClassifier, "fit", lambda self, *data: made.append(self) or fit(self, *data)
    )
    options = {
        "softmax_temperature": "auto",
        "class_weight": "balanced",
        "long_context": "blocks",
        "n_jobs": 1,
        "n_estimators": 1,
        "ensemble": "paper",
    }
    words = [(f"--{name.replace('_', '-')}", str(value)) for name, value in options.items()]
    assert run(folder, model, *chain(*words)) == 0
    arguments = made[0].get_params()
    assert {name: arguments[name] for name in options} == options


def frame(**columns):
    return lambda path: pd.DataFrame(columns).to_csv(path, index=False)


def text(content):
    return lambda path: path.write_bytes(content)


ROWS = {"x": [1.0, 2.0, 3.0, 4.0]}
BAD_TRAIN = {
    "empty": (text(b""), "train.csv is empty"),
    "header only": (text(b"x,y\n"), "train.csv has a header but no rows"),
    "ragged": (text(b"x,y\n1,2\n1,2,3\n"), "line 3 has 3 fields and the header 2; put quotes"),
    "all rows longer": (text(b"x,y\n1,2,3\n1,2,3\n"), "line 2 has 3 fields and the header 2"),
    "binary": (text(b"x,y\n\xff\xfe,1\n"), "is not utf-8 text (byte 0xff); say which it is"),
    "UTF-16": (text("x,y\n1,2\n".encode("utf-16")), "(by its first bytes --encoding utf-16)"),
    "blank in a name": (
        frame(**{"x": [1.0, 2.0], " y": [0, 1]}),
        "its columns (commas separate them) are x, ' y'. Name one",
    ),
    "no target column": (
        frame(**ROWS, z=[0, 1, 0, 1]),
        "no column 'y'; its columns (commas separate them) are x",
    ),
    "target missing in a row": (
        frame(**ROWS, y=[0, 1, None, 1]),
        "missing in 1 of 4 rows, first in row 3;",
    ),
    "target only": (frame(y=[0, 1, 0, 1]), "no column besides the target 'y'"),
    "one class": (
        frame(**ROWS, y=["a"] * 4),
        "one class only ('a'): give training rows of at least two.",
    ),
    "continuous target": (frame(**ROWS, y=[0.1, 1.2, 2.3, 3.4]), "Unknown label type"),
    "constant": (frame(x=[1.0] * 4, y=[0, 1, 0, 1]), "None of the 1 columns varies"),
    "other columns": (frame(**ROWS, z=[0] * 4, y=[0, 1, 0, 1]), "missing 'z'"),
    "text in the test column": (frame(**ROWS, y=[0, 1, 0, 1]), "'x' held numbers"),
}


@pytest.mark.parametrize("case", BAD_TRAIN)
def test_bad_training_files(tmp_path, model, capsys, case):
    write, message = BAD_TRAIN[case]
    write(tmp_path / "train.csv")
    word = "word" if case.startswith("text") else 1.0
    pd.DataFrame({"x": [word, word]}).to_csv(tmp_path / "test.csv", index=False)
    assert run(tmp_path, model) == 2
    assert message in one_line_error(capsys)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["test.csv", "train.csv"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"train": "nowhere.csv"}, "nowhere.csv: no such file"),
        ({"test": "nowhere.csv"}, "nowhere.csv: no such file"),
        (
            {"test": "notes.txt"},
            "notes.txt: unknown suffix '.txt'; use .csv, .tsv",
        ),
        ({"test": "fake.parquet"}, "fake.parquet is not a readable parquet file"),
        ({"output": "out.xlsx"}, "out.xlsx: unknown suffix '.xlsx'"),
        ({"output": "nowhere/out.csv"}, "nowhere; create it"),
        ({"output": "folder.csv"}, "folder.csv is a folder"),
        ({"output": "pipe.csv"}, "pipe.csv cannot be written: It is a device, pipe or socket"),
        ({"output": "test.csv"}, "is one of the input files"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_bad_paths(folder, model, capsys, options, message):
    (folder / "notes.txt").write_text("x\n1\n")
    (folder / "fake.parquet").write_text("x\n1\n")
    (folder / "folder.csv").mkdir()
    os.mkfifo(folder / "pipe.csv")
    before = {path.name: path.stat().st_size for path in folder.iterdir()}
    assert run(folder, model, **options) == 2
    assert message in one_line_error(capsys)
    assert {path.name: path.stat().st_size for path in folder.iterdir()} == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--n-estimators", "0"], "n_estimators=0"),
        (["--device", "toaster"], "not a torch device"),
        (["--softmax-temperature", "-1"], "softmax_temperature=-1.0"),
        (["--softmax-temperature", "warm"], "'warm': give a positive number or auto"),
        (["--class-weight", "even"], "invalid choice: 'even'"),
        (["--long-context", "short"], "invalid choice: 'short'"),
        (["--n-jobs", "0"], "n_jobs=0"),
        (["--categorical", "size"], "train.csv has no such column; it has sepal length (cm)"),
        (["--model", "nowhere.ckpt"], "nowhere.ckpt"),
    ],
)
def test_bad_options(folder, model, capsys, options, message):
    assert run(folder, model, *options) == 2
    assert message in one_line_error(capsys)


@pytest.mark.parametrize(
    "arguments", [[], ["a.csv"], ["a.csv", "b.csv"], ["a.csv", "b.csv", "--seed", "x"]], ids=str
)
def test_usage_errors_exit_with_2(arguments, capsys):
    assert main(["predict", *arguments]) == 2
    assert "`tabicl-linear predict --help` lists the options" in one_line_error(capsys)


def test_warnings_are_lines(folder, model, capsys):
    train = TableFile(folder / "train.csv").frame().assign(age=[*range(54), *range(55), "old"])
    train.to_csv(folder / "train.csv", index=False)
    test = TableFile(folder / "test.csv").frame().assign(age=3)
    test.to_csv(folder / "test.csv", index=False)
    assert run(folder, model, "--quiet") == 0
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("tabicl-linear predict: warning: Column 'age' mixes numbers")


def test_a_failing_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    table = pd.DataFrame({"a": [1, 2]})
    output = tmp_path / "out.csv"
    output.write_text("old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(DataError, match="cannot be written: No space left"):
        write_table(table, output)
    assert [path.name for path in tmp_path.iterdir()] == ["out.csv"]
    assert output.read_text() == "old"
