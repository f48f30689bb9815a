"""Memory and passes of long tables and of many queries, in processes of their own."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tabicl_linear import TabICLLinearClassifier
from tabicl_linear.estimator.members.memory import MAX_ROWS
from tabicl_linear.kernels.state import tensors
from tabicl_linear.model import InContextModel

MEASURE = """
import sys
import numpy as np, torch
sys.path.insert(0, {tests!r})
import tiny_model
from tabicl_linear import TabICLLinearClassifier, recipe

def status(name):
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) * 1024

torch.set_num_threads(1)
readout = {{"class_path": "tabicl_linear.readouts.Causal", "init_args": {{}}}}
classifier = TabICLLinearClassifier(
    recipe.build(tiny_model.RECIPE | {{"readout": readout}}), n_estimators=2
)
table = np.random.default_rng(0).standard_normal(({rows}, 20), dtype=np.float32)
labels = (table[:, 0] > 0).astype(int)
classifier.fit(table[:20_000], labels[:20_000])
before = status("VmRSS")
open("/proc/self/clear_refs", "w").write("5")
classifier.fit(table, labels)
print((status("VmHWM") - before) / table.nbytes)
"""


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="peak memory needs Linux")
def test_a_causal_model_takes_a_few_copies_of_the_table_and_no_more():
    """The matrix of the table and the rows of a member in its order; 2.2 are measured."""
    code = MEASURE.format(tests=str(Path(__file__).parents[1]), rows=80_000)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 3.1


def test_few_context_rows_do_not_cut_the_queries_into_crumbs(checkpoint, monkeypatch):
    table = np.array([[-1.0, 0.3], [1.0, 0.1], [-2.0, 0.2], [2.0, 0.5]])
    classifier = TabICLLinearClassifier(checkpoint, n_estimators=4).fit(table, [0, 1, 0, 1])
    expected = classifier.predict_proba(np.tile(table, (8, 1)))
    calls, predict = [], InContextModel.predict

    def counted(self, state, x, **options):
        calls.append(x.shape[:2].numel())
        return predict(self, state, x, **options)

    monkeypatch.setattr(InContextModel, "predict", counted)
    actual = classifier.predict_proba(np.tile(table, (2500, 1)))
    assert len(calls) == 3  # 4 members x 10,000 rows, 16,384 at a time
    assert max(calls) <= MAX_ROWS
    np.testing.assert_allclose(actual[:32], expected, atol=1e-6)


def test_states_travel_where_the_model_has_gone_already(checkpoint):
    """A classifier fitted on one device and moved by a prediction on another is pickled whole."""
    classifier = TabICLLinearClassifier(checkpoint, n_estimators=1)
    fitted = classifier.fit([[-1.0], [1.0]], [0, 1]).ensemble_
    meta = torch.device("meta")
    moved = replace(fitted, model=fitted.on(meta).model).on(meta)
    assert {tensor.device for tensor in tensors(moved.states)} == {torch.device("meta")}
    assert {tensor.device for tensor in tensors(fitted.states)} == {torch.device("cpu")}
    assert next(fitted.model.parameters()).device == torch.device("cpu")
