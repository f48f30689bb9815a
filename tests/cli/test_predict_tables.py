"""`tabicl-linear predict` on the columns, labels and files that people have."""

import io
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import tiny_model

from tabicl_linear.__main__ import main
from tabicl_linear.cli.predict_tables import (
    _row_numbers,
    read_tables,
    with_predictions,
)
from tabicl_linear.errors import DataError
from tabicl_linear.estimator.columns.preprocessor import TablePreprocessor
from tabicl_linear.estimator.rows.table_file import TableFile, TextFormat


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny_model.save(tiny_model.trained(), tmp_path_factory.mktemp("model") / "tiny.ckpt")


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Writes files by name and content, in the working folder of the test."""
    monkeypatch.chdir(tmp_path)

    def write(**content):
        for name, text in content.items():
            data = text.encode("latin-1" if name.startswith("latin") else "utf-8")
            (tmp_path / f"{name}.csv").write_bytes(data)
        return tmp_path

    return write


def predict(model, *options, train="train.csv", test="test.csv", output="out.csv"):
    options = ("--target", "y", "--output", output, "--model", model, "--n-estimators", 1, *options)
    return main(["predict", train, test, *map(str, options)])


def tables(**options):
    text = TextFormat(na_values=options.pop("na_values", ()), as_written=("y",))
    files = (TableFile(Path(f"{name}.csv"), text) for name in ("train", "test"))
    return read_tables(*files, "y", **options)


ROWS = "1,a,no\n2,b,yes\n" * 4


def test_identifiers_stay_and_are_no_features(files, model, capsys):
    folder = files(
        train="id,x,z,y\n" + "".join(f"{i:03},{i % 2},q,{'ab'[i % 2]}\n" for i in range(40)),
        test="x,z,id,y\n0,q,007,a\n1,q,,b\n",
    )
    assert predict(model, "--id-columns", "id", "--drop", "z") == 0
    out = pd.read_csv(folder / "out.csv", dtype=str)
    assert out.columns.tolist() == ["id", "prediction", "proba_a", "proba_b"]
    assert out["id"].fillna("").tolist() == ["007", ""]
    assert "40 rows, 1 column, classes a, b" in capsys.readouterr().err


def test_identifiers_of_parquet_keep_their_type(model, tmp_path):
    train = pd.DataFrame({"x": [0.0, 1.0] * 8, "y": pd.Categorical(["lo", "hi"] * 8)})
    train["y"] = train["y"].cat.set_categories(["lo", "hi", "never"], ordered=True)
    when = pd.to_datetime(["2024-01-01", "2024-01-02"])
    train.to_parquet(tmp_path / "a.parquet")
    pd.DataFrame({"x": [0.0, 1.0], "when": when}).to_parquet(tmp_path / "b.parquet")
    paths = (tmp_path / "a.parquet", tmp_path / "b.parquet", tmp_path / "c.parquet")
    assert (
        predict(
            model,
            "--id-columns",
            "when",
            train=str(paths[0]),
            test=str(paths[1]),
            output=str(paths[2]),
        )
        == 0
    )
    out = pd.read_parquet(paths[2])
    assert out["when"].tolist() == when.tolist()
    assert out["prediction"].dtype == train["y"].dtype


@pytest.mark.parametrize("kind", ["int8", "Int64", "boolean", "string", "float32"])
def test_predictions_have_the_type_of_the_labels(kind):
    labels = pd.Series([0, 1, 1], dtype="int8").astype(kind)
    ids = pd.DataFrame(index=range(2))
    classes = np.array(sorted(labels.unique().tolist()))
    out = with_predictions(ids, classes, np.array([[0.1, 0.9], [0.8, 0.2]]), labels.dtype)
    assert out["prediction"].dtype == labels.dtype
    assert out["prediction"].tolist() == [labels[1], labels[0]]


def test_words_can_be_labels(files, model):
    folder = files(train="x,y\n" + "1,NA\n2,None\n" * 4, test="x\n1\n2\n")
    assert predict(model, "--quiet") == 0
    header, *lines = (folder / "out.csv").read_text().splitlines()
    assert header == "prediction,proba_NA,proba_None"
    assert {line.partition(",")[0] for line in lines} <= {"NA", "None"}


def test_marks_in_columns_of_numbers_are_missing(files):
    files(train="x,z,y\n" + "1,?,a\n?,b,b\n ,c,a\n2.5,?,b\n", test="x,z\n?,?\n,b\n")
    read = tables()
    columns = TablePreprocessor()
    with pytest.warns(UserWarning, match=r"Text is read in columns 'x' \('\?' as missing\)"):
        matrix = columns.fit(read.train).transform(read.train)
    assert np.isnan(matrix[:, 0]).tolist() == [False, True, True, False]
    assert np.isnan(columns.transform(read.test)[:, 0]).all()
    assert read.train["z"].tolist() == ["?", "b", "c", "?"]
    assert read.test["z"].tolist() == ["?", "b"]


def test_further_texts_for_missing_values_and_dates(files):
    files(
        train="x,when,y\n1,2024-01-05,a\n-9,2024-02-05,b\n2,missing,a\n",
        test="x,when\n-9,2024-03-01\n",
    )
    read = tables(na_values=["-9", "missing"], dates=["when"])
    assert read.train["x"].isna().tolist() == [False, True, False]
    assert read.train["when"].tolist()[:2] == [pd.Timestamp(2024, 1, 5), pd.Timestamp(2024, 2, 5)]
    assert read.train["when"].isna()[2]
    assert read.test["when"].tolist() == [pd.Timestamp(2024, 3, 1)]


def test_separators_encodings_and_standard_input(files, model, monkeypatch):
    folder = files(
        latin="größe;y\n" + "1;straße\n2;weg\n" * 4,
        plain="größe\n1\n2\n",
    )
    stream = SimpleNamespace(buffer=io.BytesIO((folder / "latin.csv").read_bytes()))
    monkeypatch.setattr(sys, "stdin", stream)
    (folder / "test.csv").write_bytes((folder / "plain.csv").read_text().encode("latin-1"))
    options = ("--sep", ";", "--encoding", "latin-1", "--quiet")
    assert predict(model, *options, train="-", output="out.tsv.gz") == 0
    out = pd.read_csv(folder / "out.tsv.gz", sep="\t")
    assert out.columns.tolist() == ["prediction", "proba_straße", "proba_weg"]


def test_columns_that_look_like_row_numbers_are_named(files, model, capsys):
    train = ",n,x,y\n" + "".join(f"{i},{i},{i % 3},{'ab'[i % 2]}\n" for i in range(40))
    files(train=train, test=",n,x\n0,0,1\n")
    assert predict(model, "--quiet") == 0
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert "train.csv has columns that look like row numbers: 'Unnamed: 0', 'n'; name" in lines[0]
    assert predict(model, "--quiet", "--drop", "n", "--id-columns", "Unnamed: 0") == 0
    assert capsys.readouterr().err == ""


def test_a_comma_at_the_end_of_each_line_makes_no_column(files, model, capsys):
    rows = "".join(f"{i % 3},{'ab'[i % 2]},,\n" for i in range(40))
    folder = files(train="x,y,,\n" + rows, test="x,\n0,\n1,\n")
    assert predict(model, "--quiet") == 0
    assert capsys.readouterr().err.splitlines() == [
        f"tabicl-linear predict: warning: {file} has columns without a name and a value, as if "
        f"lines ended with a comma, which are left out: {names}."
        for file, names in (
            ("train.csv", "'Unnamed: 2', 'Unnamed: 3'"),
            ("test.csv", "'Unnamed: 1'"),
        )
    ]
    assert len(pd.read_csv(folder / "out.csv")) == 2
    assert predict(model, "--quiet", "--drop", "Unnamed: 1", "Unnamed: 2", "Unnamed: 3") == 0
    assert capsys.readouterr().err == ""
    assert predict(model, "--stream") == 2  # before any row is read, they may hold anything
    assert "any order; a comma at the end of each line makes a column" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--quiet", "--stream"])
def test_a_last_row_without_a_value_is_predicted_and_told_of(files, model, capsys, option):
    folder = files(
        train="x,z,y\n" + "1,2,a\n2,3,b\n3,3,b\n" * 4,
        test="x,z\n1,2\n,\n",
        other="x,z\n,\n1,\n",  # in the middle, and with a value: nothing is told
    )
    assert predict(model, "--quiet", option) == 0
    error = capsys.readouterr().err
    assert error.count("test.csv: the last row has no value. It is predicted as any other") == 1
    assert len(pd.read_csv(folder / "out.csv")) == 2
    assert predict(model, "--quiet", option, test="other.csv") == 0
    assert capsys.readouterr().err == ""


def test_a_pipe_is_to_be_standard_input(files, model, capsys):
    folder = files(train="x,y\n" + "1,a\n2,b\n" * 4)
    os.mkfifo(folder / "test.csv")
    assert predict(model) == 2
    assert "test.csv is a pipe, which can be read once: give -" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("learnt", "asked", "other"),
    [
        (["007", "A12"], ["007", "012"], "A12"),
        (["TRUE", "FALSE", "unknown"], ["TRUE", "FALSE"], "unknown"),
        (["1.826,92", "17,5"], ["5.000", "500"], "5,5"),
        (["2024-01-31", "2024-02-28"], ["20240131"], "2024-02-28"),
    ],
)
def test_what_a_cell_means_does_not_depend_on_the_other_cells(files, learnt, asked, other):
    files(train="x,y\n" + "".join(f'"{cell}",{row % 2}\n' for row, cell in enumerate(learnt)))
    text = "x\n" + "".join(f'"{cell}"\n' for cell in asked)
    files(test=text)
    alone = tables().test.x
    files(test=text + f'"{other}"\n')
    assert alone.tolist() == tables().test.x.tolist()[:-1] == asked


def test_numbers_declared_categories_meet_new_texts(files, model):
    rows = "01234,no\n98765,yes\n" * 20
    folder = files(train="zip,y\n" + rows, test="zip\n01234\n98765\n")
    assert predict(model, "--categorical", "zip") == 0
    alone = pd.read_csv(folder / "out.csv")
    files(test="zip\n01234\n98765\nK1A\n")
    assert predict(model, "--categorical", "zip") == 0
    pd.testing.assert_frame_equal(pd.read_csv(folder / "out.csv")[:2], alone)


def test_a_column_of_test_alone_can_be_dropped(files):
    files(train="x,y\n1,0\n2,1\n", test="x,more\n1,2\n")
    assert tables(drop=["more"]).test.columns.tolist() == ["x"]


def test_labels_that_are_lists_are_refused(files, tmp_path):
    files(test="x\n1\n")
    pd.DataFrame({"x": [1, 2], "y": [[1], [2]]}).to_parquet(tmp_path / "train.parquet")
    with pytest.raises(DataError, match="labels of type ndarray"):
        read_tables(TableFile(Path("train.parquet")), TableFile(Path("test.csv")), "y")


BAD = {
    "columns of the test": (
        [],
        "x,q\n1,1\n",
        "differ from those of train.csv: missing 'z'",
    ),
    "no id": (["--id-columns", "id"], "x,z\n1,a\n", "--id-columns id: test.csv has no such column"),
    "no drop": (
        ["--drop", "w"],
        "x,z\n1,a\n",
        "--drop w: train.csv has no such column; it has x",
    ),
    "no categorical": (
        ["--categorical", "z", "--drop", "z"],
        "x,z\n1,a\n",
        "--categorical z: train.csv has no such column; it has x",
    ),
    "no dates": (["--dates", "w"], "x,z\n1,a\n", "--dates w: train.csv has no such column"),
    "no date": (["--dates", "z"], "x,z\n1,a\n", "train.csv: --dates z: 'a' in row 1 is no date"),
    "id and dropped": (
        ["--id-columns", "x", "--drop", "x"],
        "x,z\n1,a\n",
        "--id-columns x is also in --drop",
    ),
    "target twice": (["--drop", "y"], "x,z\n1,a\n", "--target y is also in --id-columns or --drop"),
    "nothing left": (["--drop", "x", "z"], "x,z\n1,a\n", "no column besides the target 'y'"),
    "name taken": (["--id-columns", "proba_no"], "x,z,proba_no\n1,a,1\n", "rename it"),
    "separator": (["--sep", ";"], "x,z\n1,a\n", "train.csv has no column 'y'"),
    "long separator": (["--sep", ";;"], "x,z\n1,a\n", "';;': give one character"),
    "encoding": (["--encoding", "klingon"], "x,z\n1,a\n", "klingon: no such encoding"),
    "codec": (["--encoding", "rot13"], "x,z\n1,a\n", "rot13: no such encoding"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_does_not_fit_is_found_before_the_fit(files, capsys, monkeypatch, case):
    options, test, message = BAD[case]
    files(train="x,z,y\n" + ROWS, test=test)
    # Reaching the classifier would fail: the model does not exist.
    assert predict("nowhere.ckpt", *options) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
    assert "nowhere.ckpt" not in line
    assert not os.path.exists("out.csv")


def test_two_standard_inputs_are_refused(files, capsys):
    files()
    assert predict("nowhere.ckpt", train="-", test="-") == 2
    assert "both standard input" in capsys.readouterr().err


def test_missing_labels_among_numbers(files):
    files(train="x,y\n1,0\n2,NA\n3,1\n", test="x\n1\n")
    with pytest.raises(DataError, match="missing in 1 of 3 rows"):
        tables()


def test_the_process_ends_when_the_file_is_there(files, model):
    """Of `python -m`: its exit runs nothing that was left for it, and loses no output."""
    folder = files(train="x,z,y\n" + ROWS, test="x,z\n1,a\n")
    options = ["--target", "y", "--output", "o.csv", "--n-estimators", "1", "--model", str(model)]
    code = (
        "import atexit, runpy, sys; atexit.register(print, 'left');"
        f"sys.argv[1:] = ['predict', 'train.csv', 'test.csv', *{options!r}];"
        "runpy.run_module('tabicl_linear', run_name='__main__', alter_sys=True)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.endswith("wrote o.csv: 1 row\n")
    assert len(pd.read_csv(folder / "o.csv")) == 1


def test_columns_that_look_like_row_numbers():
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "Unnamed: 0": rng.normal(size=40),
            "id": np.arange(7, 47),
            "count": rng.permutation(40),
            "time": np.arange(40.0),
            "steps": 2 * np.arange(40),
        }
    )
    assert _row_numbers(table) == ["Unnamed: 0", "id"]
    assert _row_numbers(table[:20]) == ["Unnamed: 0"]
