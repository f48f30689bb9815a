"""States of models with ridge inputs: what they weigh, and who may read them."""

import copy
from dataclasses import replace

import pytest
import torch
from contract.variants import task
from ridge_inputs.ridge_models import SMALL, axes, fitted, noisy, untrained
from tolerances import CONTRACT, assert_close

from tabicl_linear.backends import placement
from tabicl_linear.errors import ConfigError, DataError, UnsupportedReadout
from tabicl_linear.kernels.cholesky import shifted_solutions
from tabicl_linear.kernels.chosen import using
from tabicl_linear.kernels.state import map_tensors, num_bytes, tensors
from tabicl_linear.kernels.triangular import squared_lengths
from tabicl_linear.mixers.delta import DeltaNet
from tabicl_linear.model import InContextModel
from tabicl_linear.readouts import Causal, FinalState
from tabicl_linear.ridge_inputs import RidgeOptions
from tabicl_linear.strategies.combined import Combined
from tabicl_linear.strategies.interleaved import Interleaved


@axes
def test_a_state_does_not_grow_with_rows(axis):
    model = untrained(**axis)
    sizes = {num_bytes(fitted(model, task(c + 5, num_context=c))[0]) for c in (20, 90, 200)}
    categories = {num_bytes(fitted(model, task(c + 5, num_context=c))[0].ridge) for c in (20, 200)}
    assert len(sizes) == len(categories) == 1


def test_the_state_of_the_defaults_at_20_columns():
    """Mostly the weights of three sets of 696 features for ten classes in float64."""
    architecture = replace(
        SMALL, num_features=20, num_classes=10, ridge_inputs=RidgeOptions(), depth=1
    )
    model = InContextModel.from_parts(
        DeltaNet, FinalState, strategy=Combined(), architecture=architecture
    )
    state = model.fit(torch.randn(1, 600, 20), torch.arange(600)[None] % 10)
    features = 20 * 6 + 96 + 96 + 24 * 2**4
    of_float32 = 4 * 24 * 4  # thresholds
    # Weights and offsets of the sets; then the prior, errors, mixture, confidence and class map.
    of_float64 = 8 * (10 * 3 * features + 3 * 10 + 10 + 3 + 3 + 1 + 10 * 11)
    assert num_bytes(state.ridge) == of_float32 + of_float64 == 168_680


def test_a_moved_model_predicts_the_same_again():
    model, batch = noisy(), task()
    logits = model.predict(*fitted(model, batch))
    again = copy.deepcopy(model).float().double()
    assert_close(again.predict(*fitted(again, batch)), logits, 1e-4)
    questions = model.ridge.features.tree_questions(5, 20)
    for mine, its in zip(again.ridge.features.tree_questions(5, 20), questions, strict=True):
        assert torch.equal(mine, its)


def test_states_of_models_with_and_without_are_not_exchanged():
    batch, model, plain = task(), untrained(), untrained(ridge=None)
    for one, other in ((model, plain), (plain, model)):
        state, queries = fitted(one, batch)
        with pytest.raises(DataError, match="not one of this model"):
            other.predict(state, queries)


def test_a_fit_computes_all_leverages_by_the_choice_of_the_model(monkeypatch):
    model = untrained()
    rows = []

    def counted(factors, right=None):
        rows.append(factors.shape[-1])
        return squared_lengths(factors, right)

    monkeypatch.setattr(placement, "_choose", lambda *_: {squared_lengths: counted})
    model.place("torch")
    context = task(205, num_context=200)
    fitted(model, context, rows_per_chunk=50)
    assert rows

    def refused(factors, right=None):
        raise AssertionError("outside the choice")

    with using({squared_lengths: refused}):
        fitted(model, context, rows_per_chunk=50)


@pytest.mark.parametrize("strategy", [Combined, Interleaved])
@pytest.mark.parametrize(
    ("num_context", "function"), [(20, shifted_solutions), (200, squared_lengths)]
)
def test_training_solves_by_the_choice_of_the_model(strategy, num_context, function, monkeypatch):
    """Long contexts are solved by sums over features, short ones by products of rows."""
    model = untrained(strategy=strategy)
    sizes = []

    def counted(matrices, *others):
        sizes.append(matrices.shape[-1])
        return function(matrices, *others)

    def refused(*_):
        raise AssertionError("outside the choice, or for contexts of another length")

    neither = {shifted_solutions: refused, squared_lengths: refused}
    monkeypatch.setattr(placement, "_choose", lambda *_: {**neither, function: counted})
    model.place("torch")
    with using(neither):
        model.train_pass(task(num_context + 5, num_context=num_context))
    assert sizes
    assert all((size == num_context) == (num_context == 20) for size in sizes)


def test_predicting_changes_no_state():
    model, batch = noisy(), task()
    state, queries = fitted(model, batch)
    before = map_tensors(torch.clone, state)
    first = model.predict(state, queries)
    fitted(model, task(seed=5))
    assert torch.equal(model.predict(state, queries), first)
    assert all(map(torch.equal, tensors(state), tensors(before)))


@pytest.mark.parametrize("strategy", [Combined, Interleaved])
def test_causal_readouts_read_too_but_are_not_extended(strategy):
    model, batch = noisy(readout=Causal, strategy=strategy), task()
    assert not model.is_causal
    state, queries = fitted(model, batch)
    assert_close(model(batch), model.predict(state, queries), CONTRACT)
    with pytest.raises(UnsupportedReadout, match=r"form: earlier_rows\."):
        model.fit(queries, batch.y[:, 20:], state=state)


def test_multi_target_training_would_show_rows_their_labels():
    with pytest.raises(ConfigError, match=r"set ridge_inputs\.form to earlier_rows") as refusal:
        untrained(readout=Causal, strategy=lambda: Interleaved("multi"))
    assert "\n" not in str(refusal.value)
