"""What the machine can do at best, measured in the same run."""

from collections.abc import Callable

import torch

from tabicl_linear.bench.timing import Contestant

COPY_BYTES = 2**28


def copy(device: torch.device, *, num_bytes: int = COPY_BYTES) -> Contestant:
    """A copy too large for caches; reads and writes count."""
    source = torch.ones(num_bytes // 4, device=device)
    target = torch.empty_like(source)
    return Contestant(
        f"copy of {num_bytes / 2**20:.0f} MiB",
        lambda: target.copy_(source),
        role="ceiling",
        moved=2.0 * num_bytes,
    )


def matmul(
    name: str,
    shape: tuple[int, int, int, int],
    *,
    dtype: torch.dtype,
    device: torch.device,
) -> Contestant:
    """Products `[b n k] @ [b k m]` for the shape (b, n, k, m)."""
    b, n, k, m = shape
    x = torch.randn(b, n, k, device=device).to(dtype)
    y = torch.randn(b, k, m, device=device).to(dtype)
    call: Callable[[], object] = lambda: x @ y  # noqa: E731
    return Contestant(name, call, role="ceiling", flops=2.0 * b * n * k * m)
