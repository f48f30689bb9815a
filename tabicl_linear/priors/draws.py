"""Random numbers of the priors: tensors from a torch generator, scalars from one of numpy.

On a CPU many numbers at once are drawn in C++ where it gives PyTorch's bits
(`backends/cpp/random.py`), so that a draw does not depend on who computes it.
"""

from math import prod

import numpy as np
import torch

from tabicl_linear.backends.cpp import random
from tabicl_linear.types import Float, Tensor

MANY = 1000
"""Numbers from which on C++ is faster: it copies the generator's state there and back."""


def numpy_generator(generator: torch.Generator) -> np.random.Generator:
    """Return a numpy generator seeded by 128 bits drawn from `generator`."""
    words = torch.randint(2**32, (4,), generator=generator, device=generator.device)
    return np.random.default_rng(words.tolist())


def normal(*shape: int, generator: torch.Generator) -> Float[Tensor, "..."]:
    """Draw standard normal float32 numbers on the generator's device."""
    device = generator.device
    if prod(shape) >= MANY and random.serves(device):
        return random.normal(*shape, generator=generator)
    return torch.randn(shape, generator=generator, device=device, dtype=torch.float32)


def uniform(*shape: int, generator: torch.Generator) -> Float[Tensor, "..."]:
    """Draw float32 numbers uniform on [0, 1) on the generator's device."""
    device = generator.device
    if prod(shape) >= MANY and random.serves(device):
        return random.uniform(*shape, generator=generator)
    return torch.rand(shape, generator=generator, device=device, dtype=torch.float32)


def noise(
    scale: Float[Tensor, "e 1"],
    shift: Float[Tensor, "e 1"],
    columns: int,
    generator: torch.Generator,
) -> Float[Tensor, "e c"]:
    """Draw `columns` normal numbers a row, times `scale` and then plus `shift`."""
    if len(scale) * columns >= MANY and random.serves(generator.device):
        return random.noise(scale, shift, columns, generator)
    # Two passes are faster than one of `addcmul`, which is not vectorised for columns.
    return normal(len(scale), columns, generator=generator).mul_(scale).add_(shift)
