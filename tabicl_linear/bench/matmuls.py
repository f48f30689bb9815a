"""The products of two matrices of a computation, recorded and run again alone."""

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from tabicl_linear.types import Tensor

Layout = tuple[torch.Size, tuple[int, ...], torch.dtype]
"""Shape, stride and dtype."""


class DenseProducts(TorchDispatchMode):
    """Records the products of two matrices computed within, backward passes included.

    Those are the products of dense layers; rules make batches of products, which do not count.
    """

    def __init__(self) -> None:
        super().__init__()
        self.products: list[tuple[Layout, Layout]] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Record the operator and run it."""
        if func.overloadpacket in (torch.ops.aten.mm, torch.ops.aten.addmm):
            left, right = args[-2:]
            self.products.append((_layout(left), _layout(right)))
        return func(*args, **(kwargs or {}))

    def replay(self, device: torch.device) -> Callable[[], None]:
        """A call that computes the products alone, on random factors of the same layouts.

        Products of one layout share their factors.
        """
        layouts = {layout for product in self.products for layout in product}
        factors = {layout: _random(layout, device) for layout in layouts}
        pairs = [(factors[left], factors[right]) for left, right in self.products]

        def run() -> None:
            for left, right in pairs:
                torch.mm(left, right)

        return run


def flops(call: Callable[[], object]) -> int:
    """Floating-point operations of the matrix products of a call."""
    with FlopCounterMode(display=False) as counter:
        call()
    total: int = counter.get_total_flops()
    return total


def _layout(x: Tensor) -> Layout:
    return x.shape, x.stride(), x.dtype


def _random(layout: Layout, device: torch.device) -> Tensor:
    shape, stride, dtype = layout
    length = 1 + sum((n - 1) * step for n, step in zip(shape, stride, strict=True))
    return torch.randn(length, device=device).to(dtype).as_strided(shape, stride)
