"""The matrix products of a computation, recorded and run again alone."""

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tabicl_linear.types import Tensor

_OPERANDS = {
    # operator -> where its two factors stand among the arguments
    torch.ops.aten.mm: (0, 1),
    torch.ops.aten.bmm: (0, 1),
    torch.ops.aten.addmm: (1, 2),
    torch.ops.aten.baddbmm: (1, 2),
}


class Factor(NamedTuple):
    """Layout of one factor.

    Attributes:
        shape: Sizes.
        stride: Strides, in elements.
    """

    shape: tuple[int, ...]
    stride: tuple[int, ...]


class Product(NamedTuple):
    """One matrix product.

    Attributes:
        left: Layout of the left factor.
        right: Layout of the right factor.
        dtype: Element type of both.
    """

    left: Factor
    right: Factor
    dtype: torch.dtype

    @property
    def is_dense(self) -> bool:
        """Whether it is one product of two matrices, as a dense layer makes, and no batch."""
        return len(self.left.shape) == 2

    @property
    def flops(self) -> int:
        """Multiplications and additions."""
        count = 2 * self.right.shape[-1]
        for size in self.left.shape:
            count *= size
        return count


class MatmulRecorder:
    """Records the products computed within its context, backward passes included."""

    def __init__(self) -> None:
        self.products: list[Product] = []
        self._mode = _Mode(self.products)

    def __enter__(self) -> "MatmulRecorder":
        self._mode.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._mode.__exit__(kind, error, trace)

    @property
    def dense(self) -> list[Product]:
        """The products of dense layers: parameters times tokens, and their two gradients."""
        return [product for product in self.products if product.is_dense]


class _Mode(TorchDispatchMode):
    def __init__(self, products: list[Product]) -> None:
        super().__init__()
        self.products = products

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        operands = _OPERANDS.get(func.overloadpacket)
        if operands is not None:
            left, right = (args[place] for place in operands)
            self.products.append(Product(_factor(left), _factor(right), left.dtype))
        return func(*args, **(kwargs or {}))


def replay(
    products: Sequence[Product], device: torch.device, *, into: bool = False
) -> Callable[[], None]:
    """A call that computes the products alone, on random factors of the same layout.

    Products of one layout share their factors.

    Args:
        products: What to compute.
        device: Where.
        into: Write into outputs that exist already, instead of new ones.
    """
    factors: dict[tuple[str, Factor, torch.dtype], Tensor] = {}
    outputs: dict[tuple[tuple[int, ...], torch.dtype], Tensor] = {}
    steps: list[tuple[Tensor, Tensor, Tensor | None]] = []
    for product in products:
        pair = []
        for side, factor in (("left", product.left), ("right", product.right)):
            key = (side, factor, product.dtype)
            if key not in factors:
                factors[key] = _random(factor, product.dtype, device)
            pair.append(factors[key])
        shape = (*product.left.shape[:-1], product.right.shape[-1])
        if into and (shape, product.dtype) not in outputs:
            outputs[shape, product.dtype] = torch.empty(shape, dtype=product.dtype, device=device)
        steps.append((pair[0], pair[1], outputs[shape, product.dtype] if into else None))

    def run() -> None:
        for left, right, out in steps:
            torch.matmul(left, right, out=out)

    return run


def _factor(x: Tensor) -> Factor:
    return Factor(tuple(x.shape), tuple(x.stride()))


def _random(factor: Factor, dtype: torch.dtype, device: torch.device) -> Tensor:
    x = torch.empty_strided(factor.shape, factor.stride, dtype=dtype, device=device)
    return x.copy_(torch.randn(factor.shape, device=device))
