"""What blocks compute token by token, through torch.compile."""

from collections.abc import Callable
from functools import cache, wraps
from typing import Any

import torch

from tabicl_linear.backbone import block
from tabicl_linear.kernels.chosen import Choice


def compiled() -> Choice:
    """Both parts of a block, compiled where gradients are wanted.

    The rule stays outside: its kernels are compiled already, or loops that would be unrolled.
    """
    return {part: _where_gradients_are_wanted(part) for part in (block.project, block.finish)}


@cache
def fused(part: Callable[..., Any]) -> Callable[..., Any]:
    """A part through torch.compile, once for blocks of a kind and any number of tokens."""
    return torch.compile(part, dynamic=True)


def _where_gradients_are_wanted(part: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(part)
    def compute(*args: Any, **kwargs: Any) -> Any:
        # Without gradients little is computed: compiling for that as well would not pay.
        return (fused(part) if torch.is_grad_enabled() else part)(*args, **kwargs)

    return compute
