"""Compares training passes with and without torch.compile; run by test_dense.py.

In a process of its own, where annotations are not checked: tracing would follow the checks. Graphs
are traced as ever and then run as they are, so that no compiler is needed.
"""

import pickle
import sys
from functools import partial

import torch
from contract.variants import make, task
from tolerances import RMS, assert_close

from tabicl_linear.backends import dense

BATCHES = [task(30, num_context=17), task(41, num_context=9)]
PAIRS = [
    ("DeltaNet+conv", "causal"),
    ("GatedDeltaNet", "final_state"),
    ("GatedLinearAttention", "causal"),
    ("Mamba2", "causal"),
    ("Softmax", "final_state"),
]
graphs = []


def as_it_is(graph, example_inputs):
    graphs.append(graph)
    return graph


def trace():
    """Parts of blocks traced anew, in whole graphs."""
    torch.compiler.reset()
    graphs.clear()
    dense.fused.cache_clear()


def gradients(model, batch):
    model.zero_grad()
    logits = model(batch)
    logits.square().mean().backward()
    return [logits.detach(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)]


def check_outputs_and_gradients(mixer, readout):
    model = make(mixer, readout)
    expected = [gradients(model.place("torch"), batch) for batch in BATCHES]
    trace()
    model.place("torch", compile_dense=True)
    for batch, truths in zip(BATCHES, expected, strict=True):
        for actual, truth in zip(gradients(model, batch), truths, strict=True):
            assert_close(actual, truth, RMS[torch.float64], f"{mixer}, {readout}")
    # Context and queries apart; all blocks and numbers of rows together.
    assert 2 <= len(graphs) <= 4, (mixer, readout, len(graphs))


def check_only_where_gradients_are_wanted_and_never_stored():
    trace()
    model = make("DeltaNet", "causal").place("torch", compile_dense=True)
    copy = pickle.loads(pickle.dumps(model))
    with torch.no_grad():
        expected = model(BATCHES[0])
    assert not graphs
    assert_close(copy(BATCHES[0]), expected, RMS[torch.float64])
    assert graphs
    graphs.clear()
    torch.compiler.reset()
    model.place("torch")(BATCHES[0])
    assert not graphs


torch.compile = partial(torch.compile, fullgraph=True, backend=as_it_is)
for pair in PAIRS:
    check_outputs_and_gradients(*pair)
check_only_where_gradients_are_wanted_and_never_stored()
sys.stdout.write("all the same\n")
