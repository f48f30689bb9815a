"""A rule of somebody else, whose state is no matrix and of no type of the package.

In a process of its own: the checks of shapes while testing know the package's states alone.
"""

import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from contract.variants import make, task
from torch import Tensor, nn

from tabicl_linear import TabICLLinearClassifier
from tabicl_linear.analysis import matrices
from tabicl_linear.errors import DataError
from tabicl_linear.kernels.rule import UpdateRule
from tabicl_linear.kernels.streams import Streams
from tabicl_linear.mixers.base import SequenceMixer, head_dim


class Sums(NamedTuple):
    total: Tensor  # [b h v]
    count: int


class MeanRule(UpdateRule):
    """The mean of all values."""

    has_matrix_state = False

    def scan(self, x, state=None):
        v = x.v
        total, count = Sums(v.new_zeros(v.shape[0], *v.shape[2:]), 0) if state is None else state
        counts = torch.arange(count + 1, count + 1 + v.shape[1])[:, None, None]
        sums = total[:, None] + v.cumsum(1)
        return sums / counts, Sums(total + v.sum(1), count + v.shape[1])

    def fold(self, x, state=None):
        return self.scan(x, state)[1]

    def read(self, q, state):
        return (state.total / max(state.count, 1))[:, None].expand(-1, q.shape[1], -1, -1)

    def peek(self, x, state):
        return (state.total[:, None] + x.v) / (state.count + 1)


class Mean(SequenceMixer):
    def __init__(self, dim, num_heads):
        width = head_dim(dim, num_heads)
        super().__init__(MeanRule(), (num_heads, width))
        self.v = nn.Linear(dim, dim, bias=False)

    def project(self, x, positions, conv_inputs, *, independent):
        v = self.v(x).unflatten(-1, self.state_shape)
        return Streams(v, v, v), None

    def output(self, heads, streams, x):
        return heads.to(x.dtype).flatten(-2)


def it_is_fitted_read_and_extended(readout):
    model, data = make("Mean", readout, mixers={"Mean": Mean}), task()
    x, y, queries = data.x[:, :20], data.y[:, :20], data.x[:, 20:]
    state = model.fit(x, y)
    assert model.predict(state, queries).isfinite().all()
    assert matrices(model, state) == {}
    if readout == "causal":
        more = model.fit(x, y, state=state)
        assert more.layers[0].rule_state.count == 40
        assert not torch.equal(model.predict(more, queries), model.predict(state, queries))


def one_of_another_shape_is_refused():
    """Twin: what is read is compared with what the mixer says."""
    model, data = make("Mean", "causal", mixers={"Mean": Mean}), task()
    state = model.fit(data.x, data.y)
    narrow = Sums(state.layers[0].rule_state.total[..., :-1], 30)
    layers = (state.layers[0]._replace(rule_state=narrow), *state.layers[1:])
    with pytest.raises(DataError):
        model.predict(state._replace(layers=layers), data.x)


def a_classifier_predicts_by_it_and_says_that_it_cannot_be_saved():
    model, data = make("Mean", "causal", mixers={"Mean": Mean}).float(), task()
    x, y = data.x[0].numpy(), data.y[0].numpy()
    classifier = TabICLLinearClassifier(model, n_estimators=1).fit(x, y)
    assert classifier.predict_proba(x).shape == (30, 4)
    with pytest.raises(DataError, match=r"joblib\.dump"):
        classifier.save("/nowhere/state")


def test_it_is_as_good_as_those_of_the_package():
    done = subprocess.run(
        [sys.executable, "-m", "contract.test_own_state"],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


if __name__ == "__main__":
    with torch.no_grad():
        it_is_fitted_read_and_extended("causal")
        it_is_fitted_read_and_extended("final_state")
        one_of_another_shape_is_refused()
        a_classifier_predicts_by_it_and_says_that_it_cannot_be_saved()
