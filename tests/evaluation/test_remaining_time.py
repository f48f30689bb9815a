"""How far an evaluation is, and what is left."""

import pytest

from tabicl_linear.evaluation.remaining_time import EVERY, Progress


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def test_time_left_counts_models_by_what_they_take(clock):
    progress = Progress(["fast"] * 10 + ["slow"] * 2, 12, 1, lambda line: None, clock)
    progress.done("fast", seconds=1.0, failed=False)
    assert progress.seconds_left() == pytest.approx(11)  # slow as fast, as far as known
    progress.done("slow", seconds=100.0, failed=False)
    assert progress.seconds_left() == pytest.approx(9 * 1 + 100)


def test_jobs_share_it():
    progress = Progress(["one"] * 5, 5, 2, lambda line: None)
    progress.done("one", seconds=10.0, failed=False)
    assert progress.seconds_left() == pytest.approx(20)


def test_lines(clock):
    lines = []
    progress = Progress(["one"] * 4, 10, 1, lines.append, clock)
    progress.done("one", seconds=60.0, failed=True)
    clock.now = 61.0
    progress.done("one", seconds=60.0, failed=False)
    progress.done("one", seconds=60.0, failed=False)
    clock.now = 240.0
    progress.done("one", seconds=60.0, failed=False)
    assert lines == [
        "6 of 10 trials were done before",
        "8 of 10 trials, 1 failed, about 2 min left",
        "10 of 10 trials, 1 failed, in 4 min",
    ]


def test_a_line_is_due_after_exactly_its_seconds(clock):
    lines = []
    progress = Progress(["one"] * 3, 3, 1, lines.append, clock)
    clock.now = EVERY
    progress.done("one", seconds=1.0, failed=False)
    clock.now = 2 * EVERY - 0.1
    progress.done("one", seconds=1.0, failed=False)
    assert lines == ["1 of 3 trials, about 2 s left"]
