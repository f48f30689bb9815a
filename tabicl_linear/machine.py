"""Describes the machine of a measurement, and measures the memory of a call."""

import ctypes
import datetime
import gc
import os
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import tabicl_linear
from tabicl_linear._version import __version__
from tabicl_linear.errors import counted
from tabicl_linear.git import git_commit


def describe(device: torch.device) -> dict[str, Any]:
    """Hardware, software versions, load and date, as plain data."""
    gpu = None
    if device.type == "cuda":
        card = torch.cuda.get_device_properties(device)
        gpu = f"{card.name} (sm_{card.major}{card.minor}, {card.total_memory / 2**30:.0f} GiB)"
    return {
        "cpu": processor(),
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
    """The result of `describe` in one line."""
    gpu = f"; {machine['gpu']}" if machine["gpu"] else ""
    threads = counted(machine["threads"], "thread")
    load = " ".join(f"{load:.1f}" for load in machine["load_average"])
    return (
        f"{machine['cpu']}, {machine['cores']} cores, {threads}{gpu}; torch "
        f"{machine['torch']}, Python {machine['python']}, {machine['system']}; load {load}; commit "
        f"{machine['git_commit'] or 'unknown'}; {machine['date']}"
    )


def processor() -> str:
    """The processor's name, with those of its instruction sets that matter for speed."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    fields = {key.strip(): value.strip() for key, _, value in (x.partition(":") for x in lines)}
    flags = fields.get("flags", "").split()
    has = [flag for flag in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if flag in flags]
    name = fields.get("model name") or platform.processor() or platform.machine()
    return f"{name} ({', '.join(has)})" if has else name


def emulates_bfloat16() -> bool:
    """Whether the processor certainly has no instructions for bfloat16 (x86 on Linux)."""
    name = processor()
    return "avx2" in name and "bf16" not in name


def peak_bytes(call: Callable[[], object], device: torch.device) -> int | None:
    """Peak bytes that a call needs beyond what was in use before it; None if unknown.

    On CUDA this is the maximum that the caching allocator hands out. On a CPU it is the maximum
    resident memory (on Linux; None elsewhere): free memory of the C allocator is returned to the
    system first, then the kernel's high-water mark is reset. Both include the libraries' work
    space. What libraries keep between calls counts only in the first call, so call it once before.
    """
    gc.collect(1)  # only young garbage: a full collection takes longer than many calls
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        call()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    if not sys.platform.startswith("linux"):
        call()
        return None
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    before = _kilobytes("VmRSS")
    call()
    return max(_kilobytes("VmHWM") - before, 0)


def _kilobytes(field: str) -> int:
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status[field].split()[0]) * 1024
