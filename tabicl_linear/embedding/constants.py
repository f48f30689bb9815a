"""Constant tensors, which are copied to a device once rather than in every call."""

from functools import lru_cache

import torch

from tabicl_linear.types import Tensor


def constants(values: tuple[float, ...] | tuple[int, ...], like: Tensor) -> Tensor:
    """Numbers as a tensor with the device and dtype of `like`; cached, so do not change it."""
    return _copied(values, like.dtype, like.device)


@lru_cache(maxsize=64)
def _copied(
    values: tuple[float, ...] | tuple[int, ...], dtype: torch.dtype, device: torch.device
) -> Tensor:
    with torch.inference_mode(False):
        return torch.tensor(values, dtype=dtype, device=device)
