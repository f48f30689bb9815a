"""Files of named tensors and texts about them (safetensors), with a checksum of both."""

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
"""Bytes in which a file first says how long its header is; the header ends at a multiple of it."""
_CHECKSUM = "checksum"
"""Key of the text that `write` adds to the others."""


def write(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Write a file and, in it, the checksum of its content; whole or not at all.

    Raises:
        OSError: It cannot be written.
    """
    sealed = {**metadata, _CHECKSUM: checksum(tensors, metadata)}
    with written_whole(path) as partial:
        # What the library writes by itself only the owner can read.
        partial.write_bytes(file_bytes(tensors, sealed))


def read(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors of a file, which may lie in a map of it, and the texts, the checksum among them.

    Raises:
        SafetensorError, OSError: It is not such a file, or cannot be read.
    """
    with safe_open(path, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        return tensors, file.metadata() or {}


def is_whole(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> bool:
    """Whether what was read has the checksum with which it was written."""
    others = {key: text for key, text in metadata.items() if key != _CHECKSUM}
    return metadata.get(_CHECKSUM) == checksum(tensors, others)


def file_bytes(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> bytes:
    """The bytes of a file, the same whenever its contents are.

    The library writes texts about tensors in an order of its own, another one at each call, so
    that what was saved twice differed for git and for caches that know a file by its hash.
    """
    written = memoryview(save(dict(tensors), metadata=dict(metadata)))
    end = _LENGTH + int.from_bytes(written[:_LENGTH], "little")
    places = json.loads(bytes(written[_LENGTH:end]))
    places["__metadata__"] = dict(sorted(metadata.items()))
    header = json.dumps(places, separators=(",", ":"), ensure_ascii=False).encode()
    header += b" " * (-len(header) % _LENGTH)
    return b"".join((len(header).to_bytes(_LENGTH, "little"), header, written[end:]))


def holds_tensors(path: Path) -> bool:
    """Whether a file begins as one of named tensors does, whatever its name is."""
    try:
        with path.open("rb") as file:
            return file.read(_LENGTH + 1)[_LENGTH:] == b"{"
    except OSError:  # whoever reads it says why it cannot be
        return False


def checksum(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> str:
    """SHA-256 of names, types, shapes and bytes of all tensors, and of texts about them."""
    digest = hashlib.sha256(json.dumps(metadata, sort_keys=True).encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        whole = tensor.detach().cpu().contiguous().reshape(-1)
        digest.update(whole.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
