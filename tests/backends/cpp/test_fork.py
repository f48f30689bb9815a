"""Kernels in a process that was forked after they had run on several threads."""

import os
import subprocess
import sys

import pytest

from tabicl_linear.backends.cpp import loader

pytestmark = [
    pytest.mark.skipif(loader.unavailable() is not None, reason="not built"),
    pytest.mark.skipif(sys.platform != "linux", reason="OpenMP on Linux only"),
]

PROGRAM = """
import os
import torch
from tabicl_linear.backends.cpp import rules, tokenwise
from tabicl_linear.kernels.streams import Streams

torch.set_num_threads(2)
q, k, v = (torch.nn.functional.normalize(torch.randn(2, 300, 4, 32), dim=-1) for _ in range(3))
beta, S = torch.rand(2, 300, 4), torch.zeros(2, 4, 32, 32)
x = Streams(q, k, v, beta)

def results():
    outputs = [scan(x, S, size=32)[0] for scan in (rules.additive_scan, rules.delta_scan)]
    return [*outputs, tokenwise.rms_norm(q, torch.ones(32), 1e-5)]

def alike(one, two):
    # By NumPy: PyTorch's own functions would wait for their threads in the child.
    return all((a.numpy() == b.numpy()).all() for a, b in zip(one, two, strict=True))

before = results()
child = os.fork()
if child == 0:
    os._exit(0 if alike(before, results()) else 3)
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
assert alike(before, results()), "the parent goes on with its threads"
print("child", status)
"""


def test_a_forked_process_computes_the_same_and_does_not_wait_for_lost_threads():
    # A session of its own, so that a child that hangs ends with its parent.
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", PROGRAM],
        env={**os.environ, "OMP_NUM_THREADS": "2"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        said, _ = process.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        process.communicate()
        pytest.fail("the forked process waits for threads that it does not have")
    assert process.returncode == 0, said
    assert said.split()[-2:] == ["child", "0"]
