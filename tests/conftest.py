"""Fixtures for all tests: seeded, single-threaded, on the CPU."""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import pytest
import torch
from jaxtyping import install_import_hook

# Compares with a library that only the environment of `make test-fla` has.
collect_ignore = ["fla_yardstick"]

# Shapes in signatures are checked while testing, at no cost in production. Left out are the
# modules that check what users pass in themselves, with errors of their own.
CHECKED = [
    "kernels",
    "backends",
    "nn",
    "mixers",
    "readouts",
    "backbone",
    "embedding",
    "priors",
    "ridge_inputs.earlier_rows",
    "ridge_inputs.features",
    "ridge_inputs.inputs",
    "ridge_inputs.leave_one_out",
    "ridge_inputs.predictions",
    "ridge_inputs.solve",
    "data.batch",
]
install_import_hook([f"tabicl_linear.{name}" for name in CHECKED], "beartype.beartype")


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)
