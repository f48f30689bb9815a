import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from tabicl_linear.priors.tabpfn_v1.causes import draw_causes
from tabicl_linear.priors.tabpfn_v1.hyperparameters import ACTIVATIONS, draw_network_parameters
from tabicl_linear.priors.tabpfn_v1.mlp import draw_networks
from tabicl_linear.priors.tabpfn_v1.nodes import draw_nodes

FUNCTIONS = {"tanh": torch.tanh, "identity": lambda x: x, "relu": torch.relu}


def draw(p, num_features, num_rows=40, *, shared=False, seed=0):
    return draw_networks(
        p,
        num_features,
        num_rows=num_rows,
        shared=shared,
        rng=np.random.default_rng(seed),
        generator=torch.Generator().manual_seed(seed),
    )


def fixed(p, **changes):
    count = len(p.num_layers)
    return p._replace(**{name: np.full(count, value) for name, value in changes.items()})


def one_network(p, num_features, num_rows, rng, generator):
    """One task as the authors build it: a module for each layer, all units evaluated."""
    hidden, is_causal = int(p.hidden_dim[0]), bool(p.is_causal[0])
    sizes = [hidden] * int(p.num_layers[0] - 1) + ([] if is_causal else [1])
    nodes = draw_nodes(rng, p, num_features)
    owner = np.zeros(int(p.num_causes[0]), dtype=int)
    x = draw_causes(p.mixed_causes, owner, num_rows=num_rows, rng=rng, generator=generator).T
    outputs = [x]
    fan_in = x.shape[1]
    for index, size in enumerate([hidden, *sizes]):
        linear = nn.Linear(fan_in, size)
        weight = torch.zeros(size, fan_in)
        if p.block_wise[0]:
            blocks = int(rng.integers(1, np.ceil(min(size, fan_in) ** 0.5), endpoint=True))
            h, w = size // blocks, fan_in // blocks
            std = p.init_std[0] / (blocks * h * w / (size * fan_in)) ** 0.5
            for k in range(blocks):
                block = torch.randn(h, w, generator=generator) * std
                weight[h * k : h * k + h, w * k : w * k + w] = block
        else:
            rate = p.dropout[0] if index else 0.0
            weight = torch.randn(size, fan_in, generator=generator) * p.init_std[0]
            weight /= 1 - rate**0.5
            weight *= torch.rand(size, fan_in, generator=generator) >= rate
        linear.weight.data = weight
        inner = FUNCTIONS[ACTIVATIONS[p.activation[0]]](outputs[-1]) if index else outputs[-1]
        out = linear(inner).detach()
        if index:
            noise_std = torch.tensor(float(p.noise_std[0]))
            if p.unit_noise[0]:
                noise_std = noise_std * torch.randn(size, generator=generator).abs()
            out = out + torch.randn(num_rows, size, generator=generator) * noise_std
        outputs.append(out)
        fan_in = size
    picked = [
        outputs[0 if layer < 0 else layer + 2][:, unit]
        for layer, unit in zip(nodes.layer[0], nodes.unit[0], strict=True)
    ]
    return torch.stack(picked)


def statistics(nodes):
    target, first, second = nodes[:, 0], nodes[:, 1], nodes[:, 2]
    return {
        "target scale": target.std(1).clamp(1e-9, 1e9).log(),
        "target mean": (target.mean(1) / target.std(1)).clamp(-20, 20),
        "column scale": first.std(1).clamp(1e-9, 1e9).log(),
        "target and column": _correlation(target, first),
        "two columns": _correlation(first, second),
        "smallest": (target.amin(1) - target.mean(1)) / target.std(1),
    }


def _correlation(a, b):
    a, b = a - a.mean(1, keepdim=True), b - b.mean(1, keepdim=True)
    return (a * b).sum(1).abs() / (a.norm(dim=1) * b.norm(dim=1) + 1e-30)


def test_batched_networks_have_the_law_of_networks_built_one_by_one():
    count, m = 1500, 3
    rng = np.random.default_rng(0)
    p = draw_network_parameters(rng, count, m)
    p = p._replace(hidden_dim=np.minimum(p.hidden_dim, 40))
    generator = torch.Generator().manual_seed(0)
    batched = statistics(draw(p, m))
    each = (type(p)(*(field[i : i + 1] for field in p)) for i in range(count))
    single = [one_network(q, m, 40, rng, generator) for q in each]
    literal = statistics(torch.stack(single))
    for name, values in batched.items():
        a, b = values[values.isfinite()], literal[name][literal[name].isfinite()]
        # 1 % of pairs of samples of one law are further apart than 0.06.
        assert stats.ks_2samp(a.numpy(), b.numpy()).statistic < 0.06, name


def linear_targets(shared, mixed=False):
    """Coefficients of noiseless linear networks, one row a task."""
    p = draw_network_parameters(np.random.default_rng(1), 1, 4)
    p = p._replace(**{name: np.repeat(field, 6) for name, field in p._asdict().items()})
    p = fixed(
        p, is_causal=False, num_causes=4, noise_std=0.0, activation=1, init_std=1.0, hidden_dim=9,
        mixed_causes=mixed, num_layers=3,
    )  # fmt: skip
    nodes = draw(p, 4, shared=shared).double()
    columns = torch.cat([nodes[:, 1:], torch.ones(6, 1, 40)], 1).transpose(1, 2)
    solution = torch.linalg.lstsq(columns, nodes[:, 0, :, None]).solution.squeeze(-1)
    assert torch.allclose(columns @ solution.unsqueeze(-1), nodes[:, 0, :, None], atol=1e-4)
    return solution[:, :4].sort(1).values, nodes


def test_shared_tasks_have_one_network_and_inputs_of_their_own():
    coefficients, nodes = linear_targets(shared=True)
    assert (coefficients - coefficients[0]).abs().max() < 1e-4
    assert (nodes[0, 1:] - nodes[1, 1:]).abs().min(1).values.max() > 0


def test_other_tasks_have_networks_of_their_own():
    coefficients, _ = linear_targets(shared=False)
    distance = torch.cdist(coefficients, coefficients) + torch.eye(6)
    assert distance.min() > 1e-2


def test_noiseless_linear_units_span_no_more_than_their_causes():
    p = fixed(
        draw_network_parameters(np.random.default_rng(2), 20, 8),
        is_causal=True, noise_std=0.0, activation=1, num_causes=3, init_std=0.3, hidden_dim=20,
    )  # fmt: skip
    nodes = draw(p, 8).double()
    centred = nodes - nodes.mean(2, keepdim=True)
    values = torch.linalg.svdvals(centred)
    assert (values[:, 3] < 1e-5 * values[:, 0]).all()
    assert (values[:, 2] > 0).all()


def test_a_column_that_is_the_target_equals_it():
    p = fixed(
        draw_network_parameters(np.random.default_rng(3), 3000, 4),
        is_causal=True, in_clique=True, y_is_effect=True, num_layers=2, hidden_dim=9, noise_std=1.0,
    )  # fmt: skip
    nodes = draw(p, 4)
    equal = (nodes[:, 1:] == nodes[:, :1]).all(2).sum(1)
    # 5 starts of a window of 5 in 9 units; the last one holds the last unit, 4 times of 5 in a
    # column.
    assert set(equal.tolist()) == {0, 1}
    assert equal.float().mean().item() == pytest.approx(0.2 * 0.8, abs=0.03)
