"""A device that computes: tensors that say they are on `meta`, and hold values on the CPU.

PyTorch's own meta tensors have no values, and fits depend on some (which rows hold a class, where
a search ends, what a factorisation says of itself). Here they are there, so that a whole fit and
predict can run elsewhere, under the rules of an accelerator: tensors of two devices do not meet in
one operation, unless one is a single number; what has no device is made on the CPU; values come
back to the CPU only where they are asked for, which is counted.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing

from tabicl_linear.embedding.constants import _copied

DEVICE = torch.device("meta")
ASKING = {
    *("_local_scalar_dense", "nonzero", "masked_select", "equal", "is_nonzero", "unique_dim"),
    *("_unique", "_unique2", "unique_consecutive", "repeat_interleave", "_linalg_check_errors"),
}
"""Operations that wait for values on an accelerator, apart from copies and boolean indices."""


class There(Tensor):
    """A tensor elsewhere."""

    held: Tensor

    @staticmethod
    def __new__(cls, held: Tensor) -> "There":
        """Wrap a tensor of the CPU."""
        options = {"dtype": held.dtype, "layout": held.layout, "device": DEVICE}
        strides = {"strides": held.stride(), "storage_offset": held.storage_offset()}
        made = Tensor._make_wrapper_subclass(cls, held.shape, **strides, **options)
        made.held = held
        return made

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return compute(func, args, kwargs or {}, Counter())


class Elsewhere(TorchDispatchMode):
    """While it is entered, `device=DEVICE` is a place.

    Attributes:
        waits: Operations that waited for values, by name.
        sent: How many tensors were copied there.
    """

    def __init__(self) -> None:
        super().__init__()
        self.waits: Counter[str] = Counter()
        self.sent = 0
        self._others = ExitStack()

    def __enter__(self) -> "Elsewhere":
        for name in ("autocast", "is_autocast_enabled"):
            self._others.enter_context(patch.object(torch, name, _as_here(vars(torch)[name])))
        self._others.enter_context(_Values())
        super().__enter__()
        return self

    def __exit__(self, *error) -> None:
        super().__exit__(*error)
        self._others.close()
        _copied.cache_clear()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.overloadpacket.__name__ == "_to_copy" and not isinstance(args[0], There):
            self.sent += is_there((kwargs or {}).get("device"))
        return compute(func, args, kwargs or {}, self.waits)


class _Values(TorchFunctionMode):
    """Copies lists there and back, for which PyTorch has ways of its own with meta tensors."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func in (torch.tensor, torch.as_tensor) and is_there(kwargs.get("device")):
            return func(*args, **kwargs | {"device": "cpu"}).to(DEVICE)
        if func is Tensor.tolist:
            return args[0].cpu().tolist()
        if func is Tensor.new_tensor and is_there(args[0].device):
            return torch.tensor(args[1], dtype=kwargs.get("dtype", args[0].dtype)).to(DEVICE)
        return func(*args, **kwargs)


def _as_here(function: Any) -> Any:
    """Autocast knows no meta device: what it is asked there is asked of the CPU."""
    return lambda device, *args, **kwargs: function(
        "cpu" if is_there(device) else device, *args, **kwargs
    )


def is_there(device: Any) -> bool:
    return device is not None and torch.device(device).type == DEVICE.type


def compute(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], waits: Counter[str]) -> Any:
    """An operation on the values, where its tensors are or where it is told to be."""
    name = func.overloadpacket.__name__
    tensors = list(_tensors((*args, *kwargs.values())))
    there = [tensor for tensor in tensors if isinstance(tensor, There)]
    device = kwargs.get("device")
    copies = name in ("_to_copy", "copy_")
    if there and not copies:
        strays = [tensor for tensor in tensors if not isinstance(tensor, There) and tensor.dim()]
        assert not strays, f"{func}: a tensor of shape {tuple(strays[0].shape)} on another device"
    leaves = is_there(device) or (bool(there) and device is None)
    if name == "copy_":
        leaves = isinstance(args[0], There)
    asks = name in ASKING or _masks(name, args) or (copies and bool(there) and not leaves)
    if there and asks:
        waits[name] += 1
    here = {name: _mapped(There, _held, value) for name, value in kwargs.items()}
    if is_there(device):
        here["device"] = torch.device("cpu")
    result = func(*_mapped(There, _held, tuple(args)), **here)
    if not leaves:
        return args[0] if name == "copy_" else result
    result = _mapped(Tensor, There, result)
    return return_and_correct_aliasing(func, args, kwargs, result) if there else result


def _tensors(values: Sequence[Any]) -> Iterator[Tensor]:
    """All of some arguments, which hold them in lists at most: PyTorch's trees take far longer."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)


def _mapped(of: type, change: Callable[[Any], Any], value: Any) -> Any:
    """A value with others in place of its tensors of a type."""
    if isinstance(value, of):
        return change(value)
    if isinstance(value, (list, tuple)):
        return type(value)([_mapped(of, change, part) for part in value])
    return value


def _held(tensor: There) -> Tensor:
    return tensor.held


def _masks(name: str, args: Sequence[Any]) -> bool:
    if name not in ("index", "index_put", "index_put_", "_index_put_impl_"):
        return False
    return any(part is not None and part.dtype in (torch.bool, torch.uint8) for part in args[1])
