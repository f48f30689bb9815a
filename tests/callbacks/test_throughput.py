"""Rates from a clock that is set by hand."""

import pytest
import torch

from tabicl_linear.callbacks import throughput
from tabicl_linear.callbacks.throughput import Throughput
from tabicl_linear.data.batch import TaskBatch
from tabicl_linear.errors import ConfigError
from tabicl_linear.training.metric_names import DATASETS, ROWS


class Recorder:
    def __init__(self):
        self.logged = None

    def log_dict(self, metrics, **kwargs):
        self.logged = metrics


class Ranks:
    world_size = 2


def test_rates_count_all_ranks_and_leave_validation_out(monkeypatch):
    now = 100.0
    monkeypatch.setattr(throughput.time, "monotonic", lambda: now)
    labels, categorical = torch.zeros(4, 50, dtype=torch.int64), torch.zeros(4, 3).bool()
    batch = TaskBatch(torch.zeros(4, 50, 3), labels, categorical, num_context=10, index=0)
    callback, module = Throughput(window=2), Recorder()
    callback.on_train_start(Ranks(), module)
    for seconds in (9.0, 2.0, 2.0):
        now += seconds
        callback.on_train_batch_end(Ranks(), module, None, batch, 0)
    assert module.logged == pytest.approx({DATASETS: 4.0, ROWS: 200.0})
    now += 1000.0
    callback.on_validation_end(Ranks(), module)
    now += 2.0
    callback.on_train_batch_end(Ranks(), module, None, batch, 0)
    assert module.logged == pytest.approx({DATASETS: 4.0, ROWS: 200.0})


def test_batches_of_different_sizes_count_as_what_they_hold(monkeypatch):
    now = 0.0
    monkeypatch.setattr(throughput.time, "monotonic", lambda: now)
    callback, module = Throughput(window=2), Recorder()
    callback.on_train_start(Ranks(), module)
    for tasks, rows in ((9, 9), (64, 50), (2, 800)):
        now += 4.0
        x, y = torch.zeros(tasks, rows, 3), torch.zeros(tasks, rows, dtype=torch.int64)
        batch = TaskBatch(x, y, torch.zeros(tasks, 3).bool(), num_context=5, index=0)
        callback.on_train_batch_end(Ranks(), module, None, batch, 0)
    assert module.logged == pytest.approx({DATASETS: 2 * 66 / 8, ROWS: 2 * 4800 / 8})


def test_no_batches_are_refused():
    with pytest.raises(ConfigError, match=r"throughput\.window=0"):
        Throughput(window=0)
