"""What depends on the device that ridge inputs are computed on."""

import torch

FAST_FLOAT64 = ((6, 0), (7, 0), (8, 0), (9, 0), (10, 0))
"""CUDA compute capabilities with one unit for float64 for every two for float32: P100, V100, A100,
H100, B200. Other cards, such as RTX 2080 Ti, A5000 and L40, have one for every 32 or 64."""


MOST_ON_CPU = 2**21
"""Numbers of intermediate results that fit into a cache."""
MOST_ELSEWHERE = 2**26
"""Those of 512 MB in float64, which keep a device busy."""


def most_at_once(device: torch.device, numbers: int) -> int:
    """How many computations, each with so many numbers in between, are done together."""
    most = MOST_ON_CPU if device.type == "cpu" else MOST_ELSEWHERE
    return max(1, most // max(1, numbers))


def has_slow_float64(device: torch.device) -> bool:
    """Whether float64 costs so much more than float32 that refinement from float32 is cheaper."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) not in FAST_FLOAT64
