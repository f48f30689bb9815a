"""The learning rate of every step, and after a resume."""

import math

import numpy as np
import pytest
import torch

from tabicl_linear.errors import ConfigError
from tabicl_linear.training.schedule import (
    PlannedSchedule,
    StepSchedule,
    WarmupCosine,
    WarmupLinear,
    WarmupStableDecay,
)


def make(total=100, lr=3e-5, schedule=WarmupCosine, **kwargs):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=lr)
    made = schedule(optimizer, **kwargs)
    if isinstance(made, PlannedSchedule):
        made.plan(total)
    return optimizer, made


def rates(optimizer, schedule, steps):
    seen = []
    for _ in range(steps):
        seen.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return seen


def test_each_rate_follows_the_formula():
    seen = rates(*make(total=200, warmup=0.05, floor=2e-6), 200)
    for step, rate in enumerate(seen):
        m = (step + 1) / 10 if step < 10 else 0.5 * (1 + math.cos(math.pi * (step - 10) / 190))
        assert rate == pytest.approx(2e-6 + (3e-5 - 2e-6) * m, rel=1e-12)
    assert max(seen) == seen[9] == pytest.approx(3e-5)


def test_it_ends_at_the_floor_and_stays_there():
    optimizer, schedule = make(total=20)
    assert rates(optimizer, schedule, 25)[20:] == pytest.approx([2e-6] * 5)


def test_the_paper_s_first_epoch():
    """Authors' code: 10 of 200 epochs warm up, so the first epoch runs at 4.8e-6."""
    assert rates(*make(total=200), 1) == pytest.approx([4.8e-6])


@pytest.mark.parametrize("kind", [WarmupCosine, WarmupLinear, WarmupStableDecay])
def test_a_state_moves_a_schedule_with_other_options_to_its_step(kind):
    optimizer, schedule = make(total=100)
    rates(optimizer, schedule, 40)
    decay = {"decay_start": 30, "decay_steps": 20} if kind is WarmupStableDecay else {}
    options = {"total": 60, "lr": 1e-3, "floor": 1e-5, "schedule": kind}
    options |= {"warmup_steps": 5, **decay} if decay else {}
    other_optimizer, other = make(**options)
    expected = rates(*make(**options), 45)[40:]
    assert len(set(expected)) == 5
    other_optimizer.load_state_dict(optimizer.state_dict())
    other.load_state_dict(schedule.state_dict())
    assert rates(other_optimizer, other, 5) == pytest.approx(expected, rel=1e-12)


def test_an_extended_budget_raises_the_rate_to_that_of_a_run_of_the_new_total():
    """The cosine is stretched over the new total at the step reached; nothing else is kept."""
    optimizer, schedule = make(total=100)
    rates(optimizer, schedule, 90)
    schedule.plan(300)
    extended = rates(optimizer, schedule, 210)
    assert extended == pytest.approx(rates(*make(total=300), 300)[90:], rel=1e-12)
    assert extended[0] > 5 * rates(*make(total=100), 91)[90]


PLANNED = pytest.mark.parametrize("schedule", [WarmupCosine, WarmupLinear])


@PLANNED
@pytest.mark.parametrize(
    "options", [{"floor": 1e-3}, {"floor": -1.0}, {"warmup": 1.5}, {"warmup": -0.1}, {"total": 0}]
)
def test_impossible_schedules_are_refused(options, schedule):
    with pytest.raises(ConfigError):
        make(**options, schedule=schedule)


@PLANNED
@pytest.mark.parametrize(("total", "warmup"), [(1, 0.0), (1, 1.0), (3, 1.0), (2, 0.5)])
def test_short_runs_stay_within_bounds(total, warmup, schedule):
    seen = rates(*make(total=total, warmup=warmup, floor=2e-6, schedule=schedule), total)
    assert all(2e-6 <= rate <= 3e-5 for rate in seen)


def test_the_line_falls_by_equal_steps_to_zero():
    seen = rates(*make(total=200, schedule=WarmupLinear), 202)
    for step, rate in enumerate(seen[:200]):
        m = (step + 1) / 10 if step < 10 else 1 - (step - 10) / 190
        assert rate == pytest.approx(3e-5 * m, rel=1e-12)
    assert seen[200:] == [0.0, 0.0]


class TestWarmupStableDecay:
    @staticmethod
    def make(**options):
        return make(schedule=WarmupStableDecay, warmup_steps=10, **options)

    def test_each_rate_follows_the_formula(self):
        seen = rates(*self.make(decay_start=30, decay_steps=20, floor=1e-6), 60)
        for step, rate in enumerate(seen):
            m = min((step + 1) / 10, 1 - min(max(step - 30, 0) / 20, 1))
            assert rate == pytest.approx(1e-6 + 2.9e-5 * m, rel=1e-12)
        assert seen[9:31] == pytest.approx([3e-5] * 22)
        assert seen[50:] == pytest.approx([1e-6] * 10)

    def test_a_trunk_never_ends(self):
        _, trunk = self.make()
        assert trunk.multiplier(10**9) == 1

    def test_a_decay_decided_late_is_that_of_a_run_that_had_it_from_the_start(self):
        optimizer, trunk = self.make()
        head = rates(optimizer, trunk, 30)
        optimizer_, decaying = self.make(decay_start=30, decay_steps=20)
        optimizer_.load_state_dict(optimizer.state_dict())
        decaying.load_state_dict(trunk.state_dict())
        whole = rates(*self.make(decay_start=30, decay_steps=20), 55)
        assert head + rates(optimizer_, decaying, 25) == whole

    @pytest.mark.parametrize(
        "options",
        [
            {"decay_start": 30},
            {"decay_steps": 20},
            {"decay_start": 9, "decay_steps": 20},
            {"decay_steps": 0, "decay_start": 30},
            {"warmup_steps": -1},
            {"floor": 1.0},
        ],
    )
    def test_impossible_options_are_refused(self, options):
        with pytest.raises(ConfigError, match=next(iter(options))):
            make(schedule=WarmupStableDecay, **{"warmup_steps": 10, **options})


def test_rates_of_an_own_schedule_are_numbers_of_python():
    """Those of NumPy would be in checkpoints, which then could not be read."""

    class Waves(StepSchedule):
        def multiplier(self, step):
            return np.cos(step / 10)

    seen = rates(*make(schedule=Waves, floor=0.0), 3)
    assert [type(rate) for rate in seen] == [float] * 3
    assert seen[2] == pytest.approx(3e-5 * math.cos(0.2))


@pytest.mark.parametrize("given", [None, "1", math.nan, math.inf, -0.5])
def test_an_own_schedule_that_gives_no_rate_is_named(given):
    """A negative one would climb the loss."""

    class Waves(StepSchedule):
        def multiplier(self, step):
            return 1.0 if step < 2 else given

    with pytest.raises(ConfigError, match=rf"Waves: its multiplier of step 2 is {given!r}; it"):
        rates(*make(schedule=Waves, floor=0.0), 3)
