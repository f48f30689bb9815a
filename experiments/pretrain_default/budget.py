"""The budget of one leg and what it has spent, kept in a file until the leg is over.

A leg is a piece of the trunk, at a constant learning rate, followed by a decay that branches off
its end. The trunk has no planned end: nothing in it depends on its later length. The decay has as
many steps as its share of the time allows at the pace of the leg's trunk.
"""

import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from tabicl_linear.files import written_whole

Clock = Literal["wall", "cpu"]
MARGIN = 0.97
"""Share of the decay's time that is planned for, since it always takes all its steps."""
SHORTEST_MINUTES = 0.02
"""If less than this is left of the trunk's time, no process is started for it."""


@dataclass(frozen=True)
class Spent:
    """Minutes of training: wall time, and CPU time over all threads."""

    wall: float = 0.0
    cpu: float = 0.0

    def __add__(self, other: "Spent") -> "Spent":
        return Spent(self.wall + other.wall, self.cpu + other.cpu)


@dataclass(frozen=True)
class Budget:
    """One leg, measured in minutes or in optimiser steps.

    Attributes:
        minutes: Minutes of trunk and decay together; None if steps are given.
        steps: Steps of both, instead of minutes.
        share: Share of the decay; 0 for no decay.
        clock: Whether minutes are wall time or CPU time.
        first_step: Step of the trunk when the leg began.
        trunk: Time spent by the trunk in this leg.
        decay: Time spent by the decay.
        decay_start: The trunk's last step, once the decay is planned.
        decay_steps: Steps of the decay.
    """

    minutes: float | None
    steps: int | None
    share: float
    clock: Clock = "wall"
    first_step: int = 0
    trunk: Spent = field(default_factory=Spent)
    decay: Spent = field(default_factory=Spent)
    decay_start: int | None = None
    decay_steps: int | None = None

    @property
    def is_decaying(self) -> bool:
        """Whether the decay has been planned, which ends the trunk's part of the leg."""
        return self.decay_start is not None

    @property
    def trunk_minutes_left(self) -> float | None:
        """Minutes that the trunk may still spend; None if steps are counted."""
        if self.minutes is None:
            return None
        return (1 - self.share) * self.minutes - float(getattr(self.trunk, self.clock))

    @property
    def trunk_end(self) -> int | None:
        """The trunk's last step in this leg; None if minutes are counted."""
        if self.steps is None:
            return None
        return self.first_step + self.steps - self._steps_of_decay(self.steps)

    def is_trunk_over(self, step: int) -> bool:
        """Whether the trunk, now at this step, has finished its part."""
        if self.trunk_end is not None:
            return step >= self.trunk_end
        left = self.trunk_minutes_left
        return left is not None and left < SHORTEST_MINUTES

    def with_decay(self, step: int) -> "Budget":
        """The budget with a decay from the trunk's last step on."""
        if self.steps is not None:
            steps = self._steps_of_decay(self.steps)
        else:
            assert self.minutes is not None
            pace = (step - self.first_step) / getattr(self.trunk, self.clock)
            steps = round(MARGIN * pace * self.share * self.minutes)
        return replace(self, decay_start=step, decay_steps=max(steps, 1))

    def asked(self, other: "Budget") -> "Budget":
        """This unfinished leg with the options of `other` and the time already spent.

        A decay that has begun is finished as planned.
        """
        if self.is_decaying:
            return self
        return replace(other, first_step=self.first_step, trunk=self.trunk)

    def _steps_of_decay(self, steps: int) -> int:
        return max(round(self.share * steps), 1) if self.share else 0


def load(path: Path) -> Budget | None:
    """The budget stored in a file; None if there is no file."""
    if not path.exists():
        return None
    stored: dict[str, Any] = json.loads(path.read_text())
    spent = {name: Spent(**stored[name]) for name in ("trunk", "decay")}
    return Budget(**{**stored, **spent})


def save(budget: Budget, path: Path) -> None:
    """Replace the file atomically."""
    with written_whole(path) as partial:
        partial.write_text(json.dumps(asdict(budget), indent=1) + "\n")
