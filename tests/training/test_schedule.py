"""The learning rate of every step, and after a resume."""

import math

import pytest
import torch

from tabicl_linear.errors import ConfigError
from tabicl_linear.training.schedule import WarmupCosine


def make(total=100, lr=3e-5, **kwargs):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=lr)
    schedule = WarmupCosine(optimizer, **kwargs)
    schedule.plan(total)
    return optimizer, schedule


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


def test_a_state_moves_a_schedule_with_other_options_to_its_step():
    optimizer, schedule = make(total=100)
    rates(optimizer, schedule, 40)
    other_optimizer, other = make(total=60, lr=1e-3, floor=1e-5)
    expected = rates(*make(total=60, lr=1e-3, floor=1e-5), 45)[40:]
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


@pytest.mark.parametrize(
    "options", [{"floor": 1e-3}, {"floor": -1.0}, {"warmup": 1.5}, {"warmup": -0.1}, {"total": 0}]
)
def test_impossible_schedules_are_refused(options):
    with pytest.raises(ConfigError):
        make(**options)


@pytest.mark.parametrize(("total", "warmup"), [(1, 0.0), (1, 1.0), (3, 1.0), (2, 0.5)])
def test_short_runs_stay_within_bounds(total, warmup):
    assert all(2e-6 <= r <= 3e-5 for r in rates(*make(total=total, warmup=warmup), total))
