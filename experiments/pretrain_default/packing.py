"""Packs training checkpoints: weights to 24 bits, the optimiser's state to 8, and back.

This works for any model and optimiser, since tensors are found wherever they are in the checkpoint.
Every tensor becomes byte planes, so that a lossless compressor finds the exponents. A moment is
divided by the largest magnitude of its block and stored as a sign and a step on a logarithmic
scale: the relative error is at most 3.4 % over 12 octaves (for a second moment, of its root). A
linear scale would round all small entries to zero, and Adam divides by their root. Averaged weights
(Lightning's `WeightAveraging`) are stored as their difference from the current ones, like a moment.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

BLOCK = 256
LEVELS_PER_OCTAVE = 10.5
SQUARE = "_sq"
"""Part of the names of second moments, which are not negative (exp_avg_sq, max_exp_avg_sq)."""
OPTIMIZERS = "optimizer_states"
WEIGHTS = "state_dict"
CURRENT = "current_model_state"
"""Key of the trained weights with `WeightAveraging`; the averaged ones are then in WEIGHTS."""

FORM = {"packed_shape", "packed_dtype"}
"""Keys by which a packed tensor is recognised."""

Packed = dict[str, Any]


def pack(checkpoint: dict[str, Any]) -> dict[str, Any]:
    """The checkpoint with weights as 24-bit planes and moments as 8-bit codes; lossy."""
    packed = {
        key: _mapped(value, _pack_moment if key == OPTIMIZERS else _pack_weight)
        for key, value in checkpoint.items()
    }
    if CURRENT in checkpoint:
        # Relative to the unpacked weights, so that their rounding does not enter the average.
        current = _mapped(packed[CURRENT], _unpacked)
        packed[WEIGHTS] = {
            name: quantise(value - current[name], square=False) if _is_weight(value) else value
            for name, value in checkpoint[WEIGHTS].items()
        }
    return packed


def unpack(packed: dict[str, Any]) -> dict[str, Any]:
    """The checkpoint that `pack` was given, up to its rounding."""
    checkpoint = {key: _mapped(value, _unpacked) for key, value in packed.items()}
    for name, value in packed[WEIGHTS].items():
        if isinstance(value, dict) and "codes" in value:
            checkpoint[WEIGHTS][name] += checkpoint[CURRENT][name]
    return checkpoint


def _mapped(tree: Any, leaf: Callable[[str, Any], Any], name: str = "") -> Any:
    """The tree with `leaf` applied to every tensor or packed tensor."""
    if isinstance(tree, Tensor) or (isinstance(tree, dict) and tree.keys() >= FORM):
        return leaf(name, tree)
    if isinstance(tree, dict):
        return {key: _mapped(value, leaf, str(key)) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_mapped(value, leaf, name) for value in tree]
    return tree


def _is_packable(x: Tensor) -> bool:
    """Whether a tensor holds numbers and is not a step counter."""
    return x.is_floating_point() and x.numel() > 1


def _is_weight(x: Tensor) -> bool:
    return _is_packable(x) and x.dtype == torch.float32


def _pack_weight(name: str, x: Tensor) -> Packed | Tensor:
    return round_to_planes(x) if _is_weight(x) else x


def _pack_moment(name: str, x: Tensor) -> Packed | Tensor:
    return quantise(x, square=SQUARE in name) if _is_packable(x) else x


def _unpacked(name: str, x: Packed | Tensor) -> Tensor:
    if isinstance(x, Tensor):
        return x
    return from_planes(x) if "planes" in x else dequantise(x)


def round_to_planes(x: Tensor) -> Packed:
    """The three upper bytes of a float32 tensor, rounded to nearest (relative error 2^-16)."""
    bits = x.detach().cpu().contiguous().flatten().numpy().view(np.uint32).astype(np.uint64)
    # Ties away from zero; a carry runs into the exponent, as it should.
    bits = np.minimum(bits + 0x80, 0xFFFFFFFF).astype(np.uint32)
    planes = bits.view(np.uint8).reshape(-1, 4)[:, 1:].T
    return {**_form(x), "planes": torch.from_numpy(planes.copy())}


def from_planes(packed: Packed) -> Tensor:
    """The float32 tensor of three byte planes."""
    planes = packed["planes"].numpy()
    whole = np.zeros((planes.shape[1], 4), dtype=np.uint8)
    whole[:, 1:] = planes.T
    return torch.from_numpy(whole.view(np.float32).reshape(packed["packed_shape"]).copy())


def quantise(x: Tensor, *, square: bool) -> Packed:
    """Sign and logarithmic magnitude in 8 bits, relative to the largest magnitude of a block.

    Args:
        x: The moment.
        square: Whether to store the root, without a sign, over twice the range. Values below the
            range are then raised to its minimum, never set to zero, since Adam divides by them.
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
        **_form(x),
        "codes": torch.from_numpy(codes.reshape(-1)[: len(values)].copy()),
        "scale": torch.from_numpy(scale[:, 0]),
    }


def dequantise(packed: Packed) -> Tensor:
    """The tensor of 8-bit codes, in its own type."""
    codes = packed["codes"].numpy()
    square = codes.dtype == np.uint8
    signed = codes.astype(np.float64)
    scale = np.repeat(packed["scale"].numpy().astype(np.float64), BLOCK)[: len(codes)]
    magnitude = np.exp2((np.abs(signed) - _levels(square)) / LEVELS_PER_OCTAVE) * scale
    values = np.sign(signed) * magnitude
    values = values**2 if square else values
    x = torch.from_numpy(values.astype(np.float32).reshape(packed["packed_shape"]))
    return x.to(getattr(torch, packed["packed_dtype"]))


def _levels(square: bool) -> int:
    return 255 if square else 127


def _form(x: Tensor) -> Packed:
    return {"packed_shape": list(x.shape), "packed_dtype": str(x.dtype).removeprefix("torch.")}
