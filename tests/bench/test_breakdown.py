"""Where the profiler's self times go."""

import pytest
import torch

from tabicl_linear.bench.breakdown import GROUPS, break_down
from tabicl_linear.bench.train import draw_batch, make_step
from tabicl_linear.config import build_task

CPU = torch.device("cpu")
SMALL = [
    *(f"model.architecture.{name}=32" for name in ("dim", "hidden_dim", "decoder_dim")),
    *("model.architecture.depth=2", "data.shapes.batch_size=2", "data.shapes.num_rows=64"),
    "data.shapes.min_context=16",
]


@pytest.fixture(scope="module")
def where(request):
    config = [request.config.rootpath / "configs" / "deltanet.yaml"]
    task = build_task(*config, overrides=SMALL)
    task.model.place("torch")
    batch = draw_batch(config, SMALL, CPU)
    step = make_step(task, batch, "float32", optimizer=task.optimizer(task.parameters()))
    step()
    result = break_down(step, task.model, CPU, steps=2)
    step()  # the model is as it was
    assert "fit" not in vars(task.model.backbone)
    return result


def test_groups_add_up_to_the_step(where):
    assert tuple(where.seconds) == GROUPS
    assert sum(where.seconds.values()) == pytest.approx(where.total)
    assert all(seconds > 0 for seconds in where.seconds.values())


def test_operators_are_where_they_belong(where):
    groups = {}
    for group, name, _, _ in where.operators:
        groups.setdefault(name, set()).add(group)
    assert groups["aten::mm"] == {"dense matmuls"}
    assert groups["aten::linalg_solve_triangular"] == {"update rule"}
    # Only in the backward pass: it has come to the group of its forward operator.
    assert groups["aten::silu_backward"] == {"norms, activations, sums"}
    assert groups["aten::_log_softmax"] == {"loss"}
    assert groups["aten::addcdiv_"] == {"optimiser"}


def test_the_backward_pass_of_the_update_rule_counts_there(where):
    batched = {g: n for g, name, _, n in where.operators if name == "aten::bmm"}
    assert set(batched) == {"update rule"}
    solves = sum(n for _, name, _, n in where.operators if name == "aten::linalg_solve_triangular")
    assert solves > 2  # one a layer forward, more backward
