"""Random numbers of the priors: tensors from a torch generator, scalars from one of numpy."""

import numpy as np
import torch

from tabicl_linear.types import Float, Tensor


def numpy_generator(generator: torch.Generator) -> np.random.Generator:
    """Return a numpy generator seeded by 128 bits drawn from `generator`."""
    words = torch.randint(2**32, (4,), generator=generator, device=generator.device)
    return np.random.default_rng(words.tolist())


def normal(*shape: int, generator: torch.Generator) -> Float[Tensor, "..."]:
    """Draw standard normal float32 numbers on the generator's device."""
    device = generator.device
    return torch.randn(shape, generator=generator, device=device, dtype=torch.float32)


def uniform(*shape: int, generator: torch.Generator) -> Float[Tensor, "..."]:
    """Draw float32 numbers uniform on [0, 1) on the generator's device."""
    device = generator.device
    return torch.rand(shape, generator=generator, device=device, dtype=torch.float32)
