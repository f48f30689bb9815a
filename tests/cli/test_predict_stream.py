"""`tabicl-linear predict --stream`: the answers of `predict`, read and written in pieces."""

import numpy as np
import pandas as pd
import pytest
import tiny_model

from tabicl_linear import TabICLLinearClassifier
from tabicl_linear.__main__ import main
from tabicl_linear.cli import predict_tables
from tabicl_linear.estimator.rows import table_file


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny_model.save(tiny_model.trained(), tmp_path_factory.mktemp("model") / "tiny.ckpt")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Two files in both forms, several pieces long."""
    monkeypatch.setattr(table_file, "ROWS_PER_PIECE", 20)
    rng = np.random.default_rng(0)
    y = np.arange(120) % 3
    frame = pd.DataFrame({"a": y + rng.normal(size=120), "b": rng.normal(size=120)})
    frame["kind"] = np.array(["x", "y", None], dtype=object)[rng.integers(0, 3, 120)]
    frame["y"] = np.array(["no", "yes", "may, be"])[y]
    for name, part in (("train", frame[:70]), ("test", frame[70:].drop(columns="y"))):
        part.to_csv(tmp_path / f"{name}.csv", index=False)
        part.to_parquet(tmp_path / f"{name}.parquet", index=False)
    return tmp_path


def run(folder, model, *options, train="train.csv", test="test.csv", output="out.csv", target="y"):
    arguments = [folder / train, folder / test, "--target", target, "--output", folder / output]
    options = (*arguments, "--model", model, "--n-estimators", 2, *options)
    return main(["predict", *map(str, options)])


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_it_answers_as_without(folder, model, suffix, capsys):
    files = {"train": f"train.{suffix}", "test": f"test.{suffix}"}
    assert run(folder, model, output=f"whole.{suffix}", **files) == 0
    summary = capsys.readouterr().err
    assert run(folder, model, "--stream", output=f"pieces.{suffix}", **files) == 0
    whole, pieces = (
        pd.read_csv(folder / name) if suffix == "csv" else pd.read_parquet(folder / name)
        for name in (f"whole.{suffix}", f"pieces.{suffix}")
    )
    assert pieces.columns.tolist() == whole.columns.tolist()
    assert pieces.dtypes.tolist() == whole.dtypes.tolist()
    assert pieces.prediction.tolist() == whole.prediction.tolist()
    np.testing.assert_allclose(pieces.iloc[:, 1:], whole.iloc[:, 1:], atol=1e-6)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == summary.replace("whole", "pieces")
    assert captured.err.splitlines() == [
        f"read {folder / files['train']}: 70 rows, 3 columns, classes may, be, no, yes; wrote "
        f"{folder / f'pieces.{suffix}'}: 50 rows"
    ]


@pytest.mark.parametrize(
    ("suffix", "labels"),
    [
        ("csv", ["007", "010", "7"]),
        ("csv", ["1", "2", "3"]),
        ("csv", ["1.0", "2.0", "3.0"]),
        ("csv", ["True", "False", "True"]),
        ("csv", ["NA", "None", "yes"]),
        ("parquet", ["007", "010", "7"]),
        ("parquet", pd.array([1, 2, 3], dtype="Int64")),
        ("parquet", np.array([1, 2, 3], dtype="int8")),
        ("parquet", pd.Categorical(["b", "a", "c"])),
    ],
)
def test_labels_are_those_of_predict(folder, model, suffix, labels):
    train = pd.read_parquet(folder / "train.parquet")
    train["y"] = pd.Series(labels)[np.arange(70) % 3].to_numpy(dtype=object)
    if suffix == "parquet":
        train["y"] = train["y"].astype(pd.Series(labels).dtype)
    getattr(train, f"to_{suffix}")(folder / f"train.{suffix}", index=False)
    result = []
    for option in ([], ["--stream"]):
        assert run(folder, model, *option, train=f"train.{suffix}", output="out.parquet") == 0
        result.append(pd.read_parquet(folder / "out.parquet"))
    whole, pieces = result
    assert pieces.columns.tolist() == whole.columns.tolist()
    pd.testing.assert_series_equal(pieces["prediction"], whole["prediction"])
    assert set(pieces["prediction"]) <= set(train["y"]) or suffix == "csv"


def test_texts_of_train_are_texts_in_every_piece_of_test(folder, model):
    """A piece of test whose cells all look like numbers: 007 stays what it is in train."""
    codes = np.array(["007", "012", "A3"])
    train = pd.DataFrame({"code": codes[np.arange(60) % 3], "y": np.arange(60) % 3})
    test = pd.DataFrame({"code": np.repeat(codes, 20)})
    train.to_csv(folder / "train.csv", index=False)
    test.to_csv(folder / "test.csv", index=False)
    for output, options in (("whole.csv", ()), ("pieces.csv", ("--stream",))):
        assert run(folder, model, *options, output=output) == 0
    whole, pieces = (pd.read_csv(folder / name) for name in ("whole.csv", "pieces.csv"))
    assert whole.iloc[0, 1:].tolist() != whole.iloc[20, 1:].tolist()
    np.testing.assert_allclose(pieces.iloc[:, 1:], whole.iloc[:, 1:], atol=1e-6)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_ids_with_gaps_keep_their_digits(folder, model, suffix):
    """As floats all of these would be one category, with one row of probabilities."""
    ids = 2**60 + np.arange(3)
    train = pd.DataFrame({"id": ids[np.arange(60) % 3], "y": np.arange(60) % 3})
    test = pd.DataFrame({"id": pd.array([*ids, None] * 20, dtype="Int64")})
    for name, table in (("train", train), ("test", test)):
        getattr(table, f"to_{suffix}")(folder / f"{name}.{suffix}", index=False)
    files = {"train": f"train.{suffix}", "test": f"test.{suffix}"}
    for output, options in (("whole.csv", ()), ("pieces.csv", ("--stream",))):
        assert run(folder, model, "--categorical", "id", *options, output=output, **files) == 0
    whole, pieces = (pd.read_csv(folder / name) for name in ("whole.csv", "pieces.csv"))
    assert not whole.iloc[:3, 1:].duplicated().any()
    np.testing.assert_allclose(pieces.iloc[:, 1:], whole.iloc[:, 1:], atol=1e-6)


def test_quiet_is_quiet(folder, model, capsys):
    assert run(folder, model, "--stream", "--quiet") == 0
    assert capsys.readouterr().err == ""


def test_columns_may_come_in_another_order_and_with_the_target(folder, model):
    assert run(folder, model, "--stream", output="one.csv") == 0
    table = pd.read_csv(folder / "test.csv")
    table.assign(y="no")[["y", "kind", "b", "a"]].to_csv(folder / "other.csv", index=False)
    assert run(folder, model, "--stream", test="other.csv", output="two.csv") == 0
    assert (folder / "one.csv").read_bytes() == (folder / "two.csv").read_bytes()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.drop(columns="b"), "missing 'b'"),
        (lambda t: t.assign(more=1), "unknown 'more'"),
        (lambda t: t[:0], "test.csv has a header but no rows"),
        (lambda t: t.assign(b=[*["1"] * 45, *["text"] * 5]), "'b' held numbers .* 'text'"),
    ],
)
def test_bad_queries_leave_no_output(folder, model, change, message, capsys, monkeypatch):
    change(pd.read_csv(folder / "test.csv")).to_csv(folder / "test.csv", index=False)
    before = sorted(folder.iterdir())
    assert run(folder, model, "--stream") == 2
    error = capsys.readouterr().err
    assert pd.Series([error]).str.contains(message).all(), error
    assert len(error.splitlines()) == 1
    assert sorted(folder.iterdir()) == before


def test_of_one_class_it_asks_for_another_and_not_for_a_method(folder, model, capsys):
    pd.read_csv(folder / "train.csv").assign(y="u").to_csv(folder / "train.csv", index=False)
    assert run(folder, model, "--stream") == 2
    error = capsys.readouterr().err
    assert error.endswith("one class only ('u'): give training rows of at least two.\n")


def test_a_mismatch_is_found_before_the_fit(folder, model, monkeypatch):
    def fit(*_):
        raise AssertionError("fitted")

    monkeypatch.setattr(TabICLLinearClassifier, "fit", fit)
    table = pd.read_csv(folder / "test.csv").drop(columns="b")
    table.to_csv(folder / "test.csv", index=False)
    assert run(folder, model, "--stream") == 2
    assert run(folder, model, "--stream", target="z") == 2


def test_the_output_has_its_name_only_once_it_is_complete(folder, model, monkeypatch):
    seen = []
    with_predictions = predict_tables.with_predictions

    def watched(*arguments):
        seen.append(sorted(path.name for path in folder.iterdir()))
        return with_predictions(*arguments)

    monkeypatch.setattr(predict_tables, "with_predictions", watched)
    assert run(folder, model, "--stream") == 0
    assert len(seen) == 3
    assert not any("out.csv" in names for names in seen)
    assert (folder / "out.csv").is_file()
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]


def test_a_disk_that_fills_is_one_line(folder, model, monkeypatch, capsys):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pd.DataFrame, "to_csv", full)
    assert run(folder, model, "--stream") == 2
    assert "out.csv cannot be written: No space left" in capsys.readouterr().err
    assert not (folder / "out.csv").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--sep", ";"], "--sep"),
        (["--id-columns", "a"], "--id-columns"),
        (["--drop", "a"], "--drop"),
        (["--dates", "kind"], "--dates"),
        (["--refine"], "--refine"),
        (["--softmax-temperature", "auto"], "--softmax-temperature auto"),
        (["--long-context", "auto"], "--long-context auto"),
        (["--encoding", "latin-1", "--na-values", "?"], "--encoding, --na-values"),
    ],
)
def test_options_that_it_cannot_honour_are_refused(folder, model, options, message, capsys):
    assert run(folder, model, "--stream", *options) == 2
    error = capsys.readouterr().err
    assert f"--stream does not take {message}: prepare" in error
    assert len(error.splitlines()) == 1
    assert not (folder / "out.csv").exists()


def test_other_forms_of_text_give_the_same_answers(folder, model):
    assert run(folder, model, "--stream") == 0
    for name in ("train", "test"):
        table = pd.read_csv(folder / f"{name}.csv")
        table.to_csv(folder / f"{name}.tsv.gz", index=False, sep="\t")
    files = {"train": "train.tsv.gz", "test": "test.tsv.gz", "output": "out.tsv.gz"}
    assert run(folder, model, "--stream", **files) == 0
    answers = pd.read_csv(folder / "out.tsv.gz", sep="\t")
    pd.testing.assert_frame_equal(answers, pd.read_csv(folder / "out.csv"))


def test_standard_input_cannot_be_read_twice(folder, model, capsys):
    arguments = ["-", folder / "test.csv", "--target", "y", "--output", folder / "out.csv"]
    assert main(["predict", *map(str, arguments), "--stream"]) == 2
    assert "--stream does not take standard input" in capsys.readouterr().err


def test_faults_at_the_end_of_the_test_table_are_found_before_the_fit(
    folder, model, capsys, monkeypatch
):
    monkeypatch.setattr(TabICLLinearClassifier, "fit", None)
    with (folder / "test.csv").open("a") as file:
        file.write("1,2,x,more\n")
    assert run(folder, model, "--stream") == 2
    assert "test.csv: line 52 has 4 fields and the header 3" in capsys.readouterr().err


def test_ensembles_by_name(folder, model, monkeypatch):
    seen = []
    fit = TabICLLinearClassifier.fit

    def watched(self, *arguments):
        seen.append(fit(self, *arguments).ensemble_)
        return self

    monkeypatch.setattr(TabICLLinearClassifier, "fit", watched)
    arguments = [folder / "train.csv", folder / "test.csv", "--target", "y", "--model", model]
    arguments += ["--output", folder / "out.csv", "--stream", "--ensemble", "paper"]
    assert main(["predict", *map(str, arguments)]) == 0
    assert len(seen[0].views) == 10


def test_it_warns_of_row_numbers_as_without(folder, model, capsys, monkeypatch):
    monkeypatch.setattr(predict_tables, "MIN_ROW_NUMBERS", 10)
    for name in ("train", "test"):
        pd.read_csv(folder / f"{name}.csv").to_csv(folder / f"{name}.csv", index_label="n")
    assert run(folder, model, "--stream") == 0
    lines = [line for line in capsys.readouterr().err.splitlines() if "row numbers" in line]
    assert [line.partition("columns that ")[2] for line in lines] == [
        "look like row numbers: 'n'; leave such columns out of both tables."
    ]
