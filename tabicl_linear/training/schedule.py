"""Learning-rate schedules: linear warm-up, then cosine or linear decay, or constant then decay."""

import math
from abc import ABC, abstractmethod
from numbers import Real
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from tabicl_linear.errors import ConfigError
from tabicl_linear.types import Tensor


class StepSchedule(LRScheduler, ABC):
    """Learning rate floor + (lr - floor) * m(s) at optimiser step s = 0, 1, ...

    The rate is a function of the step, of `optimizer`'s own rates and of the arguments; the only
    state is the step. A resumed run therefore follows its present options, not those that it was
    saved with.

    Args:
        floor: Lowest learning rate. `ConfigError` if above the optimiser's.
    """

    def __init__(self, optimizer: Optimizer, floor: float) -> None:
        lowest = min(group["lr"] for group in optimizer.param_groups)
        if not 0 <= floor <= lowest:
            raise ConfigError(
                f"floor={floor} of the schedule with a learning rate of {lowest}: use a floor "
                "between 0 and the learning rate."
            )
        self.floor = floor
        super().__init__(optimizer)

    @abstractmethod
    def multiplier(self, step: int) -> float:
        """Return m(step), between 0 (the floor) and 1 (the full learning rate)."""

    def get_lr(self) -> list[float | Any]:
        """The learning rate of each parameter group at the current step.

        Raises:
            ConfigError: `multiplier`, which may be a user's own, gives no number of at least 0.
        """
        given: Any = self.multiplier(self.last_epoch)
        # NumPy's numbers would be in checkpoints.
        m = float(given) if isinstance(given, Real | Tensor) else math.nan
        if not 0 <= m < math.inf:
            raise ConfigError(
                f"{type(self).__module__}.{type(self).__qualname__}: its multiplier of step "
                f"{self.last_epoch} is {given!r}; it must be a number of at least 0."
            )
        return [self.floor + (lr - self.floor) * m for lr in self.base_lrs]

    def state_dict(self) -> dict[str, Any]:
        """The step, and no options."""
        return {"last_epoch": self.last_epoch, "_step_count": self._step_count}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Move to the stored step and set the optimiser's rates to those of this schedule."""
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


class PlannedSchedule(StepSchedule):
    """A schedule over a number of steps that is known in advance.

    m rises linearly to 1 over the warm-up and falls over the rest of the run.

    Args:
        warmup: Share of the run, 0 to 1.
        floor: Lowest learning rate, reached at the end. `ConfigError` if above the optimiser's.
    """

    def __init__(self, optimizer: Optimizer, warmup: float, floor: float) -> None:
        if not 0 <= warmup <= 1:
            raise ConfigError(f"warmup={warmup}: use a share of the run between 0 and 1.")
        self.warmup = warmup
        self.total_steps = 1
        super().__init__(optimizer, floor)

    def plan(self, total_steps: int) -> None:
        """Stretch the schedule over `total_steps` optimiser steps. `ConfigError` if below 1."""
        if total_steps < 1:
            raise ConfigError(
                f"max_steps={total_steps}: the schedule needs the number of optimiser steps; set "
                "trainer.max_steps."
            )
        self.total_steps = total_steps
        self._apply()

    @abstractmethod
    def fall(self, progress: float) -> float:
        """Return m when a share `progress`, 0 to 1, of the steps after the warm-up is done."""

    def multiplier(self, step: int) -> float:
        """Return m(step), between 0 (the floor) and 1 (the full learning rate)."""
        rising = round(self.warmup * self.total_steps)
        if step < rising:
            return (step + 1) / rising
        falling = max(self.total_steps - rising, 1)
        return self.fall(min((step - rising) / falling, 1.0))


class WarmupCosine(PlannedSchedule):
    """Linear warm-up, then half a cosine down to the floor.

    The authors' code updates the rate once per epoch (10 of its 200 epochs are warm-up).

    Args:
        warmup: Share of the run, 0 to 1.
        floor: Lowest learning rate, reached at the end. `ConfigError` if above the optimiser's.
    """

    def __init__(self, optimizer: Optimizer, warmup: float = 0.05, floor: float = 2e-6) -> None:
        super().__init__(optimizer, warmup, floor)

    def fall(self, progress: float) -> float:
        """Return (1 + cos(pi progress)) / 2."""
        return 0.5 * (1 + math.cos(math.pi * progress))


class WarmupLinear(PlannedSchedule):
    """Linear warm-up, then linear decay to the floor.

    Args:
        warmup: Share of the run, 0 to 1.
        floor: Lowest learning rate, reached at the end. `ConfigError` if above the optimiser's.
    """

    def __init__(self, optimizer: Optimizer, warmup: float = 0.05, floor: float = 0.0) -> None:
        super().__init__(optimizer, warmup, floor)

    def fall(self, progress: float) -> float:
        """Return 1 - progress."""
        return 1 - progress


class WarmupStableDecay(StepSchedule):
    """Linear warm-up, then the full learning rate until a decay, whose start can be decided later.

    Without `decay_start` the rates do not depend on `trainer.max_steps`, so a run can be extended
    without limit. A checkpoint from before `decay_start`, resumed with `decay_start` and
    `decay_steps`, gives the same run as if both had been set from the start.

    Args:
        warmup_steps: Optimiser steps of the warm-up.
        decay_start: First step of the decay, still at the full rate; no decay if None.
        decay_steps: Steps from there to the floor; only together with `decay_start`.
        floor: Learning rate after the decay. `ConfigError` if above the optimiser's.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        warmup_steps: int = 1000,
        decay_start: int | None = None,
        decay_steps: int | None = None,
        floor: float = 0.0,
    ) -> None:
        if warmup_steps < 0:
            raise ConfigError(f"warmup_steps={warmup_steps}: use 0 or more.")
        if (decay_start is None) != (decay_steps is None):
            raise ConfigError(
                f"decay_start={decay_start} with decay_steps={decay_steps}: give both for a decay, "
                "neither for a constant rate."
            )
        if decay_start is not None and decay_start < warmup_steps:
            raise ConfigError(
                f"decay_start={decay_start} lies within the warm-up (warmup_steps={warmup_steps}); "
                "use a later step."
            )
        if decay_steps is not None and decay_steps < 1:
            raise ConfigError(f"decay_steps={decay_steps}: use at least 1.")
        self.warmup_steps = warmup_steps
        self.decay_start = decay_start
        self.decay_steps = decay_steps
        super().__init__(optimizer, floor)

    def multiplier(self, step: int) -> float:
        """Return m(step), between 0 (the floor) and 1 (the full learning rate)."""
        if step < self.warmup_steps:
            return (step + 1) / self.warmup_steps
        if self.decay_start is None or self.decay_steps is None:
            return 1.0
        return 1 - min(max(step - self.decay_start, 0) / self.decay_steps, 1.0)
