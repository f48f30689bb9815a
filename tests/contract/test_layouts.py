"""States lie in memory as files give them back, so that saving one cannot change a bit."""

from dataclasses import replace

import pytest
import torch
from contract.variants import FEW, READOUTS, SMALL, across_axes, make, shared, task, varied
from ridge_inputs.ridge_models import untrained
from sklearn.datasets import load_iris

from tabicl_linear import RandomFeatureRidge
from tabicl_linear.analysis import OracleOptions, optimise_states
from tabicl_linear.estimator.learners.closed_form import ClosedForm
from tabicl_linear.kernels.state import row_major, tensors
from tabicl_linear.mixers.delta import DeltaNet
from tabicl_linear.model import InContextModel
from tabicl_linear.readouts import FinalState
from tabicl_linear.ridge_inputs import RidgeOptions
from tabicl_linear.strategies.combined import Combined

ROWS = [*((*pair, "row") for pair in varied()), *across_axes()]


def leaves(tree, name="state"):
    """All tensors of a state with their names."""
    if isinstance(tree, torch.Tensor):
        yield name, tree
    elif isinstance(tree, tuple):
        names = tree._fields if type(tree) is not tuple else map(str, range(len(tree)))
        for part, leaf in zip(names, tree, strict=True):
            yield from leaves(leaf, f"{name}.{part}")


def assert_row_major(state):
    """Every tensor is row by row, even where a dimension has one place, and owns its start."""
    odd = [
        (name, tuple(tensor.shape), tensor.stride(), tensor.storage_offset())
        for name, tensor in leaves(state)
        if tensor.stride() != torch.empty(tensor.shape).stride() or tensor.storage_offset()
    ]
    assert not odd


def fitted(model, count, batch=2, **options):
    few = task(count + 4, num_context=count, batch=batch)
    x, y = few.x[:, :count], few.y[:, :count]
    return model.fit(x, y, categorical=few.categorical, **options), few


@pytest.mark.parametrize(("mixer", "readout", "axis"), ROWS)
def test_fitted_states_are_row_major(mixer, readout, axis):
    model = shared(mixer, readout, axis=axis)
    with torch.no_grad():
        for batch in (1, 2):
            assert_row_major(fitted(model, 20, batch)[0])


# More rows run no other line or branch of the package.
@pytest.mark.parametrize("rows", [6, 20, 80])
@pytest.mark.parametrize("calibration", ["confidence", "logistic"])
@pytest.mark.parametrize("readout", ["causal", "final_state"])
@pytest.mark.parametrize("form", ["leave_one_out", "earlier_rows"])
def test_so_are_those_of_all_ridge_recipes(form, calibration, readout, rows):
    """From the rows themselves or from sums over them, before and after the first solution."""
    options = replace(FEW, form=form, calibration=calibration)
    model = untrained(readout=READOUTS[readout], ridge=options)
    for chunk in (None, 7):
        assert_row_major(fitted(model, rows, 1, rows_per_chunk=chunk)[0])


@pytest.mark.parametrize("mixer", ["DeltaNet", "Mamba2", "DeltaNet+conv", "Softmax"])
@pytest.mark.parametrize("axis", ["row", "ridge_earlier_row", "ridge_earlier_logistic"])
def test_so_are_extended_and_optimised_ones(mixer, axis):
    model = make(mixer, "causal", axis=axis)
    state, batch = fitted(model, 20)
    more = model.fit(batch.x[:, 20:], batch.y[:, 20:], state=state)
    assert_row_major(more)
    if mixer != "Softmax":
        x, y = batch.x[:, :20], batch.y[:, :20]
        assert_row_major(optimise_states(model, state, x, y, OracleOptions(max_epochs=1)))


def test_so_are_those_of_the_closed_form_and_of_the_default_options():
    for options in (RidgeOptions(), FEW):
        learner = ClosedForm(options, max_columns=6, num_classes=4)
        batch = task(60, num_context=60)
        state = learner.fit(batch.x, batch.y, categorical=batch.categorical, rows_per_chunk=32)
        assert_row_major(state)
    architecture = replace(SMALL, ridge_inputs=RidgeOptions())
    model = InContextModel.from_parts(DeltaNet, FinalState, Combined(), architecture)
    assert_row_major(fitted(model, 40)[0])


def test_a_view_becomes_a_tensor_of_its_own_and_others_stay():
    whole = torch.arange(24.0).view(2, 3, 4)
    transposed, later, expanded = whole.mT, whole[1], whole[:1, :1, :1].expand(2, 3, 4)
    one = torch.empty_strided((1, 5, 1), (7, 1, 9)).zero_()
    for view in (transposed, later, expanded, one):
        copy = row_major((view,))[0]
        assert_row_major(copy)
        assert torch.equal(copy, view)
        assert copy.untyped_storage().nbytes() == view.numel() * 4
    assert row_major((whole, None, 3))[0] is whole
    assert row_major(torch.empty(0, 3)).shape == (0, 3)
    needs = torch.ones(2, 3, requires_grad=True)
    row_major(needs.mT).sum().backward()
    assert needs.grad is not None


def test_tensors_of_a_file_start_where_others_do(tmp_path):
    """Some processors sum in another order where memory starts elsewhere."""
    result = RandomFeatureRidge(n_estimators=1).fit(*load_iris(return_X_y=True))
    result.save(tmp_path / "state")
    again = RandomFeatureRidge.load(tmp_path / "state").ensemble_.states
    assert_row_major(again)
    assert {tensor.data_ptr() % 64 for tensor in tensors(again)} == {0}
