"""A kernel that ends its process is refused, and the process that asked lives on."""

import importlib

import torch

from tabicl_linear.backends import self_test_process
from tabicl_linear.backends.self_test import layout
from tabicl_linear.backends.self_test_process import why_not_apart
from tabicl_linear.kernels import delta
from tabicl_linear.kernels.delta import DeltaRule
from tabicl_linear.kernels.rule import Kernel
from tabicl_linear.kernels.streams import Streams

CPU = torch.device("cpu")
LETHAL = """
import os, sys

def scan(x, S, *, size):
    print("bad access", file=sys.stderr, flush=True)
    os.abort()
"""


def example():
    z = torch.zeros(1, 1, 2, 4)
    return layout(Streams(q=z, k=z, v=z, beta=z[..., 0], log_decay=None))


def test_a_kernel_that_ends_its_process_is_refused(monkeypatch, tmp_path):
    (tmp_path / "lethal_kernel.py").write_text(LETHAL)
    monkeypatch.syspath_prepend(str(tmp_path))
    lethal = importlib.import_module("lethal_kernel")
    kernel = Kernel(lethal.scan, lethal.scan)
    reason = why_not_apart(kernel, DeltaRule(), example(), CPU, tolerance=1e-4)
    assert reason == "a process that tried it ended by SIGABRT: bad access"


def test_a_kernel_that_agrees_is_accepted():
    assert why_not_apart(delta.TORCH, DeltaRule(), example(), CPU, tolerance=1e-4) is None


def test_a_kernel_that_never_ends_is_refused(monkeypatch):
    monkeypatch.setattr(self_test_process, "SECONDS", 0.01)
    reason = why_not_apart(delta.TORCH, DeltaRule(), example(), CPU, tolerance=1e-5)
    assert reason == "a process that tried it was not done after 0.01 s"
