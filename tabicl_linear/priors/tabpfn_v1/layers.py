"""Random affine maps with noise: the layers of the TabPFN v1 prior's networks."""

from typing import NamedTuple

import numpy as np
import torch

from tabicl_linear.backends.cpp import random
from tabicl_linear.priors import draws
from tabicl_linear.priors.tabpfn_v1.hyperparameters import NetworkParameters
from tabicl_linear.types import Float, Int, Tensor


class Maps(NamedTuple):
    """Outputs of random affine maps of the same inputs, with Gaussian noise."""

    weight: Float[Tensor, "e d"]
    bias: Float[Tensor, "e 1"]
    noise: Float[Tensor, "e 1"]

    def rows(self, index: slice | Int[Tensor, " r"]) -> "Maps":
        """Return only the outputs `index`."""
        return Maps(self.weight[index], self.bias[index], self.noise[index])

    def __call__(self, x: Float[Tensor, "d c"], generator: torch.Generator) -> Float[Tensor, "e c"]:
        """Return `weight x + bias + noise`."""
        # The product is added to the noise in place.
        return draws.noise(self.noise, self.bias, x.shape[1], generator).addmm_(self.weight, x)


def draw_maps(
    p: NetworkParameters,
    fan_in: int,
    fan_out: np.ndarray,
    *,
    layer: np.ndarray,
    unit: np.ndarray,
    dropout: float,
    rng: np.random.Generator,
    generator: torch.Generator,
) -> Maps:
    """Draw the maps of one network that have `fan_in` inputs, for the wanted outputs only.

    Weights are N(0, (init_std / (1 - sqrt(p)))^2), each kept with probability `1 - p`; or, with
    `block_wise`, N(0, init_std^2 / kept share) in diagonal blocks, whose number is uniform on
    `1..ceil(sqrt(min(fan_in, fan_out)))`. Biases are uniform on +-1 / sqrt(fan_in), PyTorch's
    default, which the authors' code keeps.

    Args:
        p: Parameters of one network, each a number.
        fan_in: Inputs of every map.
        fan_out: `[l]`, number of outputs of each map.
        layer: `[e]`, the map that each wanted output belongs to.
        unit: `[e]`, position of the wanted output in its map.
        dropout: The probability `p` that a weight is zero.
        rng: Source of the block counts.
        generator: Source of the weights.
    """
    bound, noise_std = fan_in**-0.5, float(p.noise_std)
    blocks = _draw_blocks(float(p.init_std), fan_in, fan_out, rng) if p.block_wise else None
    std = float(p.init_std) / (1 - dropout**0.5)
    if len(unit) >= random.BLOCK and random.serves(generator.device):
        return Maps(
            *random.maps(
                (len(unit), fan_in),
                std if blocks is None else blocks.for_outputs(layer, unit),
                generator,
                dropout=dropout,
                bound=bound,
                noise_std=noise_std,
                unit_noise=bool(p.unit_noise),
            )
        )
    weight = draws.normal(len(unit), fan_in, generator=generator)
    if blocks is not None:
        scales = blocks.scales(fan_in, layer, unit)
        weight.mul_(torch.as_tensor(scales, device=weight.device))
    else:
        weight.mul_(std)
        if dropout:
            uniform = draws.uniform(len(unit), fan_in, generator=generator)
            # Written as float32: comparisons that write booleans take several times as long.
            weight.mul_(torch.ge(uniform, dropout, out=uniform))
    bias = draws.uniform(len(unit), 1, generator=generator).mul_(2 * bound).sub_(bound)
    if p.unit_noise:
        noise = draws.normal(len(unit), 1, generator=generator).abs_().mul_(noise_std)
    else:
        noise = torch.full_like(bias, noise_std)
    return Maps(weight, bias, noise)


class _Blocks(NamedTuple):
    """Diagonal blocks of maps, outside of which weights are zero; every field is an array `[l]`.

    Attributes:
        number: Blocks of a map.
        height: Outputs of a block.
        width: Inputs of a block.
        std: Standard deviation of the weights inside.
    """

    number: np.ndarray
    height: np.ndarray
    width: np.ndarray
    std: np.ndarray

    def scales(self, fan_in: int, layer: np.ndarray, unit: np.ndarray) -> np.ndarray:
        """Return the weights' standard deviations `[e d]`: 0 outside the blocks."""
        # Outputs of a block have the same inputs, and outputs beyond the last block have none.
        most = self.number.max()
        block = np.arange(most + 1)[:, None]
        inside = np.arange(fan_in) // self.width[:, None, None] == block
        inside &= block < self.number[:, None, None]
        scale = np.multiply(inside, self.std[:, None, None], dtype=np.float32)
        return scale[layer, np.minimum(unit // self.height[layer], most)]

    def for_outputs(self, layer: np.ndarray, unit: np.ndarray) -> random.Blocks:
        """Return the blocks as the C++ function takes them, for outputs `unit` of maps `layer`."""
        fields = layer, unit, self.number, self.height, self.width, self.std.astype(np.float32)
        return random.Blocks(*(torch.from_numpy(field) for field in fields))


def _draw_blocks(
    init_std: float, fan_in: int, fan_out: np.ndarray, rng: np.random.Generator
) -> _Blocks:
    number = rng.integers(1, np.ceil(np.sqrt(np.minimum(fan_in, fan_out))), endpoint=True)
    height, width = fan_out // number, fan_in // number
    std = init_std * np.sqrt(fan_out * fan_in / (number * height * width))
    return _Blocks(number, height, width, std)
