"""The learning-rate schedule: linear warm-up, then half a cosine down to a floor."""

import math
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from tabicl_linear.errors import ConfigError


class WarmupCosine(LRScheduler):
    """Learning rate floor + (lr - floor) * m(s) at optimiser step s = 0, 1, ..., total - 1.

    m rises linearly to 1 over the first `warmup` of the run and then falls as half a cosine, as the
    authors' code does once per epoch (10 of its 200 epochs warm up). The rate is a function of the
    step, of `optimizer`'s own rates and of the arguments; the only state is the step. A resumed run
    therefore follows the options that it is given, not the ones that it was saved with.

    Args:
        warmup: Share of the run, 0 to 1.
        floor: Lowest learning rate, reached at the end. `ConfigError` if above the optimiser's.
    """

    def __init__(self, optimizer: Optimizer, warmup: float = 0.05, floor: float = 2e-6) -> None:
        lowest = min(group["lr"] for group in optimizer.param_groups)
        if not 0 <= floor <= lowest:
            raise ConfigError(
                f"floor={floor} of the schedule with a learning rate of {lowest}: use a floor "
                "between 0 and the learning rate."
            )
        if not 0 <= warmup <= 1:
            raise ConfigError(f"warmup={warmup}: use a share of the run between 0 and 1.")
        self.warmup = warmup
        self.floor = floor
        self.total_steps = 1
        super().__init__(optimizer)

    def plan(self, total_steps: int) -> None:
        """Stretch the schedule over `total_steps` optimiser steps. `ConfigError` if below 1."""
        if total_steps < 1:
            raise ConfigError(
                f"max_steps={total_steps}: the schedule needs the number of optimiser steps; set "
                "trainer.max_steps."
            )
        self.total_steps = total_steps
        self._apply()

    def multiplier(self, step: int) -> float:
        """Return m(step), between 0 (the floor) and 1 (the full learning rate)."""
        rising = round(self.warmup * self.total_steps)
        if step < rising:
            return (step + 1) / rising
        falling = max(self.total_steps - rising, 1)
        return 0.5 * (1 + math.cos(math.pi * min((step - rising) / falling, 1.0)))

    def get_lr(self) -> list[float | Any]:
        """The learning rate of each parameter group at the current step."""
        m = self.multiplier(self.last_epoch)
        return [self.floor + (lr - self.floor) * m for lr in self.base_lrs]

    def state_dict(self) -> dict[str, Any]:
        """The step, and nothing that an option could set."""
        return {"last_epoch": self.last_epoch, "_step_count": self._step_count}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Move to the stored step and set the optimiser's rates to what this schedule wants."""
        self.last_epoch = state_dict["last_epoch"]
        self._step_count = state_dict["_step_count"]
        self._apply()

    def _apply(self) -> None:
        for group, base, lr in zip(
            self.optimizer.param_groups, self.base_lrs, self.get_lr(), strict=True
        ):
            group["initial_lr"] = base
            group["lr"] = lr
        self._last_lr = self.get_lr()
