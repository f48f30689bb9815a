"""Tasks in processes: all are done, and one that dies is told of."""

import atexit
import os
import signal
import subprocess
import sys

import pytest

from tabicl_linear.evaluation.workers import Death, finished


def double(number):
    """Dies at 3 by a signal and at 5 by itself."""
    if number == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    if number == 5:
        os._exit(7)
    return 2 * number


def identity(number):
    return number, os.getpid()


def touch_at_exit(path):
    """Leaves a file when the process ends by itself."""
    atexit.register(path.touch)


def test_one_job_works_here():
    result = list(finished([1, 2], identity, 1))
    assert result == [(n, (n, os.getpid())) for n in (1, 2)]


def test_a_process_that_dies_costs_its_task_alone():
    result = dict(finished(list(range(8)), double, 2))
    deaths = {n: result.pop(n) for n in (3, 5)}
    assert result == {n: 2 * n for n in (0, 1, 2, 4, 6, 7)}
    assert str(deaths[3]) == "the process was killed by SIGKILL, as when memory runs out"
    assert deaths[5] == Death(7)
    assert str(deaths[5]) == "the process ended with code 7"


def test_processes_end_with_whoever_asks():
    stream = finished(list(range(20)), identity, 2)
    _, (_, pid) = next(stream)
    stream.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_processes_with_nothing_to_do_end_by_themselves(tmp_path):
    """What a library shares with others is removed, of which Python else warns."""
    paths = [tmp_path / str(number) for number in range(3)]
    list(finished(paths, touch_at_exit, 2))
    assert all(path.exists() for path in paths)


ASKS = """
import time
from tabicl_linear.evaluation.workers import finished

for number, _ in enumerate(finished([0, 0, 300, 300], time.sleep, 2)):
    if number == 1:
        print("both sleep now", flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_processes_end_with_whoever_asks_when_that_is_killed(number):
    with subprocess.Popen([sys.executable, "-c", ASKS], stdout=subprocess.PIPE, text=True) as asks:
        assert asks.stdout.readline() == "both sleep now\n"
        asks.send_signal(number)
        # They have inherited the pipe, which is at its end when the last of them is.
        assert asks.communicate(timeout=60)[0] == ""
    assert asks.returncode == -number
