"""Monotone distortions of numeric columns and random recoding of categorical ones."""

import numpy as np
import torch

from tabicl_linear.priors import draws
from tabicl_linear.priors.bins import argsort
from tabicl_linear.priors.tabpfn_v1.columns import standardise, to_ranks
from tabicl_linear.types import Bool, Float, Tensor

REACH = 3.0
FUNCTIONS = ("exponential", "power", "ranks", "levels", "saturated")


def choose_columns(
    rng: np.random.Generator, num_tasks: int, num_features: int, probability: float
) -> np.ndarray:
    """Choose the columns that an effect applies to, as booleans `[b m]`.

    A task is affected with `probability`; its columns are then chosen with a common probability,
    uniform on [0, 1].
    """
    share = np.where(rng.uniform(size=num_tasks) < probability, rng.uniform(size=num_tasks), 0.0)
    return rng.uniform(size=(num_tasks, num_features)) < share[:, None]


def distort_(
    x: Float[Tensor, "b m n"],
    categorical: Bool[Tensor, "b m"],
    chosen: np.ndarray,
    rng: np.random.Generator,
) -> Float[Tensor, "b m n"]:
    """Replace chosen numeric columns by z-scores of a monotone function of them, in place.

    One of: exp(a x), the signed power |x|^a, ranks, rounding to steps, tanh(a x). Half of the
    columns are mirrored first.
    """
    flat = x.view(-1, x.shape[2])
    numeric = torch.as_tensor(chosen, device=x.device) & ~categorical
    columns = numeric.flatten().nonzero().squeeze(1)
    kind = rng.integers(len(FUNCTIONS), size=len(columns))
    amount = rng.uniform(size=len(columns))
    sign = rng.choice([-1.0, 1.0], len(columns))
    for number, name in enumerate(FUNCTIONS):
        own = np.flatnonzero(kind == number)
        if own.size:
            index = columns[torch.as_tensor(own, device=x.device)]
            a, s = (
                torch.as_tensor(v[own, None], dtype=x.dtype, device=x.device)
                for v in (amount, sign)
            )
            z = standardise(flat[index]).clamp_(-REACH, REACH).mul_(s)
            flat.index_copy_(0, index, standardise(_function(name, z, a)))
    return x


def _function(name: str, z: Float[Tensor, "c n"], a: Float[Tensor, "c 1"]) -> Float[Tensor, "c n"]:
    """Apply one of `FUNCTIONS` with strength `a` on [0, 1]; NaN stays."""
    if name == "exponential":
        return (z * (0.3 + 1.7 * a)).exp_()
    if name == "power":
        return z.abs().pow(0.3 + 2.7 * a).copysign_(z)
    if name == "ranks":
        return to_ranks(z).masked_fill_(z.isnan(), torch.nan)
    if name == "levels":
        return (z * (0.3 + 3 * a)).round_()
    return (z * (1 + 3 * a)).tanh_()


def recode_(
    x: Float[Tensor, "b m n"],
    categorical: Bool[Tensor, "b m"],
    chosen: np.ndarray,
    generator: torch.Generator,
) -> Float[Tensor, "b m n"]:
    """Number the categories of the tasks in `chosen [b]` at random from 0, in place."""
    flat = x.view(-1, x.shape[2])
    nominal = torch.as_tensor(chosen, device=x.device).unsqueeze(1) & categorical
    columns = nominal.flatten().nonzero().squeeze(1)
    if not len(columns):
        return x
    values = flat[columns]
    order = argsort(values)
    ascending = values.gather(1, order)
    # NaN equals nothing, not even itself: missing cells come last and stay missing.
    is_new = (ascending[:, 1:] != ascending[:, :-1]).long()
    code = torch.empty_like(order).scatter_(
        1, order, torch.nn.functional.pad(is_new.cumsum(1), (1, 0))
    )
    present = values.isnan().logical_not_()
    last = code.masked_fill(~present, 0).amax(1, keepdim=True)
    largest = int(last.max()) + 1
    keys = draws.uniform(len(columns), largest, generator=generator)
    keys.masked_fill_(torch.arange(largest, device=x.device) > last, 2.0)
    table = argsort(keys).to(x.dtype)
    codes = table.gather(1, code.clamp_(max=largest - 1))
    flat.index_copy_(0, columns, codes.masked_fill_(~present, torch.nan))
    return x
