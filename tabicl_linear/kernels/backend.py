"""Which implementation computes the update rules; resolved once per model."""

from typing import Literal, get_args

from tabicl_linear.errors import ConfigError

Backend = Literal["auto", "torch", "fla"]


def resolve(backend: str) -> Literal["torch"]:
    """The implementation to use: plain PyTorch, the only one there is in this version.

    Raises:
        ConfigError: Another one is asked for.
    """
    if backend not in get_args(Backend):
        raise ConfigError(f"backend={backend!r} must be one of {get_args(Backend)}.")
    if backend == "fla":
        raise ConfigError(
            "backend='fla': this version has no flash-linear-attention kernels yet; use "
            "backend='auto' or 'torch'."
        )
    return "torch"
