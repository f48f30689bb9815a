"""Describes the machine."""

from importlib import metadata

import torch

from tabicl_linear.machine import describe as describe_machine
from tabicl_linear.machine import sentence
from tools.gpu_check.results import Result

PACKAGES = ("triton", "fla-core", "numpy", "lightning", "jsonargparse")


def describe(device: torch.device) -> Result:
    """Card, Python, torch and the packages that matter."""
    versions = ", ".join(f"{name} {_version(name)}" for name in PACKAGES)
    return Result("environment", "ok", f"{sentence(describe_machine(device))}; {versions}")


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "missing"
