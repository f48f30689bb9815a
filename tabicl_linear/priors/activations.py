"""Applies to each task the activation of its own network."""

import numpy as np
import torch

from tabicl_linear.priors.hyperparameters import ACTIVATIONS
from tabicl_linear.types import Float, Tensor


def activate_(x: Float[Tensor, "b d n"], activation: np.ndarray) -> Float[Tensor, "b d n"]:
    """Apply `ACTIVATIONS[activation[i]]` to task `i`, in place.

    The choice is known on the host, so that each task pays for its own activation only.
    """
    for index, name in enumerate(ACTIVATIONS):
        tasks = np.flatnonzero(activation == index)
        if name == "identity" or not tasks.size:
            continue
        function = torch.tanh_ if name == "tanh" else torch.relu_
        if tasks.size == len(activation):
            function(x)
        else:
            rows = torch.as_tensor(tasks, device=x.device)
            x[rows] = function(x[rows])
    return x
