"""What is shown, on a terminal and in a log file."""

import io
import re
import sys

import pytest

from tabicl_linear.callbacks.progress import Progress
from tabicl_linear.errors import ConfigError

SHOW = ("--trainer.enable_progress_bar", "true", "--trainer.max_steps", 4)
NUMBERS = r"loss \d\.\d{3}, lr \d\.\d\de-\d\d, [\d,]+ datasets/s, [\d,]+ rows/s"


class Stream(io.StringIO):
    def __init__(self, terminal):
        super().__init__()
        self._terminal = terminal

    def isatty(self):
        return self._terminal


def run(fit, monkeypatch, terminal, *options):
    stream = Stream(terminal)
    monkeypatch.setattr(sys, "stderr", stream)
    assert fit(*SHOW, "--trainer.val_check_interval", 4, *options) == 0
    return stream.getvalue()


@pytest.mark.parametrize("terminal", [False, True])
def test_it_shows_loss_rate_speed_and_time_left(fit, monkeypatch, terminal):
    text = run(fit, monkeypatch, terminal)
    assert re.search(rf"100%\|.*\| 4/4 \[\d\d:\d\d<\d\d:\d\d, {NUMBERS}\]", text)
    assert re.search(r"step 2: val/loss \d\.\d{4}, val/accuracy 0\.\d{4}, val/roc_auc", text)
    assert ("\r" in text) == terminal


def test_a_log_file_gets_a_line_at_each_interval(fit, monkeypatch):
    text = run(fit, monkeypatch, False, "--progress.seconds", 0)
    assert re.findall(r"\| (\d)/4 ", text) == ["1", "2", "3", "4"]


@pytest.mark.parametrize("seconds", [-0.1, float("nan")])
def test_fewer_seconds_than_none_are_refused(seconds):
    with pytest.raises(ConfigError, match=rf"progress\.seconds={seconds}: give at least 0"):
        Progress(seconds)
