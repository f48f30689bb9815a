"""How much memory is free, and whether an error says that it has run out."""

from pathlib import Path

import torch

SYSTEM = Path("/proc/meminfo")
CONTAINER = Path("/sys/fs/cgroup")


def free_bytes(device: torch.device) -> int | None:
    """Bytes of memory that can still be allocated on a device; None if the system does not tell.

    On Linux, the limit of a container is respected.
    """
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        cache = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(free + cache)
    if not SYSTEM.exists():
        return None
    fields = dict(line.split(":", 1) for line in SYSTEM.read_text().splitlines())
    free = int(fields["MemAvailable"].split()[0]) * 1024
    limit = CONTAINER / "memory.max"
    if limit.exists() and (most := limit.read_text().strip()) != "max":
        parts = dict(line.split() for line in (CONTAINER / "memory.stat").read_text().splitlines())
        # They count as used, but make room for whoever asks; `MemAvailable` has them as well.
        pages_of_files = int(parts["active_file"]) + int(parts["inactive_file"])
        used = int((CONTAINER / "memory.current").read_text()) - pages_of_files
        free = min(free, int(most) - used)
    return max(free, 0)


def is_out_of_memory(error: Exception) -> bool:
    """Whether an error says that memory ran out; PyTorch has no class for it on a CPU."""
    return (
        isinstance(error, MemoryError | torch.OutOfMemoryError)
        or "DefaultCPUAllocator" in str(error)
        or "not enough memory" in str(error)
    )
