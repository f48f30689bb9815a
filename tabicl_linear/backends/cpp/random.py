"""Random numbers, random maps and ranks in C++ (`csrc/random.cpp`, `csrc/ranks.cpp`).

The numbers are those that PyTorch would draw, bit for bit, and the generator is left in the same
state as by PyTorch. Call `serves` first: it compares the numbers with PyTorch's once per process.
"""

import ctypes
from functools import cache
from math import prod
from typing import Any, NamedTuple

import torch

from tabicl_linear.backends.cpp.loader import ADDRESS, fields, function, pointer, run, unavailable
from tabicl_linear.types import Float, Int, Tensor

BLOCK = 16
"""Fewest normal numbers in a call; PyTorch draws smaller tensors in another way."""
COMPARED = 5000
"""Numbers that are compared with PyTorch's before the library is used."""


class Blocks(NamedTuple):
    """Diagonal blocks of the weights of several maps; weights outside of them are zero.

    Attributes:
        map: Index of the map of each output.
        position: Position of each output in its map.
        number: Number of blocks of each map.
        height: Outputs of a block of each map.
        width: Inputs of a block of each map.
        std: Standard deviation of the weights inside the blocks of each map.
    """

    map: Int[Tensor, " e"]
    position: Int[Tensor, " e"]
    number: Int[Tensor, " l"]
    height: Int[Tensor, " l"]
    width: Int[Tensor, " l"]
    std: Float[Tensor, " l"]


class _Numbers(ctypes.Structure):
    _fields_ = fields("saved out scale shift", "rows columns", flags="is_normal")


class _Maps(ctypes.Structure):
    _fields_ = fields(
        "saved weight bias noise map position blocks heights widths stds",
        "outputs inputs",
        floats="std dropout bound noise_std",
        flags="has_dropout has_unit_noise",
    )


class _Ranks(ctypes.Structure):
    _fields_ = fields("values out", "rows columns")


class _Bins(ctypes.Structure):
    _fields_ = fields("values boundaries out number", "rows columns most")


def serves(device: torch.device) -> bool:
    """Whether the functions are available for a device and give the same bits as PyTorch."""
    return device.type == "cpu" and _gives_the_bits_of_torch()


def normal(*shape: int, generator: torch.Generator) -> Float[Tensor, "..."]:
    """`torch.randn`, for at least `BLOCK` numbers."""
    out = _empty(*shape)
    _draw(out, generator, (None, None, 1, out.numel(), True))
    return out


def uniform(*shape: int, generator: torch.Generator) -> Float[Tensor, "..."]:
    """`torch.rand`."""
    out = _empty(*shape)
    _draw(out, generator, (None, None, 1, out.numel(), False))
    return out


def noise(
    scale: Float[Tensor, "e 1"],
    shift: Float[Tensor, "e 1"],
    columns: int,
    generator: torch.Generator,
) -> Float[Tensor, "e c"]:
    """`torch.randn(e, c) * scale + shift`, for at least `BLOCK` numbers."""
    rows = len(scale)
    out = _empty(rows, columns)
    scale, shift = scale.contiguous(), shift.contiguous()
    _draw(out, generator, (pointer(scale), pointer(shift), rows, columns, True))
    return out


def maps(
    size: tuple[int, int],
    scale: float | Blocks,
    generator: torch.Generator,
    *,
    dropout: float,
    bound: float,
    noise_std: float,
    unit_noise: bool,
) -> tuple[Float[Tensor, "e d"], Float[Tensor, "e 1"], Float[Tensor, "e 1"]]:
    """Weights, biases and noise levels of random maps, for at least `BLOCK` outputs.

    Args:
        size: Outputs and inputs, `(e, d)`.
        scale: Standard deviation of the weights, or their blocks; there is no dropout with blocks.
        generator: Source of all numbers.
        dropout: Probability that a weight is zero; if 0, nothing is drawn for it.
        bound: Biases are uniform between minus and plus this.
        noise_std: Noise level of all outputs; with `unit_noise`, scale of their levels.
        unit_noise: Whether each output has its own noise level, `|N(0, noise_std)|`.
    """
    weight, bias, levels = _empty(*size), _empty(size[0], 1), _empty(size[0], 1)
    std, blocks = (0.0, scale) if isinstance(scale, Blocks) else (scale, [None] * 6)
    has_dropout = bool(dropout) and not isinstance(scale, Blocks)
    room = _empty(prod(size) if has_dropout else 0)
    random_state = generator.get_state()
    problem = _Maps(
        *map(pointer, (random_state, weight, bias, levels, *blocks)),
        *(*size, std, dropout, bound, noise_std, has_dropout, unit_noise),
    )
    function("maps", _Maps, ADDRESS)(ctypes.byref(problem), pointer(room))
    generator.set_state(random_state)
    return weight, bias, levels


def ranks(x: Float[Tensor, "c n"]) -> Float[Tensor, "c n"]:
    """Return how many values of its row are at most as large as each value.

    NaN counts as the largest value; its own rank is 0.
    """
    x = x.contiguous()
    out = torch.empty_like(x)
    problem = _Ranks(*map(pointer, (x, out)), *x.shape)
    run("ranks", problem, failure=f"There is no memory left to rank {x.shape[1]} values.")
    return out


def count_below(
    values: Float[Tensor, "c n"],
    boundaries: Float[Tensor, "c k"],
    number: Int[Tensor, " c"] | None,
) -> Float[Tensor, "c n"]:
    """Return how many of its row's boundaries (the first `number`, or all) lie below each value."""
    values, boundaries = values.contiguous(), boundaries.contiguous()
    out = torch.empty_like(values)
    problem = _Bins(
        *map(pointer, (values, boundaries, out, number)), *values.shape, boundaries.shape[1]
    )
    run("count_below", problem)
    return out


def _empty(*shape: int) -> Tensor:
    # On the CPU, whatever the default device is: the library is given addresses.
    return torch.empty(shape, dtype=torch.float32, device="cpu")


def _draw(out: Tensor, generator: torch.Generator, rest: tuple[Any, ...]) -> None:
    random_state = generator.get_state()
    problem = _Numbers(pointer(random_state), pointer(out), *rest)
    run("numbers", problem)
    generator.set_state(random_state)


@cache
def _gives_the_bits_of_torch() -> bool:
    """Compare with PyTorch, once: on some processors it computes normal numbers in another way."""
    if unavailable() is not None:
        return False
    ours, theirs = (torch.Generator("cpu").manual_seed(0) for _ in range(2))
    plain: dict[str, Any] = {"dtype": torch.float32, "device": "cpu"}
    pairs = (
        (normal(COMPARED, generator=ours), torch.randn(COMPARED, generator=theirs, **plain)),
        (uniform(COMPARED, generator=ours), torch.rand(COMPARED, generator=theirs, **plain)),
        (ours.get_state(), theirs.get_state()),
    )
    return all(torch.equal(one, other) for one, other in pairs)
