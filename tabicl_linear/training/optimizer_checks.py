"""What optimisers and schedules must do here, and how those of a checkpoint go on."""

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
"""Options of PyTorch's optimisers that need a state of each parameter, and the state's name."""
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
    """Make both and discard them, so that bad arguments are found before training starts.

    Raises:
        ConfigError: A class, or one of its arguments, does not suit.
    """
    try:
        made = optimizer(model.named_parameters())
        for one, (kind, why) in product((made, schedule(made)), UNSUITABLE.items()):
            if isinstance(one, kind):
                raise ConfigError(why)
    except ConfigError as error:  # of a class of ours, with its own remedy
        raise ConfigError(f"model.optimizer or model.schedule: {error}") from error
    except ValueError as error:
        text = str(error).rstrip(".")
        # Of torch.optim.Muon, before there is an optimiser that could be asked for its class.
        of_matrices = "only supports 2D parameters" in text
        remedy = (
            "use tabicl_linear.training.MuonAdamW (configs/learner/muon.yaml)"
            if of_matrices
            else "give a value in the range that the class allows, such as "
            "--model.optimizer.lr 3e-5"
        )
        raise ConfigError(f"model.optimizer or model.schedule: {text}; {remedy}.") from error


def check_eps(optimizer: Optimizer) -> None:
    """Refuse what makes NaN, 0 / 0, of a weight whose gradient is small: AdamW in float16.

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
    """Give the stored state of an optimiser the options of one that is fresh.

    They are weight decay, betas and the like; the schedule sets the learning rate.

    Raises:
        ConfigError: The groups would hold other parameters, or an option needs a state that is not
            stored.
    """
    fresh = optimizer.param_groups
    _check_groups(stored["param_groups"], fresh)
    for old, new in zip(stored["param_groups"], fresh, strict=True):
        _check_state(new, old, [stored["state"].get(index, {}) for index in old["params"]])
        old.update({k: v for k, v in new.items() if k not in ("params", "lr")})


def _check_groups(stored: list[dict[str, Any]], fresh: list[dict[str, Any]]) -> None:
    """Refuse groups with other parameters, whose states would be mixed up."""
    sizes = [[len(group["params"]) for group in groups] for groups in (stored, fresh)]
    # Checkpoints of versions that gave the optimiser no names do not have them.
    named = [group.get("param_names") for group in stored if "param_names" in group]
    if sizes[0] != sizes[1] or (named and named != [group["param_names"] for group in fresh]):
        raise ConfigError(
            "model.optimizer: the checkpoint's optimiser has other parameters in its groups; leave "
            "out options that divide the parameters, such as matrices."
        )


def _check_state(
    group: Mapping[str, Any], before: Mapping[str, Any], states: Sequence[Mapping[str, Any]]
) -> None:
    """Refuse options, new to the run, that need a state which the checkpoint does not hold."""
    for option, name in OPTIMISER_STATE.items():
        if not group.get(option) or before.get(option):
            continue  # what an optimiser of the user's own trained with, it has under its own name
        # An optimiser without any state, such as SGD without momentum, starts with its first.
        if any(state and name not in state for state in states):
            raise ConfigError(
                f"model.optimizer: {option}={group[option]} needs a state ({name}) that the "
                f"checkpoint's optimiser, trained without {option}, does not hold; leave "
                f"{option} out."
            )
