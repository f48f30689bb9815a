"""Files of named tensors (safetensors): their bytes, and a checksum of what is in them."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import save

from tabicl_linear.types import Tensor

_LENGTH = 8
"""Bytes in which a file first says how long its header is; the header ends at a multiple of it."""


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
