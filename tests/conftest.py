"""Fixtures for all tests: seeded, single-threaded, on the CPU."""

import gc
import importlib.metadata
import logging
import os
import sys

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import PurePosixPath
from threading import RLock

import kept_parsers
import pytest
import torch
import torch.distributed
from checked_calls import install
from jaxtyping import install_import_hook
from tqdm import tqdm

from tabicl_linear import git
from tabicl_linear.__main__ import OBJECTS

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
    "ridge_inputs.feature_sets",
    "ridge_inputs.solve",
    "ridge_inputs.solve_rows",
    "ridge_inputs.sums",
    "data.batch",
]
# What is imported and collected stays: looking through it for garbage took a sixth of the time.
gc.disable()
# Else forked processes share a lock of progress bars, and one that is killed while it has it would
# leave all others waiting.
tqdm.set_lock(RLock())
# As by pytest's plugin for logs: what nobody handles is not written to the standard error.
logging.getLogger().addHandler(logging.NullHandler())
# A run asks git about the checkout, and Lightning all installed packages for callbacks. Neither
# changes while hundreds of runs are tested in one process, and asking took a tenth of a short run.
git.git_commit = cache(git.git_commit)
importlib.metadata.entry_points = cache(importlib.metadata.entry_points)
install()
install_import_hook([f"tabicl_linear.{name}" for name in CHECKED], "beartype.beartype")


@pytest.fixture(autouse=True)
def _seed() -> None:
    # `torch.manual_seed` writes down a stack for each kind of accelerator that is not in use.
    torch.default_generator.manual_seed(0)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(0)


def pytest_collection_finish() -> None:
    """Tests that read configs share parsers, and no collection of garbage looks at what stays."""
    if config := sys.modules.get("tabicl_linear.config"):
        kept_parsers.install(config.ConfigCLI)
    gc.collect()
    gc.freeze()
    gc.set_threshold(OBJECTS)
    gc.enable()


LAUNCH = ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "NODE_RANK", "RANK", "LOCAL_RANK")
"""Variables that Lightning leaves in the environment of a process that has trained."""


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    """No test begins as a process of some launch, and none leaves a group of processes behind.

    A command started with LOCAL_RANK would wait for ever for a launcher's other processes, and a
    group would be that of forked ranks, which wait for each other then.
    """
    for name in LAUNCH:
        os.environ.pop(name, None)
    yield
    for name in LAUNCH:
        os.environ.pop(name, None)
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what the tests of each folder took, over all workers, the longest first."""
    seconds = Counter[str]()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                seconds[str(PurePosixPath(report.nodeid.split("::")[0]).parent)] += report.duration
    if len(seconds) > 1:
        terminalreporter.section("seconds by folder")
        for folder, total in seconds.most_common():
            terminalreporter.write_line(f"{total:8.1f} {folder}")
