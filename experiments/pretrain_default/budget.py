"""The budget of a pretraining in minutes of wall time, and the optimiser steps that fit into it.

The learning rate is a pure function of the step and of the total (`WarmupCosine`), so a budget is
planned by the total alone. The total is planned anew at every halving of the time that is left,
from the steps that the last part took: the schedule ends with the budget also where the machine
turns faster or slower. A budget that is extended stretches the cosine over the new total at the
step reached, which raises the rate again to where a run of that total would be.
"""

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from tabicl_linear.files import written_whole

FIRST_PART = 0.05
"""Share of a new budget after which the steps are planned from what was measured."""
LAST_PART = 0.04
"""Share of a budget below which what is left is no longer halved."""
MARGIN = 0.97
"""Planned use of the last part, so that it ends by its own schedule and not by the clock."""


@dataclass(frozen=True)
class Budget:
    """What a run of several legs may spend and has spent.

    Attributes:
        planned_minutes: Wall time of all legs together.
        spent_minutes: Wall time of training so far.
        total_steps: Optimiser steps over which the learning rate is scheduled.
        fixed_steps: Whether `total_steps` was given, and is not planned from the time.
    """

    planned_minutes: float
    total_steps: int
    spent_minutes: float = 0.0
    fixed_steps: bool = False

    @property
    def left_minutes(self) -> float:
        """What is still to be spent."""
        return max(self.planned_minutes - self.spent_minutes, 0.0)

    @property
    def is_last_part(self) -> bool:
        """Whether so little is left that it is no longer halved."""
        return self.left_minutes <= LAST_PART * self.planned_minutes

    def spend(self, minutes: float) -> "Budget":
        """The budget after so many more minutes."""
        return replace(self, spent_minutes=self.spent_minutes + minutes)

    def extended(self, leg_minutes: float, planned_minutes: float | None) -> "Budget":
        """The budget with room for a leg of `leg_minutes`, or with another planned time."""
        wanted = planned_minutes or self.planned_minutes
        return replace(self, planned_minutes=max(wanted, self.spent_minutes + leg_minutes))

    def fixed(self, total_steps: int) -> "Budget":
        """The budget with a total that no measurement changes."""
        return replace(self, total_steps=total_steps, fixed_steps=True)

    def released(self) -> "Budget":
        """The budget whose total is planned from the time again."""
        return replace(self, fixed_steps=False)

    def part(self) -> float:
        """Minutes until the steps are planned again."""
        if self.fixed_steps or self.is_last_part:
            return self.left_minutes
        if self.spent_minutes == 0:
            return FIRST_PART * self.planned_minutes
        return self.left_minutes / 2

    def replanned(self, step: int, steps_taken: int, minutes: float) -> "Budget":
        """The budget with the total that the pace of the last part leads to.

        Args:
            step: Optimiser steps so far.
            steps_taken: Those of the last part.
            minutes: Wall time of the last part.
        """
        if self.fixed_steps or steps_taken == 0:
            return self
        ahead = MARGIN * self.left_minutes * steps_taken / minutes
        return replace(self, total_steps=step + max(round(ahead), 1))


def load(path: Path) -> Budget | None:
    """The budget that a file holds; None where there is none."""
    return Budget(**json.loads(path.read_text())) if path.exists() else None


def save(budget: Budget, path: Path) -> None:
    """Replace the file as a whole."""
    with written_whole(path) as partial:
        partial.write_text(json.dumps(asdict(budget), indent=1) + "\n")
