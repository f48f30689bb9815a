"""Commands in a process of their own that begins with all that this one has imported.

For tests that kill or disturb a command, or run what must not change this process. As a new
interpreter each would first spend five seconds on imports, which these tests do not look at; how a
command begins and ends is what others run.
"""

import multiprocessing
import os
import resource
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from multiprocessing.process import BaseProcess
from pathlib import Path
from subprocess import CalledProcessError, CompletedProcess
from tempfile import TemporaryDirectory
from threading import RLock
from typing import Any

import pytest
import torch
from tqdm import tqdm

# A process that uses CUDA must not be forked.
CONTEXT = multiprocessing.get_context("spawn" if torch.cuda.is_available() else "fork")


class Running:
    """A command that runs."""

    def __init__(self, process: BaseProcess, output: Path) -> None:
        self._process, self._output = process, output

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

    def poll(self) -> int | None:
        """The exit code if it has ended."""
        return self._process.exitcode

    def wait(self) -> int:
        """The exit code, less than zero for the signal that ended it."""
        self._process.join()
        assert self._process.exitcode is not None
        return self._process.exitcode

    def said(self) -> list[str]:
        """Lines that it and all that it has started have printed, on either stream."""
        return self._output.read_text().splitlines()

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


def started(
    output: Path, command: Callable[[Sequence[str]], int | None], *arguments: object
) -> Running:
    """Start `command(arguments)` as a process of its own; what it says goes to a file."""
    words = [str(argument) for argument in arguments]
    process = CONTEXT.Process(target=_run, args=(output, command, words))
    with warnings.catch_warnings():
        # Python 3.12 and newer warn of forks beside threads, such as TensorBoard's writer.
        warnings.filterwarnings("ignore", ".*multi-threaded.*fork", DeprecationWarning)
        process.start()
    return Running(process, output)


def run_program(
    command: Sequence[str], *, check: bool = False, cwd: Path | None = None, **_: Any
) -> CompletedProcess[str]:
    """What is asked of `subprocess.run` for `python -m MODULE`: the module's `main`, forked."""
    interpreter, option, name, *words = command
    assert (interpreter, option) == (sys.executable, "-m"), command
    is_package = find_spec(name).submodule_search_locations is not None
    program = import_module(f"{name}.__main__" if is_package else name)
    with TemporaryDirectory() as folder:
        run = started(Path(folder) / "output", partial(_run_main, program.main, cwd), *words)
        try:
            code, said = run.wait(), "\n".join(run.said())
        finally:
            run.end()
    if check and code:
        raise CalledProcessError(code, command)
    return CompletedProcess(command, code, stdout=said, stderr=said)


@pytest.fixture
def forked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Running]]:
    """Starts `command(arguments)` as a process of its own."""
    running = []

    def start(command: Callable[[Sequence[str]], int | None], *arguments: object) -> Running:
        output = tmp_path_factory.mktemp("forked") / "output"
        running.append(started(output, command, *arguments))
        return running[-1]

    yield start
    for each in running:
        each.end()


def limit_files(size: int) -> None:
    """Files beyond so many bytes cannot be written from now on, as on a disk that is full."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def _run_main(
    main: Callable[[], int | None], folder: Path | None, arguments: Sequence[str]
) -> int | None:
    if folder is not None:
        os.chdir(folder)
    sys.argv[1:] = arguments
    return main()


def _run(
    output: Path, command: Callable[[Sequence[str]], int | None], arguments: Sequence[str]
) -> None:
    os.setsid()
    # Threads of the other process are not here, and OpenMP would wait for them; and a lock that one
    # of them held, of progress bars, would not be released.
    torch.set_num_threads(1)
    tqdm.set_lock(RLock())
    sys.stdout = sys.stderr = output.open("w", buffering=1)  # closed with the process
    for stream in (1, 2):
        os.dup2(sys.stdout.fileno(), stream)
    sys.exit(command(arguments))
