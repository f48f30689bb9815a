"""Random affine maps with noise, one for each task: a layer of the TabPFN v1 prior's networks."""

from typing import NamedTuple

import numpy as np
import torch

from tabicl_linear.priors import draws
from tabicl_linear.priors.hyperparameters import NetworkParameters
from tabicl_linear.types import Bool, Float, Int, Tensor


class Layer(NamedTuple):
    """A random affine map with Gaussian noise for each task."""

    weight: Float[Tensor, "b e d"]
    bias: Float[Tensor, "b e 1"]
    noise: Float[Tensor, "b e 1"]

    def units(self, unit: Int[Tensor, "b s"]) -> "Layer":
        """Return the maps onto the units `unit` alone."""
        index = unit.unsqueeze(-1)
        return Layer(*(field.gather(1, index.expand(-1, -1, field.shape[-1])) for field in self))

    def expand(self, b: int) -> "Layer":
        """Return one map as the map of `b` tasks."""
        return Layer(*(field.expand(b, -1, -1) for field in self))

    def __call__(
        self, x: Float[Tensor, "b d n"], generator: torch.Generator
    ) -> Float[Tensor, "b e n"]:
        """Return `weight x + bias + noise`; padded units of `x` beyond the maps' are not read."""
        out = torch.baddbmm(self.bias, self.weight, x[:, : self.weight.shape[-1]])
        return out.addcmul_(draws.normal(*out.shape, generator=generator), self.noise)


def draw_layer(
    p: NetworkParameters,
    fan_in: np.ndarray,
    fan_out: np.ndarray,
    *,
    dropout: np.ndarray,
    unit: np.ndarray | None = None,
    rng: np.random.Generator,
    generator: torch.Generator,
) -> Layer:
    """Draw a map for each task, padded with zeros to the largest.

    Weights are N(0, (init_std / (1 - sqrt(p)))^2), each kept with probability `1 - p`; or, with
    `block_wise`, N(0, init_std^2 / kept share) in diagonal blocks, their number uniform on
    `1..ceil(sqrt(min(fan_in, fan_out)))`. Biases are uniform on +-1 / sqrt(fan_in), PyTorch's
    default, which the authors' code keeps.

    Args:
        p: Parameters of the networks.
        fan_in: `[b]`, inputs of the maps.
        fan_out: `[b]`, outputs of the maps.
        dropout: `[b]`, the probability `p` that a weight is zero.
        unit: `[b s]`, the outputs wanted, drawn independently of one another; all if None.
        rng: Source of the numbers of blocks.
        generator: Source of the weights.
    """
    device = generator.device
    blocks = rng.integers(1, np.ceil(np.sqrt(np.minimum(fan_in, fan_out))), endpoint=True)
    height, width = fan_out // blocks, fan_in // blocks
    kept = blocks * height * width / (fan_out * fan_in)
    std = p.init_std * np.where(p.block_wise, kept**-0.5, 1 / (1 - np.sqrt(dropout)))
    rate = np.where(p.block_wise, 0.0, dropout)

    unit = np.arange(fan_out.max())[None] if unit is None else unit
    feature = np.arange(fan_in.max())[None]
    is_unit = unit < fan_out[:, None]
    bound = is_unit / np.sqrt(fan_in)[:, None]
    noise_std = is_unit * p.noise_std[:, None]
    row_block = np.where(p.block_wise[:, None], unit // height[:, None], 0)
    row_block = np.where(is_unit & (row_block < blocks[:, None]), row_block, -1)
    column_block = np.where(p.block_wise[:, None], feature // width[:, None], 0)
    is_column = (feature < fan_in[:, None]) & (column_block < blocks[:, None])
    column_block = np.where(is_column, column_block, -2)

    def put(*values: np.ndarray) -> Tensor:
        return torch.as_tensor(np.stack(values, dtype=np.float32), device=device).unsqueeze(-1)

    rows = put(row_block, bound, noise_std)
    columns = put(column_block)[0].transpose(1, 2)
    tasks = put(std, rate, p.unit_noise).unsqueeze(-1)
    size = (len(fan_in), rows.shape[2], columns.shape[2])
    weight = draws.normal(*size, generator=generator).mul_(tasks[0])
    mask: Bool[Tensor, "b e d"] = rows[0] == columns
    if rate.any():
        mask &= draws.uniform(*size, generator=generator) >= tasks[1]
    bias = draws.uniform(*size[:2], 1, generator=generator).mul_(2).sub_(1).mul_(rows[1])
    level = draws.normal(*size[:2], 1, generator=generator).abs_()
    noise = torch.where(tasks[2].bool(), level, 1.0).mul_(rows[2])
    return Layer(weight.mul_(mask), bias, noise)
