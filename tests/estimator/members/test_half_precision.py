"""States that no row will be added to are kept in half precision, and say the same."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest
import torch
from contract.variants import make
from sklearn.datasets import load_wine
from sklearn.model_selection import train_test_split
from tolerances import AUTOCAST, RMS

from tabicl_linear import TabICLLinearClassifier
from tabicl_linear.estimator.members.half_precision import HalfMatrix, halved, in_full
from tabicl_linear.kernels.state import MatrixState, num_bytes, tensors

HALF = 2.0**-11
"""Largest error of rounding to float16, relative to the value."""
SMALLEST = 2.0**-25
"""Largest error of values that float16 has fewer digits for, relative to the largest."""


class Around(NamedTuple):
    """Something that holds states, as learners have them."""

    states: tuple[MatrixState, ...]
    counts: torch.Tensor
    rows: int


def wine():
    """As many columns as the models of the contract take."""
    x, y = load_wine(return_X_y=True)
    return x[:, :6], y


def matrices(scale: float) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return scale * torch.randn(2, 3, 8, 8, generator=generator).pow(3)


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
def test_values_keep_eleven_bits_whatever_their_size(scale):
    S = matrices(scale)
    largest = S.abs().amax((-2, -1), keepdim=True)
    after = in_full(halved(MatrixState(S)))
    assert isinstance(after, MatrixState)
    assert after.S.dtype == torch.float32
    # One rounding each of the quotient and of the product come on top.
    error = (after.S - S).abs()
    assert bool((error <= 1.001 * (HALF * S.abs() + SMALLEST * largest)).all())
    assert bool((error > 0).any())


def test_a_matrix_of_zeros_stays_zero():
    zeros = MatrixState(torch.zeros(1, 2, 4, 4))
    assert torch.equal(in_full(halved(zeros)).S, zeros.S)


def test_only_matrices_of_float32_are_rounded():
    S, counts = matrices(1.0), torch.rand(4)
    tree = Around((MatrixState(S), MatrixState(S.double())), counts, 7)
    result = halved(tree)
    assert isinstance(result, Around)
    assert [type(state) for state in result.states] == [HalfMatrix, MatrixState]
    assert result.states[1].S.dtype == torch.float64
    assert result.counts is counts
    assert result.rows == 7
    again = in_full(result)
    assert [type(state) for state in again.states] == [MatrixState, MatrixState]
    assert in_full(again) is not again
    assert all(map(torch.equal, tensors(in_full(again)), tensors(again)))


@pytest.mark.parametrize("mixer", ["LinearAttention", "DeltaNet"])
def test_a_classifier_predicts_what_its_whole_states_do(mixer, monkeypatch):
    train, test, labels, _ = train_test_split(*wine(), random_state=0)
    model = make(mixer, "final_state").float()
    options = {"n_estimators": 2, "device": "cpu"}
    half = TabICLLinearClassifier(model, **options).fit(train, labels)
    monkeypatch.setattr("tabicl_linear.estimator.members.half_precision.halved", lambda tree: tree)
    whole = TabICLLinearClassifier(model, **options).fit(train, labels)
    expected = whole.predict_proba(test)
    np.testing.assert_allclose(half.predict_proba(test), expected, atol=AUTOCAST[torch.float16])
    assert (half.predict_proba(test) != expected).any()
    of_matrices = sum(
        num_bytes(layer.rule_state) for state in whole.ensemble_.states for layer in state.layers
    )
    saved = whole.state_nbytes_ - half.state_nbytes_
    assert 0.45 * of_matrices < saved < 0.5 * of_matrices


def test_states_that_grow_are_kept_whole():
    train, labels = wine()
    classifier = TabICLLinearClassifier(
        make("DeltaNet", "causal").float(), n_estimators=1, device="cpu"
    ).fit(train, labels)
    (state,) = classifier.ensemble_.states
    assert all(type(layer.rule_state) is MatrixState for layer in state.layers)
    assert replace(classifier.ensemble_, states=()).in_full(torch.device("cpu")) == ()


@pytest.mark.parametrize("dtype", [None, torch.float64])
def test_they_are_saved_and_loaded(checkpoint, tmp_path, dtype):
    train, labels = wine()
    before = TabICLLinearClassifier(checkpoint, n_estimators=2, device="cpu").fit(train, labels)
    before.save(tmp_path / "wine.state")
    after = TabICLLinearClassifier.load(tmp_path / "wine.state", dtype=dtype)
    if dtype is None:
        assert after.state_nbytes_ == before.state_nbytes_
    tolerance = 0 if dtype is None else RMS[torch.float32]
    np.testing.assert_allclose(after.predict_proba(train), before.predict_proba(train), tolerance)
