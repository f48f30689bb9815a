"""Checks of optimisers and schedules, and how a checkpoint's optimiser takes new options."""

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import torch
from lightning.pytorch.cli import LRSchedulerCallable, OptimizerCallable
from torch import nn
from torch.optim import LBFGS, Optimizer, SparseAdam
from torch.optim.lr_scheduler import ReduceLROnPlateau

from tabicl_linear.errors import ConfigError

OPTIMISER_STATE = {
    "amsgrad": "max_exp_avg_sq",
    "centered": "grad_avg",
    "momentum": "momentum_buffer",
}
"""Options of PyTorch's optimisers that need a state for each parameter, and the state's name."""
UNSUITABLE: Mapping[type, str] = {
    SparseAdam: "SparseAdam takes sparse gradients only; use torch.optim.AdamW.",
    LBFGS: "LBFGS computes a batch several times a step, and each time adds its gradients to those "
    "of the batches accumulated before; use torch.optim.AdamW.",
    ReduceLROnPlateau: "ReduceLROnPlateau waits for a score, and a schedule follows the steps "
    "alone; use tabicl_linear.training.schedule.WarmupStableDecay (configs/learner/stable.yaml).",
}
"""Optimisers and schedules of PyTorch that cannot work here, and why."""


def check_makes(
    optimizer: OptimizerCallable, schedule: LRSchedulerCallable, model: nn.Module
) -> None:
    """Make both and discard them, so that bad arguments raise before training starts.

    Raises:
        ConfigError: A class cannot be used here, or one of its arguments is invalid.
    """
    try:
        made = optimizer(model.named_parameters())
        for one, (kind, why) in product((made, schedule(made)), UNSUITABLE.items()):
            if isinstance(one, kind):
                raise ConfigError(why)
    except ConfigError as error:  # from UNSUITABLE or a class of ours: it names its own remedy
        raise ConfigError(f"model.optimizer or model.schedule: {error}") from error
    except ValueError as error:
        text = str(error).rstrip(".")
        # Only the text tells that the class is torch.optim.Muon: it raises before it is made.
        of_matrices = "only supports 2D parameters" in text
        remedy = (
            "use tabicl_linear.training.MuonAdamW (configs/learner/muon.yaml)"
            if of_matrices
            else "give a value in the range that the class allows, such as "
            "--model.optimizer.lr 3e-5"
        )
        raise ConfigError(f"model.optimizer or model.schedule: {text}; {remedy}.") from error


def check_eps(optimizer: Optimizer) -> None:
    """Refuse an eps that is zero in the weights' dtype, such as AdamW's 1e-8 in float16.

    A weight with a small gradient would become NaN, 0 / 0.

    Raises:
        ConfigError: The optimiser's eps is zero in the precision of the weights.
    """
    for group in optimizer.param_groups:
        eps, dtype = group.get("eps"), group["params"][0].dtype
        if isinstance(eps, float) and eps > 0 == torch.tensor(eps, dtype=dtype).item():
            raise ConfigError(
                f"model.optimizer: eps={eps} is zero in {str(dtype).removeprefix('torch.')}, the "
                "dtype of the weights, and small gradients would be divided by it; use "
                "--trainer.precision bf16-true or bf16-mixed."
            )


def take_options(stored: Mapping[str, Any], optimizer: Optimizer) -> None:
    """Replace the options in a stored optimiser state by those of a new optimiser.

    These are weight decay, betas and the like; the schedule sets the learning rate.

    Args:
        stored: An optimiser's `state_dict`, changed in place.
        optimizer: The new optimiser.

    Raises:
        ConfigError: The groups hold other parameters, or an option needs a state that is not
            stored.
    """
    fresh = optimizer.param_groups
    _check_groups(stored["param_groups"], fresh)
    for old, new in zip(stored["param_groups"], fresh, strict=True):
        _check_state(new, old, [stored["state"].get(index, {}) for index in old["params"]])
        old.update({k: v for k, v in new.items() if k not in ("params", "lr")})


def _check_groups(stored: list[dict[str, Any]], fresh: list[dict[str, Any]]) -> None:
    """Refuse groups that hold other parameters: states would go to the wrong ones."""
    sizes = [[len(group["params"]) for group in groups] for groups in (stored, fresh)]
    # Earlier versions gave the optimiser no names, so their checkpoints have none.
    named = [group.get("param_names") for group in stored if "param_names" in group]
    if sizes[0] != sizes[1] or (named and named != [group["param_names"] for group in fresh]):
        raise ConfigError(
            "model.optimizer: the checkpoint's optimiser has other parameters in its groups; leave "
            "out options that divide the parameters, such as matrices."
        )


def _check_state(
    group: Mapping[str, Any], before: Mapping[str, Any], states: Sequence[Mapping[str, Any]]
) -> None:
    """Refuse options that are new to the run and need a state that the checkpoint lacks."""
    for option, name in OPTIMISER_STATE.items():
        if not group.get(option) or before.get(option):
            continue  # the run had it already; a user's optimiser may store it by another name
        # An optimiser that had no state at all, such as SGD without momentum, can make one.
        if any(state and name not in state for state in states):
            raise ConfigError(
                f"model.optimizer: {option}={group[option]} needs a state ({name}) that the "
                f"checkpoint's optimiser, trained without {option}, does not hold; leave "
                f"{option} out."
            )
