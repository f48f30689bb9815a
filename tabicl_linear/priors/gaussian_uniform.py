"""The minimal prior: Gaussian features, a random MLP target, almost uniform labels."""

import torch
from torch.nn import functional

from tabicl_linear.priors import draws
from tabicl_linear.priors.base import Prior, Tasks, TaskShape
from tabicl_linear.priors.classes import cover_classes, reindex_classes
from tabicl_linear.types import Float, Int, Tensor

HIDDEN = 32
MAX_LAYERS = 5
BOUNDARY_NOISE = 0.03
NOISE_BOUND = 4.0


class GaussianUniformPrior(Prior):
    """Draws tasks with Gaussian features and labels cut at noisy quantiles of an MLP's output.

    The prior of the paper's minimal notebook: 1 to 5 hidden layers of width 32, one activation of
    tanh, ReLU or GELU, both drawn for each task, and `num_classes` classes of almost equal size
    (quantile boundaries with standard deviation 0.03, cut at 4 standard deviations, which keeps at
    least two classes). Weights are N(0, 1/fan-in) and biases N(0, 1), which the paper leaves open.
    No column is categorical and no cell is missing.
    """

    def sample_tasks(self, shape: TaskShape, generator: torch.Generator) -> Tasks:
        """Draw `shape.batch_size` tasks on the generator's device.

        Raises:
            DataError: If no task can have the shape.
        """
        b, n, num_context, m, num_classes = shape.validate()
        device = generator.device
        x = draws.normal(b, n, m, generator=generator)
        target = _random_targets(x, generator)
        y = reindex_classes(_cut_at_quantiles(target, num_classes, generator), num_classes)
        categorical = torch.zeros(b, m, dtype=torch.bool, device=device)
        return cover_classes(Tasks(x, y, categorical), num_context, num_classes, generator)


def _random_targets(x: Float[Tensor, "b n m"], generator: torch.Generator) -> Float[Tensor, "b n"]:
    """Return the outputs of one random network for each task; depth and activation vary."""
    b, device = len(x), x.device
    depth = torch.randint(1, MAX_LAYERS + 1, (b, 1, 1), generator=generator, device=device)
    kind = torch.randint(3, (b, 1, 1), generator=generator, device=device)
    hidden = x
    for layer in range(MAX_LAYERS):
        z = _random_linear(hidden, HIDDEN, generator)
        out = torch.where(kind == 0, z.tanh(), torch.where(kind == 1, z.relu(), functional.gelu(z)))
        hidden = out if layer == 0 else torch.where(layer < depth, out, hidden)
    return _random_linear(hidden, 1, generator).squeeze(-1)


def _random_linear(
    x: Float[Tensor, "b n k"], width: int, generator: torch.Generator
) -> Float[Tensor, "b n d"]:
    """Apply one random affine map for each task."""
    b, _, fan_in = x.shape
    weight = draws.normal(b, fan_in, width, generator=generator) * fan_in**-0.5
    bias = draws.normal(b, 1, width, generator=generator)
    return torch.baddbmm(bias, x, weight)


def _cut_at_quantiles(
    target: Float[Tensor, "b n"], num_classes: int, generator: torch.Generator
) -> Int[Tensor, "b n"]:
    """Return the number of noisy quantile boundaries below each row's target."""
    b, n = target.shape
    device = target.device
    noise = draws.normal(b, num_classes - 1, generator=generator)
    noise = BOUNDARY_NOISE * noise.clamp(-NOISE_BOUND, NOISE_BOUND)
    levels = torch.arange(1, num_classes, device=device) / num_classes + noise
    quantile = (target.argsort(1).argsort(1) + 0.5) / n
    return (quantile.unsqueeze(-1) > levels.unsqueeze(1)).sum(-1)
