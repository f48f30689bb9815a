"""Holds tensors in a file, for contexts whose hidden tokens do not fit into memory."""

import weakref
from collections.abc import MutableSequence
from pathlib import Path
from typing import Any, NamedTuple, overload

import torch

from tabicl_linear.errors import ConfigError
from tabicl_linear.files import temporary_file, write_temporary
from tabicl_linear.types import Tensor


class _Slot(NamedTuple):
    """Position of a tensor in the file, with its shape, dtype and device."""

    offset: int
    nbytes: int
    shape: torch.Size
    dtype: torch.dtype
    device: torch.device


class Spilled(MutableSequence[Tensor]):
    """A list of tensors in an unnamed temporary file, which ends with the list or the process.

    Tensors are read and written as a whole, not memory-mapped, so that memory holds only those in
    use. A new tensor overwrites the former one at its index if it has the same size, so the file
    does not grow with the number of layers.

    Args:
        folder: Folder of the file; it needs room for all tensors at once.

    Raises:
        DataError: The folder cannot be written.
    """

    def __init__(self, folder: Path) -> None:
        self._file = temporary_file(folder)
        weakref.finalize(self, self._file.close)
        self._slots: list[_Slot] = []
        self._end = 0

    def __len__(self) -> int:
        return len(self._slots)

    @overload
    def __getitem__(self, index: int) -> Tensor: ...
    @overload
    def __getitem__(self, index: slice) -> "MutableSequence[Tensor]": ...
    def __getitem__(self, index: Any) -> Any:
        slot = self._slots[index]
        buffer = bytearray(slot.nbytes)
        self._file.seek(slot.offset)
        self._file.readinto(buffer)
        return torch.frombuffer(buffer, dtype=slot.dtype).reshape(slot.shape).to(slot.device)

    def __setitem__(self, index: Any, value: Any) -> None:
        self._slots[index] = self._write(value, self._slots[index])

    def __delitem__(self, index: Any) -> None:
        del self._slots[index]

    def insert(self, index: int, value: Tensor) -> None:
        """Insert a tensor before the one at `index`."""
        self._slots.insert(index, self._write(value, None))

    def _write(self, tensor: Tensor, before: _Slot | None) -> _Slot:
        if tensor.requires_grad:
            raise ConfigError(
                "Gradients cannot pass through hidden tokens in a file: call fit under "
                "torch.no_grad(), or leave `spill` out."
            )
        data = tensor.detach().cpu().contiguous().view(torch.uint8).numpy()
        same = before is not None and before.nbytes == data.nbytes
        offset = before.offset if before is not None and same else self._end
        self._file.seek(offset)
        write_temporary(self._file, data.data, "a long context")
        self._end = max(self._end, offset + data.nbytes)
        return _Slot(offset, data.nbytes, tensor.shape, tensor.dtype, tensor.device)
