"""One file over kills and resumes."""

import csv

from tabicl_linear.training.loggers import MetricsFile


def rows(folder):
    with (folder / "metrics.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_new_metrics_make_new_columns(tmp_path):
    log = MetricsFile(tmp_path / "run")
    log.log_metrics({"a": 1.0, "epoch": 0}, step=0)
    log.log_metrics({"b": 2.0}, step=1)
    assert rows(tmp_path / "run") == [
        {"step": "0", "a": "1.0", "b": ""},
        {"step": "1", "a": "", "b": "2.0"},
    ]


def test_a_resumed_run_drops_the_steps_that_it_takes_again(tmp_path):
    log = MetricsFile(tmp_path)
    for step in range(5):
        log.log_metrics({"a": float(step)}, step=step)
    MetricsFile(tmp_path, resumed_step=3).log_metrics({"a": 33.0}, step=3)
    assert [row["a"] for row in rows(tmp_path)] == ["0.0", "1.0", "2.0", "33.0"]


def test_a_line_cut_by_a_kill_is_dropped(tmp_path):
    (tmp_path / "metrics.csv").write_text("step,a,b\n0,1.0,2.0\n1,3")
    MetricsFile(tmp_path, resumed_step=9).log_metrics({"a": 5.0}, step=9)
    assert [row["step"] for row in rows(tmp_path)] == ["0", "9"]


def test_a_number_cut_by_a_kill_is_none(tmp_path):
    """The rest of 2.75 would be a number, too."""
    (tmp_path / "metrics.csv").write_text("step,a,b\n0,1.0,2.0\n1,3.0,2.")
    log = MetricsFile(tmp_path, resumed_step=9)
    assert log.rows == 1
    log.log_metrics({"a": 5.0}, step=9)
    assert [row["step"] for row in rows(tmp_path)] == ["0", "9"]
    assert log.rows == 2


def test_a_validation_that_is_made_up_is_written_once(tmp_path):
    """One inside the window of the step, before the checkpoint, and one that follows the step."""
    log = MetricsFile(tmp_path)
    for name in ("val/loss", "a"):
        log.log_metrics({name: 1.0}, step=2)
    resumed_rows = log.rows
    log.log_metrics({"val/loss": 3.0}, step=2)
    log.log_metrics({"a": 4.0}, step=3)
    log = MetricsFile(tmp_path, resumed_step=3, resumed_rows=resumed_rows)
    assert log.rows == 2
    log.log_metrics({"val/loss": 3.0}, step=2)
    assert [(row["step"], row["val/loss"]) for row in rows(tmp_path)] == [
        ("2", "1.0"),
        ("2", ""),
        ("2", "3.0"),
    ]


def test_nothing_is_made_before_the_first_row(tmp_path):
    MetricsFile(tmp_path / "run")
    assert not (tmp_path / "run").exists()
