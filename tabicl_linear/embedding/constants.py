"""Numbers that a computation needs on its device, copied there once and not in every call."""

from functools import lru_cache

import torch

from tabicl_linear.types import Tensor


def constants(values: tuple[float, ...] | tuple[int, ...], like: Tensor) -> Tensor:
    """Numbers on the device and in the dtype of a tensor, copied there once; not to be changed."""
    return _copied(values, like.dtype, like.device)


@lru_cache(maxsize=64)
def _copied(
    values: tuple[float, ...] | tuple[int, ...], dtype: torch.dtype, device: torch.device
) -> Tensor:
    with torch.inference_mode(False):
        return torch.tensor(values, dtype=dtype, device=device)
