"""The smallest recipe that a leg of pretraining takes, and trainings that are forked."""

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from subprocess import CalledProcessError
from types import SimpleNamespace
from typing import Any

import pytest
from forked import started

from experiments.pretrain_default import training
from tabicl_linear.__main__ import main

TINY = """
model:
  architecture: {dim: 32, num_heads: 2, depth: 1, hidden_dim: 32, decoder_dim: 32}
  schedule: {init_args: {warmup_steps: 2}}
data:
  val_batches: 1
  shapes: {batch_size: 2, tokens_per_batch: null, columns_per_cell: null, num_rows: 64}
trainer: {log_every_n_steps: 1}
checkpoint: {every_n_steps: 1}
"""


@pytest.fixture
def overlay(tmp_path):
    """A file with the overlay."""
    path = tmp_path / "tiny.yaml"
    path.write_text(TINY)
    return path


class Forked:
    """What a leg asks of `subprocess.Popen`, without the five seconds of a new interpreter."""

    def __init__(self, command: Sequence[str], *, stderr: Any = None, **_: Any) -> None:
        assert list(command[:3]) == [sys.executable, "-m", "tabicl_linear"]
        output = Path(os.devnull if stderr is None else stderr.name)
        self._run = started(output, main, *command[3:])
        self.pid = self._run.pid

    def poll(self) -> int | None:
        return self._run.poll()

    @property
    def returncode(self) -> int | None:
        return self._run.poll()

    def send_signal(self, signum: int) -> None:
        os.kill(self.pid, signum)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)


FORKING = SimpleNamespace(Popen=Forked, CalledProcessError=CalledProcessError)
"""In place of `subprocess` in the module that trains, and there alone: trainings start programs."""


@pytest.fixture
def fork_trainings(monkeypatch):
    """From when it is called on, legs fork their trainings."""
    return lambda: monkeypatch.setattr(training, "subprocess", FORKING)
