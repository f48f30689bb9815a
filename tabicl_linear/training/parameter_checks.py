"""Checks that all that a part of a model learns is a parameter, and that all parameters learn."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from tabicl_linear.errors import ConfigError
from tabicl_linear.types import Tensor


def check_registered(name: str, module: nn.Module, outputs: Tensor) -> None:
    """Check that all that is learned is a parameter, which optimisers and checkpoints find.

    Args:
        name: How an error calls the module.
        module: What computed the outputs.
        outputs: Numbers that depend on all that it learns.

    Raises:
        ConfigError: They depend on a tensor that requires gradients and is no parameter of it.
    """
    parameters = set(module.parameters())
    for tensor in _learned(outputs):
        if tensor not in parameters:
            raise ConfigError(
                f"{name}: it computes with a tensor of shape {tuple(tensor.shape)} that "
                "requires gradients and is none of its parameters, so that it is neither trained "
                "nor saved; make it a Parameter or a layer that is an attribute by itself, or hold "
                "layers in a torch.nn.ModuleList."
            )


def check_trained(name: str, module: nn.Module, outputs: Tensor) -> None:
    """Check that the outputs depend on every parameter that requires gradients.

    In inference mode, where there are no gradients, nothing is checked.

    Raises:
        ConfigError: They do not depend on one, which would stay as it was drawn.
    """
    if torch.is_inference_mode_enabled():
        return
    learned = set(_learned(outputs))
    for parameter, tensor in module.named_parameters():
        if tensor.requires_grad and tensor not in learned:
            raise ConfigError(
                f"{name}: no gradient reaches its parameter {parameter}, so that it would stay as "
                "it was drawn; use it without detach or torch.no_grad, or, if that is meant, call "
                "requires_grad_(False) on it."
            )


def _learned(outputs: Tensor) -> Iterator[Tensor]:
    """Every tensor on which the outputs depend and that gets a gradient, once each."""
    pending: list[Any] = [outputs.grad_fn]
    visited: set[Any] = {None}
    while pending:
        if (node := pending.pop()) in visited:
            continue
        visited.add(node)
        pending += [before for before, _ in node.next_functions]
        if node.name() == "torch::autograd::AccumulateGrad":
            yield node.variable
