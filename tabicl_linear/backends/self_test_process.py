"""The self-test in a separate process, for kernels that are not written in this project.

A kernel that accesses invalid memory kills its process, or leaves a CUDA context in which every
later call fails. So it is first run in another process on the same device, and in this one
(`self_test.why_not`) only if it passed there.
"""

import os
import pickle
import signal
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import torch

from tabicl_linear.backends.self_test import KernelRule, Layout, why_not
from tabicl_linear.files import temporary_folder
from tabicl_linear.kernels.rule import Kernel

SECONDS = 600
"""A kernel that takes longer to compile and run once is refused."""


@cache
def why_not_apart(
    kernel: Kernel, rule: KernelRule, like: Layout, device: torch.device, *, tolerance: float
) -> str | None:
    """Like `self_test.why_not`, but a kernel that would kill this process is merely refused.

    The kernel's functions must be importable by their names.
    """
    with tempfile.TemporaryDirectory(dir=temporary_folder()) as folder:
        question, answer = Path(folder, "question"), Path(folder, "answer")
        question.write_bytes(pickle.dumps((kernel, rule, like, device, tolerance)))
        command = [sys.executable, "-m", __name__, str(question), str(answer)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        try:
            ended = subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=SECONDS
            )
        except subprocess.TimeoutExpired:
            return f"a process that tried it was not done after {SECONDS} s"
        if ended.returncode != 0:
            return f"a process that tried it {_ending(ended.returncode, ended.stderr)}"
        reason: str | None = pickle.loads(answer.read_bytes())
    return reason or why_not(kernel, rule, like, device, tolerance=tolerance)


def _ending(code: int, stderr: str) -> str:
    """Describe how a process ended, with the last line of its error output."""
    how = f"ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
    lines = stderr.strip().splitlines()
    return f"{how}: {lines[-1][:300]}" if lines else how


if __name__ == "__main__":
    asked, answered = map(Path, sys.argv[1:])
    *arguments, most = pickle.loads(asked.read_bytes())
    answered.write_bytes(pickle.dumps(why_not(*arguments, tolerance=most)))
