"""`tabicl-linear report` writes whole files, or one line and nothing."""

import importlib.util

import pytest
from report.folders import fail, rows, write

from tabicl_linear.__main__ import main


@pytest.fixture
def folder(tmp_path):
    """Two models on three tables."""
    frames = [rows(x, [0.5, 0.6, 0.7], metrics=["roc_auc", "accuracy"]) for x in ("a", "last")]
    return write(tmp_path / "runs", *frames)


def test_a_report_lies_in_the_folder_of_its_results(folder, capsys):
    assert main(["report", str(folder), "--name", "last=deltanet", "--reference", "deltanet"]) == 0
    captured = capsys.readouterr()
    assert "| deltanet |" in captured.out
    assert captured.err.splitlines()[-1].endswith("begin with report.html")
    assert {path.name for path in (folder / "report").iterdir()} == {
        *("report.html", "report.md", "files.txt", "pairs.csv", "figures", "tables")
    }
    assert f"report {folder} --name" in (folder / "report" / "report.html").read_text()
    assert not list(folder.rglob("*.partial"))


def test_a_report_is_written_anew_and_elsewhere(folder, tmp_path):
    output = tmp_path / "here" / "page"
    assert main(["report", str(folder), "--models", "a", "--output", str(output)]) == 0
    assert main(["report", str(folder), "--models", "last", "--output", str(output)]) == 0
    assert "| last |" in (output / "report.md").read_text()
    assert not (folder / "report").exists()


def test_nothing_to_compare_is_said_and_leaves_no_older_table(folder, tmp_path, capsys):
    output = folder / "report"
    assert main(["report", str(folder)]) == 0
    (output / "tables" / "mine.csv").write_text("kept")
    failed = rows("a", [0.5])
    for fold in (0, 1):
        fail(failed, "t0", fold, "no memory")
    other = write(tmp_path / "other", failed)
    capsys.readouterr()
    assert main(["report", str(other), "--output", str(output)]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines()[-1].startswith("tabicl-linear report: no table has scores")
    assert "no memory" in (output / "report.md").read_text()
    assert {path.stem for path in (output / "tables").iterdir()} == {"means", "missing", "mine"}
    assert not list((output / "figures").iterdir())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], ["DIR"]),
        (["nowhere"], ["nowhere", "no results.csv", "evaluate"]),
        (["RUNS", "--reference", "b"], ["--reference b", "a, last"]),
        (["RUNS", "--name", "b"], ["--name", "'b' is not OLD=NEW"]),
        (["RUNS", "--name", "b=c"], ["--name b", "a, last"]),
        (["RUNS", "--name", "last=a"], ["two results", "leave out a folder or --name"]),
        (["RUNS", "RUNS"], ["two results"]),
        (["RUNS", "--models", "b"], ["--models b", "a, last"]),
        (["RUNS", "--output", "RUNS/results.csv"], ["--output", "is not a folder"]),
        (["RUNS", "--output", "RUNS/results.csv/x"], ["--output", "is not a folder"]),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(folder, capsys, options, words):
    before = sorted(folder.rglob("*"))
    options = [option.replace("RUNS", str(folder)) for option in options]
    assert main(["report", *options]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    for word in words:
        assert word in captured.err
    assert sorted(folder.rglob("*")) == before


def test_an_output_that_cannot_be_written_is_refused_before_the_work(folder, capsys, monkeypatch):
    """Statistics of many tables take minutes."""
    monkeypatch.setattr("tabicl_linear.report.results.read", lambda *_: pytest.fail("it was read"))
    assert main(["report", str(folder), "--output", str(folder / "results.csv" / "x")]) == 2
    assert "results.csv is not a folder" in capsys.readouterr().err


def test_a_missing_library_is_named_with_its_extra(folder, capsys, monkeypatch):
    there = importlib.util.find_spec
    absent = {"scikit_posthocs"}
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name in absent else there(name)
    )
    assert main(["report", str(folder)]) == 2
    said = "`report` needs scikit_posthocs: pip install 'tabicl-linear[benchmarks]'."
    assert said in capsys.readouterr().err


def test_a_file_in_place_of_its_folder_is_named(tmp_path, capsys):
    """The sentence was about an --output that nobody had given."""
    path = tmp_path / "results.csv"
    path.write_text("model\n")
    assert main(["report", str(path)]) == 2
    assert f"{path} is a file; name its folder, {tmp_path}." in capsys.readouterr().err
