"""Numbers of threads by a clock that is set by hand."""

import pytest
import torch

from tabicl_linear.callbacks import thread_count
from tabicl_linear.callbacks.thread_count import TRIALS, ThreadCount
from tabicl_linear.data.batch import TaskBatch
from tabicl_linear.errors import ConfigError


@pytest.fixture
def steps(monkeypatch):
    """Runs steps of given seconds by number of threads; returns the numbers that they had."""
    clock, threads = [0.0], [4]
    monkeypatch.setattr(thread_count.time, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads[0])
    monkeypatch.setattr(torch, "set_num_threads", lambda count: threads.__setitem__(0, count))

    def run(callback, seconds, count):
        used = []
        for number in range(count):
            rows = 10 + 40 * (number % 3)  # times of long tables are longer
            y = torch.zeros(2, rows, dtype=torch.int64)
            x, kinds = torch.zeros(2, rows, 3), torch.zeros(2, 3).bool()
            batch = TaskBatch(x, y, kinds, num_context=5, index=0)
            callback.on_train_batch_start(None, None, batch, 0)
            used.append(torch.get_num_threads())
            clock[0] += seconds[used[-1]] * y.numel()
            callback.on_train_batch_end(None, None, None, batch, 0)
        return used

    return run


QUIET, BUSY = {4: 1.0, 2: 1.8, 1: 3.0}, {4: 5.0, 2: 4.0, 1: 3.0}


def test_fewer_threads_are_chosen_while_others_compute(steps):
    callback = ThreadCount(every_n_steps=20)
    callback.on_train_start(None, None)
    assert steps(callback, QUIET, 20) == [4, 2] * TRIALS + [4] * 14
    assert steps(callback, BUSY, 20) == [4, 2] * TRIALS + [2] * 14
    assert steps(callback, BUSY, 20) == [2, 1, 4] * TRIALS + [1] * 11
    assert steps(callback, QUIET, 20) == [1, 2] * TRIALS + [2] * 14
    assert steps(callback, QUIET, 20) == [2, 1, 4] * TRIALS + [4] * 11
    steps(callback, QUIET, 2)
    assert torch.get_num_threads() == 2
    callback.on_exception(None, None, KeyboardInterrupt())
    assert torch.get_num_threads() == 4


def test_a_gain_within_the_noise_changes_nothing(steps):
    callback = ThreadCount(every_n_steps=20)
    callback.on_train_start(None, None)
    assert steps(callback, {4: 1.0, 2: 0.95}, 20)[-1] == 4


def test_numbers_are_not_compared_unless_asked_for(steps):
    callback = ThreadCount()
    callback.on_train_start(None, None)
    assert set(steps(callback, BUSY, 30)) == {4}


@pytest.mark.parametrize("interval", [-1, 1, 3 * TRIALS - 1])
def test_an_interval_shorter_than_a_comparison_is_refused(interval):
    with pytest.raises(ConfigError, match=f"every_n_steps={interval}: .* give 0 or"):
        ThreadCount(every_n_steps=interval)
