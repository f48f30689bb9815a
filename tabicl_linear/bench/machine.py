"""What a measurement was taken on."""

import datetime
import os
import platform
from pathlib import Path
from typing import Any

import torch

import tabicl_linear
from tabicl_linear._version import __version__
from tabicl_linear.git import git_commit


def describe(device: torch.device) -> dict[str, Any]:
    """The machine, the software, the load and the date, as plain data."""
    gpu = None
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        gpu = {
            "name": properties.name,
            "capability": f"{properties.major}.{properties.minor}",
            "memory_bytes": properties.total_memory,
        }
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "device": str(device),
        "gpu": gpu,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "load_average": list(os.getloadavg()),
        "omp_wait_policy": os.environ.get("OMP_WAIT_POLICY"),
        "package_version": __version__,
        "git_commit": git_commit(Path(tabicl_linear.__file__).parent, digits=12),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def sentence(machine: dict[str, Any]) -> str:
    """The same in one line."""
    gpu = machine["gpu"]
    parts = [
        f"{machine['cpu']}, {machine['cores']} cores, {machine['threads']} threads",
        *([f"{gpu['name']} ({gpu['memory_bytes'] / 2**30:.0f} GiB)"] if gpu else []),
        f"torch {machine['torch']}, Python {machine['python']}, {machine['system']}",
        "load " + " ".join(f"{load:.1f}" for load in machine["load_average"]),
        f"commit {machine['git_commit'] or 'unknown'}",
        machine["date"],
    ]
    return "; ".join(parts)


def _cpu() -> str:
    """The processor's name, with family and model, which names of virtual machines leave out."""
    path = Path("/proc/cpuinfo")
    if not path.exists():
        return platform.processor() or platform.machine()
    fields: dict[str, str] = {}
    for line in path.read_text().splitlines():
        key, _, value = line.partition(":")
        fields.setdefault(key.strip(), value.strip())
    name = fields.get("model name") or platform.machine()
    flags = fields.get("flags", "").split()
    has = [flag for flag in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if flag in flags]
    return f"{name} ({', '.join(has)})" if has else name
