"""Fixtures for all tests: seeded, single-threaded, on the CPU."""

import os
import sys
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
sys.path.insert(0, str(Path(__file__).parent))

from jaxtyping import install_import_hook

# Shapes in signatures are checked while testing, at no cost in production.
install_import_hook("tabicl_linear", "beartype.beartype")

import pytest
import torch


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)
