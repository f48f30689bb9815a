"""What the machine is."""

import platform
from importlib import metadata

import torch

from tools.gpu_check.results import Result

PACKAGES = ("triton", "fla-core", "numpy", "lightning", "jsonargparse")


def describe(device: torch.device) -> Result:
    """Card, Python, torch and the packages that matter."""
    card = "CPU"
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        card = (
            f"{properties.name} (sm_{properties.major}{properties.minor}, "
            f"{properties.total_memory / 2**30:.0f} GiB)"
        )
    versions = ", ".join(f"{name} {_version(name)}" for name in PACKAGES)
    detail = f"{card}, Python {platform.python_version()}, torch {torch.__version__}, {versions}"
    return Result("environment", "ok", detail)


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "missing"
