"""Commands in a process of their own that begins with all that this one has imported.

For tests that kill or disturb a command. As a new interpreter each would first spend five seconds
on imports, which these tests do not look at; how a command begins and ends is what others run.
"""

import multiprocessing
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.process import BaseProcess

import pytest
import torch

# A process that uses CUDA must not be forked.
CONTEXT = multiprocessing.get_context("spawn" if torch.cuda.is_available() else "fork")


class Running:
    """A command that runs."""

    def __init__(self, process: BaseProcess) -> None:
        self._process = process

    @property
    def pid(self) -> int:
        """Number of the process, and of the group of all that it starts."""
        assert self._process.pid is not None
        return self._process.pid

    def wait_until(self, condition: Callable[[], object]) -> None:
        """Returns as soon as the condition holds; fails if the command ends before."""
        while not condition():
            assert self._process.is_alive(), f"ended with {self._process.exitcode}"
            time.sleep(0.01)

    def wait(self) -> int:
        """The exit code, less than zero for the signal that ended it."""
        self._process.join()
        assert self._process.exitcode is not None
        return self._process.exitcode

    def kill(self) -> None:
        """As kill -9 does; what it has started lives on, as it would."""
        self._process.kill()
        assert self.wait() == -signal.SIGKILL

    def kill_group(self) -> None:
        """The same, with all that it has started."""
        os.killpg(self.pid, signal.SIGKILL)
        assert self.wait() == -signal.SIGKILL

    def end(self) -> None:
        """Leaves nothing behind, whether a test has passed or not."""
        if self._process.is_alive():
            self.kill_group()
        self._process.close()


@pytest.fixture
def forked() -> Iterator[Callable[..., Running]]:
    """Starts `command(arguments)` as a process of its own."""
    running = []

    def start(command: Callable[[Sequence[str]], int], *arguments: object) -> Running:
        words = [str(argument) for argument in arguments]
        process = CONTEXT.Process(target=_run, args=(command, words))
        with warnings.catch_warnings():
            # Python 3.12 and newer warn of forks beside threads, such as TensorBoard's writer.
            warnings.filterwarnings("ignore", ".*multi-threaded.*fork", DeprecationWarning)
            process.start()
        running.append(Running(process))
        return running[-1]

    yield start
    for each in running:
        each.end()


def _run(command: Callable[[Sequence[str]], int], arguments: Sequence[str]) -> None:
    os.setsid()
    # Threads of the other process are not here, and OpenMP would wait for them.
    torch.set_num_threads(1)
    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115, closed with the process
    sys.exit(command(arguments))
