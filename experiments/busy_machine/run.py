"""What training takes on a busy machine, in times of its fair share of the cores.

    python -m experiments.busy_machine.run --competitors 4 --config configs/quick.yaml

Starts programs of lower priority that only compute, and takes training steps beside them with one
thread and with all in turn. A fair share is what programs of one thread at the priority of this
one obtain: one such program, or as many as there are threads. The time of a step is compared with
its CPU time on one thread, divided by the cores of a share. The last column says in how many of
the rounds `ThreadCount` chose the number of threads.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pandas as pd
import torch

from tabicl_linear.bench.train import draw_batch
from tabicl_linear.bench.training import Step, within_training
from tabicl_linear.callbacks.thread_count import SHORTEST, ThreadCount
from tabicl_linear.config import build_task
from tabicl_linear.data.batch import TaskBatch

SHARE = """
import time
began = time.perf_counter()
while time.perf_counter() < began + 1: pass
print(time.process_time() / (time.perf_counter() - began))
"""
"""Prints the share of a core that a program obtains."""


@contextmanager
def competitors(count: int) -> Iterator[None]:
    """Programs that compute at a priority lower by ten."""
    with ExitStack() as processes:
        for _ in range(count):
            command = ["nice", "-n", "10", sys.executable, "-c", "while True: pass"]
            processes.callback(processes.enter_context(subprocess.Popen(command)).kill)
        yield


def cores(programs: int) -> float:
    """Cores that so many programs obtain together now."""
    command = [sys.executable, "-c", SHARE]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(programs)]
    return sum(float(program.communicate()[0]) for program in started)


def choose(step: Step, batch: TaskBatch, most: int) -> int:
    """The number of threads that `ThreadCount` chooses, of at most so many."""
    torch.set_num_threads(most)
    callback = ThreadCount(every_n_steps=SHORTEST + 1)
    for _ in range(SHORTEST + 1):
        callback.on_train_batch_start(None, None, batch, 0)  # type: ignore[arg-type]
        step(batch)
        callback.on_train_batch_end(None, None, None, batch, 0)  # type: ignore[arg-type]
    return torch.get_num_threads()


def measure(step: Step, batch: TaskBatch, rounds: int, steps: int) -> pd.DataFrame:
    """Mean seconds of steps by round and number of threads, in times of both shares too."""
    most, rows = torch.get_num_threads(), []
    step(batch)
    for _ in range(rounds):
        shares, chosen, least = (cores(1), cores(most)), choose(step, batch, most), 0.0
        for threads in sorted({1, most}):
            torch.set_num_threads(threads)
            began, cpu_began = time.perf_counter(), time.process_time()
            for _ in range(steps):
                step(batch)
            seconds = (time.perf_counter() - began) / steps
            cpu = (time.process_time() - cpu_began) / steps
            least = least or cpu
            times = [seconds * share / least for share in shares]
            rows.append((threads, seconds, cpu, *times, chosen == threads))
    compared = "times the share of one", f"times the share of {most}"
    names = ["threads", "seconds", "CPU seconds", *compared, "chosen"]
    return pd.DataFrame(rows, columns=names)


def main() -> int:
    """Measure and print a table of medians over the rounds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", type=Path, action="append", help="config and its overlays")
    parser.add_argument("--override", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--competitors", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=5, help="of each number of threads a round")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    configs = arguments.config or [Path("configs/quick.yaml")]
    device = torch.device("cpu")
    batch = draw_batch(configs, arguments.override, device)
    task = build_task(*configs, overrides=arguments.override)

    def work(step: Step) -> pd.DataFrame:
        return measure(step, batch, arguments.rounds, arguments.steps)

    with competitors(arguments.competitors):
        rows = within_training(task, work, device)
    groups = rows.groupby("threads")
    medians = groups.median(numeric_only=True).assign(chosen=groups["chosen"].sum())
    print(medians.to_string(float_format="{:.3g}".format))
    return 0


if __name__ == "__main__":
    sys.exit(main())
