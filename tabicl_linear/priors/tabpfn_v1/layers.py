"""Random affine maps with noise: the layers of the TabPFN v1 prior's networks."""

from typing import NamedTuple

import numpy as np
import torch

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
        out = draws.normal(self.weight.shape[0], x.shape[1], generator=generator)
        # The product is added to the noise in place, and two passes are faster than one of
        # `addcmul`, which is not vectorised for columns.
        return out.mul_(self.noise).add_(self.bias).addmm_(self.weight, x)


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
    """Draw outputs of those maps of one network that have `fan_in` inputs.

    Weights are N(0, (init_std / (1 - sqrt(p)))^2), each kept with probability `1 - p`; or, with
    `block_wise`, N(0, init_std^2 / kept share) in diagonal blocks, whose number is uniform on
    `1..ceil(sqrt(min(fan_in, fan_out)))`. Biases are uniform on +-1 / sqrt(fan_in), PyTorch's
    default, which the authors' code keeps.

    Args:
        p: Parameters of one network, each a number.
        fan_in: Inputs of every map.
        fan_out: `[l]`, number of outputs of each map.
        layer: `[e]`, map that each wanted output belongs to.
        unit: `[e]`, position of the wanted output in its map.
        dropout: The probability `p` that a weight is zero.
        rng: Source of the block counts.
        generator: Source of the weights.
    """
    count = len(unit)
    weight = draws.normal(count, fan_in, generator=generator)
    if p.block_wise:
        scale = _block_scale(float(p.init_std), fan_in, fan_out, layer, unit, rng)
        weight.mul_(torch.as_tensor(scale, device=weight.device))
    else:
        weight.mul_(float(p.init_std) / (1 - dropout**0.5))
        if dropout:
            uniform = draws.uniform(count, fan_in, generator=generator)
            # Written as float32: comparisons that write booleans take several times as long.
            weight.mul_(torch.ge(uniform, dropout, out=uniform))
    bound = fan_in**-0.5
    bias = draws.uniform(count, 1, generator=generator).mul_(2 * bound).sub_(bound)
    if p.unit_noise:
        noise = draws.normal(count, 1, generator=generator).abs_().mul_(float(p.noise_std))
    else:
        noise = torch.full_like(bias, float(p.noise_std))
    return Maps(weight, bias, noise)


def _block_scale(
    init_std: float,
    fan_in: int,
    fan_out: np.ndarray,
    layer: np.ndarray,
    unit: np.ndarray,
    rng: np.random.Generator,
) -> np.ndarray:
    """Return the weights' standard deviations `[e d]`: 0 outside the blocks."""
    blocks = rng.integers(1, np.ceil(np.sqrt(np.minimum(fan_in, fan_out))), endpoint=True)
    height, width = fan_out // blocks, fan_in // blocks
    std = init_std * np.sqrt(fan_out * fan_in / (blocks * height * width))
    # Outputs of a block have the same inputs, and outputs beyond the last block have none.
    most = blocks.max()
    block = np.arange(most + 1)[:, None]
    inside = np.arange(fan_in) // width[:, None, None] == block
    inside &= block < blocks[:, None, None]
    scale = np.multiply(inside, std[:, None, None], dtype=np.float32)
    return scale[layer, np.minimum(unit // height[layer], most)]
