"""Training checkpoints made small: weights to 24 bits, Adam's moments to 8, and back.

Every tensor becomes byte planes, so that a lossless compressor finds the exponents. A moment is
divided by the largest magnitude of its block and kept as the sign and a step on a logarithmic
scale: the relative error is at most 3.4 % over 12 octaves (of the second moment, of its root),
where a linear scale would lose all small entries to zero, and Adam divides by their root.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

BLOCK = 256
LEVELS_PER_OCTAVE = 10.5
MOMENTS = {"exp_avg": False, "exp_avg_sq": True}
"""State of Adam that is kept to 8 bits, and whether it is a square."""

Packed = dict[str, Any]


def pack(checkpoint: dict[str, Any]) -> dict[str, Any]:
    """The checkpoint with weights as 24-bit planes and moments as 8-bit codes; lossy."""
    packed = dict(checkpoint)
    packed["state_dict"] = {
        name: round_to_planes(value) if value.dtype == torch.float32 else value
        for name, value in checkpoint["state_dict"].items()
    }
    packed["optimizer_states"] = [
        {**optimizer, "state": {key: _pack_state(s) for key, s in optimizer["state"].items()}}
        for optimizer in checkpoint["optimizer_states"]
    ]
    return packed


def unpack(packed: dict[str, Any]) -> dict[str, Any]:
    """The checkpoint that `pack` made small, as far as it was kept."""
    checkpoint = dict(packed)
    checkpoint["state_dict"] = {
        name: from_planes(value) if isinstance(value, dict) else value
        for name, value in packed["state_dict"].items()
    }
    checkpoint["optimizer_states"] = [
        {**optimizer, "state": {key: _unpack_state(s) for key, s in optimizer["state"].items()}}
        for optimizer in packed["optimizer_states"]
    ]
    return checkpoint


def round_to_planes(x: Tensor) -> Packed:
    """The three upper bytes of a float32 tensor, rounded to nearest (relative error 2^-16)."""
    bits = x.detach().cpu().contiguous().flatten().numpy().view(np.uint32).astype(np.uint64)
    # Ties away from zero; a carry runs into the exponent, as it should.
    bits = np.minimum(bits + 0x80, 0xFFFFFFFF).astype(np.uint32)
    planes = bits.view(np.uint8).reshape(-1, 4)[:, 1:].T
    return {"shape": list(x.shape), "planes": torch.from_numpy(planes.copy())}


def from_planes(packed: Packed) -> Tensor:
    """The float32 tensor of three byte planes."""
    planes = packed["planes"].numpy()
    whole = np.zeros((planes.shape[1], 4), dtype=np.uint8)
    whole[:, 1:] = planes.T
    return torch.from_numpy(whole.view(np.float32).reshape(packed["shape"]).copy())


def quantise(x: Tensor, *, square: bool) -> Packed:
    """Sign and logarithmic magnitude in 8 bits, relative to the largest magnitude of a block.

    Args:
        x: The moment.
        square: Whether to keep the root, without a sign, over twice the range. What lies below the
            range is then raised to it, never to zero: Adam divides by it.
    """
    flat = x.detach().cpu().double().flatten().numpy()
    values = np.sqrt(flat) if square else flat
    blocks = np.pad(values, (0, -len(values) % BLOCK)).reshape(-1, BLOCK)
    scale = np.abs(blocks).max(axis=1, keepdims=True).astype(np.float32)
    relative = np.abs(blocks) / np.where(scale > 0, scale, 1)
    levels = _levels(square)
    with np.errstate(divide="ignore"):
        level = np.rint(levels + np.log2(relative) * LEVELS_PER_OCTAVE)
    if square:
        codes = np.where(blocks > 0, level.clip(1, levels), 0).astype(np.uint8)
    else:
        codes = (np.sign(blocks) * level.clip(0, levels)).astype(np.int8)
    return {
        "shape": list(x.shape),
        "codes": torch.from_numpy(codes.reshape(-1)[: len(values)].copy()),
        "scale": torch.from_numpy(scale[:, 0]),
    }


def dequantise(packed: Packed) -> Tensor:
    """The float32 tensor of 8-bit codes."""
    codes = packed["codes"].numpy()
    square = codes.dtype == np.uint8
    signed = codes.astype(np.float64)
    scale = np.repeat(packed["scale"].numpy().astype(np.float64), BLOCK)[: len(codes)]
    magnitude = np.exp2((np.abs(signed) - _levels(square)) / LEVELS_PER_OCTAVE) * scale
    values = np.sign(signed) * magnitude
    values = values**2 if square else values
    return torch.from_numpy(values.astype(np.float32).reshape(packed["shape"]))


def _levels(square: bool) -> int:
    return 255 if square else 127


def _pack_state(state: dict[str, Any]) -> dict[str, Any]:
    return {
        name: quantise(value, square=MOMENTS[name]) if name in MOMENTS else value
        for name, value in state.items()
    }


def _unpack_state(state: dict[str, Any]) -> dict[str, Any]:
    return {
        name: dequantise(value) if isinstance(value, dict) else value
        for name, value in state.items()
    }
