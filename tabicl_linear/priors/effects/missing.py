"""Missing cells: at random, depending on the missing value, or depending on the label."""

import numpy as np
import torch

from tabicl_linear.priors import draws
from tabicl_linear.priors.tabpfn_v1.columns import standardise
from tabicl_linear.types import Float, Int, Tensor

MAX_RATE = 0.5
STEEPNESS = 3.0
MECHANISMS = ("random", "value", "label")


def draw_mechanisms(rng: np.random.Generator, num_tasks: int, informative: float) -> np.ndarray:
    """Draw each task's mechanism, an index into `MECHANISMS`.

    With probability `informative`, missing cells depend on their value or on the label; otherwise
    they are missing at random (0).
    """
    is_informative = rng.uniform(size=num_tasks) < informative
    return np.where(is_informative, rng.integers(1, len(MECHANISMS), size=num_tasks), 0)


def lose_cells_(
    x: Float[Tensor, "b m n"],
    y: Int[Tensor, "b n"],
    *,
    chosen: np.ndarray,
    mechanism: np.ndarray,
    num_classes: int,
    rng: np.random.Generator,
    generator: torch.Generator,
) -> Float[Tensor, "b m n"]:
    """Set cells of the chosen columns to NaN, in place.

    A column of `chosen [b m]` loses cells at a rate r ~ U(0, 0.5). The probability of a cell is r;
    for the mechanism "value", 2 r sigmoid(3 s z) with z the cell's z-score and s a random sign; for
    "label", r w with w ~ U(0, 2) for each class and column.
    """
    n, device = x.shape[2], x.device
    flat = x.view(-1, n)
    task, _ = np.nonzero(chosen)
    columns = torch.as_tensor(np.flatnonzero(chosen), device=device)
    rate = rng.uniform(0, MAX_RATE, (len(task), 1))
    sign = rng.choice([-1.0, 1.0], (len(task), 1))
    weight = rng.uniform(0, 2, (len(task), num_classes))
    chance = torch.as_tensor(rate, dtype=x.dtype, device=device).repeat(1, n)
    for number, name in enumerate(MECHANISMS):
        own = np.flatnonzero(mechanism[task] == number)
        if name == "random" or not own.size:
            continue
        index = torch.as_tensor(own, device=device)
        if name == "value":
            slope = torch.as_tensor(STEEPNESS * sign[own], dtype=x.dtype, device=device)
            factor = standardise(flat[columns[index]]).mul_(slope).sigmoid_().mul_(2)
        else:
            by_class = torch.as_tensor(weight[own], dtype=x.dtype, device=device)
            factor = by_class.gather(1, y[torch.as_tensor(task[own], device=device)])
        chance[index] *= factor
    lost = draws.uniform(len(task), n, generator=generator) < chance
    flat.index_copy_(0, columns, flat[columns].masked_fill_(lost, torch.nan))
    return x
