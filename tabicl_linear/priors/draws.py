"""Random numbers of the priors: tensors from a torch generator, scalars from one of numpy.

On a CPU, large draws use the C++ code (`backends/cpp/random.py`) where it gives the same bits as
PyTorch, so that the numbers do not depend on which of the two computes them.
"""

from math import prod

import numpy as np
import torch

from tabicl_linear.backends.cpp import random
from tabicl_linear.types import Float, Tensor

MANY = 1000
"""Size of a draw from which C++ is faster: each call copies the generator's state twice."""


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
    """Draw `columns` normal numbers in each row, with its deviation `scale` and mean `shift`."""
    if len(scale) * columns >= MANY and random.serves(generator.device):
        return random.noise(scale, shift, columns, generator)
    # Two passes are faster than one of `addcmul`, which is not vectorised for columns.
    return normal(len(scale), columns, generator=generator).mul_(scale).add_(shift)
