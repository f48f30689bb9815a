"""Decisions that depend on the device that computes ridge inputs."""

import torch

FAST_FLOAT64 = ((6, 0), (7, 0), (8, 0), (9, 0), (10, 0))
"""CUDA compute capabilities with one unit for float64 for every two for float32: P100, V100, A100,
H100, B200. Other cards, such as RTX 2080 Ti, A5000 and L40, have one for every 32 or 64."""


MOST_ON_CPU = 2**21
"""How many numbers of intermediate results fit into a CPU's cache."""
MOST_ELSEWHERE = 2**26
"""How many numbers keep another device busy: 512 MB in float64."""


def most_at_once(device: torch.device, numbers: int) -> int:
    """How many computations to do together, if each has `numbers` intermediate results."""
    most = MOST_ON_CPU if device.type == "cpu" else MOST_ELSEWHERE
    return max(1, most // max(1, numbers))


def has_slow_float64(device: torch.device) -> bool:
    """Whether float64 takes so much longer than float32 that refinement from float32 is faster."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) not in FAST_FLOAT64
