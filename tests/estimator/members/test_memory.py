"""Batch sizes from free memory, and what happens when memory runs out."""

import numpy as np
import pytest
import torch

from tabicl_linear import RandomFeatureRidge
from tabicl_linear.errors import ConfigError, DataError
from tabicl_linear.estimator.learners import closed_form
from tabicl_linear.estimator.learners.closed_form import ClosedForm
from tabicl_linear.estimator.members import memory

CPU = torch.device("cpu")
TABLE = np.random.default_rng(0).normal(size=(64, 2))
LABELS = np.array([0, 1] * 32)


@pytest.mark.parametrize(
    ("free", "rows"),
    [(2**40, 16384), (None, 16384), (2**32, 16384), (2**32 - 1, 8192), (2**29, 2048), (0, 256)],
)
def test_rows_are_at_most_half_of_the_memory(monkeypatch, free, rows):
    monkeypatch.setattr(memory, "free_bytes", lambda device: free)
    assert memory.rows_that_fit(1_000_000, CPU) == rows
    for wanted in (0, 1, rows, rows + 1):
        assert memory.rows_that_fit(wanted, CPU) == min(wanted, rows)


def test_a_fit_for_which_too_little_is_free_is_refused_before_it_begins(monkeypatch):
    """Also a small one, whose sizes in GiB would be zeros."""
    monkeypatch.setattr(closed_form, "free_bytes", lambda device: 2**19)
    said = r"64 rows take at least 0\.6 MiB, and 0\.5 MiB are free: give fewer .*, or close other"
    with pytest.raises(ConfigError, match=said):
        RandomFeatureRidge().fit(TABLE, LABELS)


ERRORS = [
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB"),
    RuntimeError("[enforce fail at alloc_cpu.cpp:124] DefaultCPUAllocator: can't allocate memory"),
    MemoryError(),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("step", ["fit", "predict"])
def test_memory_that_runs_out_is_tried_once_smaller(monkeypatch, step, error):
    classifier = RandomFeatureRidge(n_estimators=2, rows_per_batch=64, trees=False).fit(
        TABLE, LABELS
    )
    expected = classifier.predict_proba(TABLE)
    calls = []
    real = getattr(ClosedForm, step)

    def scarce(self, *arguments, **options):
        calls.append(len(calls))
        if len(calls) == 1:
            raise error
        return real(self, *arguments, **options)

    monkeypatch.setattr(ClosedForm, step, scarce)
    if step == "fit":
        classifier.fit(TABLE, LABELS)
    np.testing.assert_allclose(classifier.predict_proba(TABLE), expected, atol=1e-6)
    assert len(calls) > 2


def test_memory_that_runs_out_twice_is_one_line(monkeypatch):
    classifier = RandomFeatureRidge(n_estimators=2, rows_per_batch=64, trees=False).fit(
        TABLE, LABELS
    )
    before = dict(vars(classifier))

    def full(*_, **__):
        raise MemoryError

    monkeypatch.setattr(ClosedForm, "fit", full)
    said = "while fitting 64 rows x 2 columns with rows_per_batch=64, and again with 8: give fewer"
    with pytest.raises(DataError, match=said) as refusal:
        classifier.fit(TABLE, LABELS)
    assert "\n" not in str(refusal.value)
    assert "MiB are free" in str(refusal.value)
    assert dict(vars(classifier)) == before


def test_other_errors_are_not_tried_again(monkeypatch):
    calls = []

    def broken(*_, **__):
        calls.append(1)
        raise RuntimeError("shapes differ")

    monkeypatch.setattr(ClosedForm, "fit", broken)
    with pytest.raises(RuntimeError, match="shapes differ"):
        RandomFeatureRidge(n_estimators=2, trees=False).fit(TABLE, LABELS)
    assert len(calls) == 1
