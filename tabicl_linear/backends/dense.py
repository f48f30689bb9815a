"""The token-wise parts of a block, through torch.compile."""

from collections.abc import Callable
from functools import cache, wraps
from typing import Any

import torch

from tabicl_linear.backbone import block
from tabicl_linear.kernels.chosen import Choice


def compiled() -> Choice:
    """Both token-wise parts of a block, compiled by torch.compile if gradients are needed.

    The update rule between them is not compiled: its kernels are compiled code already, or Python
    loops that torch.compile would unroll.
    """
    return {part: _where_gradients_are_wanted(part) for part in (block.project, block.finish)}


@cache
def fused(part: Callable[..., Any]) -> Callable[..., Any]:
    """Return a part through torch.compile, with one compilation for all blocks and token counts."""
    return torch.compile(part, dynamic=True)


def _where_gradients_are_wanted(part: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(part)
    def compute(*args: Any, **kwargs: Any) -> Any:
        # Without gradients there is little to compute, and a second compilation would not pay off.
        return (fused(part) if torch.is_grad_enabled() else part)(*args, **kwargs)

    return compute
