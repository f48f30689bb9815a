"""Runs tasks in processes: if one dies, its task is lost but the run continues."""

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from threading import Thread
from typing import Generic, TypeVar

PATIENCE = 10.0
"""Seconds that an idle process gets to end by itself, so that its libraries can clean up."""

Task = TypeVar("Task")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Death:
    """The end of a process that did not finish its task.

    Attributes:
        exit_code: Exit code of the process; if a signal killed it, minus the signal's number.
    """

    exit_code: int | None

    def __str__(self) -> str:
        if self.exit_code is not None and self.exit_code < 0:
            name = signal.Signals(-self.exit_code).name
            hint = ", as when memory runs out" if name == "SIGKILL" else ""
            return f"the process was killed by {name}{hint}"
        return f"the process ended with code {self.exit_code}"


@dataclass
class _Worker(Generic[Task]):
    process: BaseProcess
    connection: Connection
    task: Task


def finished(
    tasks: Sequence[Task], run: Callable[[Task], Result], jobs: int
) -> Iterator[tuple[Task, Result | Death]]:
    """Yield tasks and their results, in the order in which they finish.

    With one job, tasks run in this process. With more, they run in processes of their own, each of
    which does one task after another; one that dies is replaced.

    Args:
        tasks: Tasks to run once each.
        run: Runs a task. It must be a function of a module, as the processes import it.
        jobs: Number of processes.
    """
    if jobs == 1:
        for task in tasks:
            yield task, run(task)
        return
    waiting = list(reversed(tasks))
    workers: list[_Worker[Task]] = []
    try:
        while waiting or workers:
            while waiting and len(workers) < jobs:
                workers.append(_started(run, waiting.pop()))
            ready = wait([worker.connection for worker in workers])
            for worker in [worker for worker in workers if worker.connection in ready]:
                task, result = worker.task, _received(worker)
                if isinstance(result, Death) or not waiting:
                    workers.remove(worker)
                    _end(worker, PATIENCE)
                else:
                    worker.task = waiting.pop()
                    worker.connection.send(worker.task)
                yield task, result
    finally:
        for worker in workers:
            _end(worker)


def _started(run: Callable[[Task], Result], task: Task) -> _Worker[Task]:
    # Not forked, as libraries with threads can hang in a forked process.
    context = get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_work, args=(run, there), daemon=True)
    process.start()
    there.close()
    here.send(task)
    return _Worker(process, here, task)


def _received(worker: _Worker[Task]) -> Result | Death:
    try:
        result: Result = worker.connection.recv()
    except (EOFError, ConnectionResetError):
        worker.process.join()
        return Death(worker.process.exitcode)
    return result


def _end(worker: _Worker[Task], patience: float = 0) -> None:
    worker.connection.close()
    worker.process.join(patience)
    worker.process.terminate()
    worker.process.join()


def _work(run: Callable[[Task], Result], connection: Connection) -> None:
    # Ctrl-C reaches all processes of a terminal. Only the main one handles it, and ends the others.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with_parent, daemon=True).start()
    while True:
        try:
            task: Task = connection.recv()
        except (EOFError, ConnectionResetError):
            return
        connection.send(run(task))


def _end_with_parent() -> None:
    """End this process when its parent is gone, however that was killed."""
    parent = parent_process()
    assert parent is not None, "a worker is started by `finished`"
    wait([parent.sentinel])
    os._exit(1)
