"""Safetensors files: named tensors and metadata texts, with a checksum of both."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save

from tabicl_linear.files import written_whole
from tabicl_linear.types import Tensor

_LENGTH = 8
"""Bytes of the header's length at the start of a file; the header is padded to a multiple of it."""
_CHECKSUM = "checksum"
"""Key of the checksum, which `write` adds to the metadata."""


def write(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Write a file with the checksum of its content, atomically.

    Raises:
        OSError: The file cannot be written.
    """
    sealed = {**metadata, _CHECKSUM: checksum(tensors, metadata)}
    with written_whole(path) as partial:
        # Not by the library's own function, whose files only their owner can read.
        partial.write_bytes(file_bytes(tensors, sealed))


def read(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors of a file, which may be memory-mapped, and the metadata with the checksum.

    Raises:
        SafetensorError, OSError: The file is not a safetensors file, or cannot be read.
    """
    with safe_open(path, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        return tensors, file.metadata() or {}


def is_whole(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> bool:
    """Whether tensors and metadata from `read` match the checksum in the metadata."""
    others = {key: text for key, text in metadata.items() if key != _CHECKSUM}
    return metadata.get(_CHECKSUM) == checksum(tensors, others)


def file_bytes(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> bytes:
    """The bytes of a file; equal content gives equal bytes.

    The library writes metadata in an order that differs from call to call, so that the same content
    saved twice would differ for git and for caches that identify files by their hash.
    """
    written = memoryview(save(dict(tensors), metadata=dict(metadata)))
    end = _LENGTH + int.from_bytes(written[:_LENGTH], "little")
    places = json.loads(bytes(written[_LENGTH:end]))
    places["__metadata__"] = dict(sorted(metadata.items()))
    header = json.dumps(places, separators=(",", ":"), ensure_ascii=False).encode()
    header += b" " * (-len(header) % _LENGTH)
    return b"".join((len(header).to_bytes(_LENGTH, "little"), header, written[end:]))


def holds_tensors(path: Path) -> bool:
    """Whether a file begins like a safetensors file, whatever its name."""
    try:
        with path.open("rb") as file:
            return file.read(_LENGTH + 1)[_LENGTH:] == b"{"
    except OSError:  # the caller's own attempt to read it reports the error
        return False


def checksum(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> str:
    """SHA-256 of the names, dtypes, shapes and bytes of all tensors, and of the metadata."""
    digest = hashlib.sha256(json.dumps(metadata, sort_keys=True).encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        whole = tensor.detach().cpu().contiguous().reshape(-1)
        digest.update(whole.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
