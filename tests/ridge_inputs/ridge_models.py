"""Models with ridge inputs, and the closed form that they start from."""

import math
from dataclasses import replace
from itertools import product

import pytest
import torch
import torch.nn.functional as F
from scipy.optimize import minimize
from tolerances import RMS

from tabicl_linear.architecture_options import Cells
from tabicl_linear.embedding.statistics import context_statistics, standardise
from tabicl_linear.mixers.delta import DeltaNet
from tabicl_linear.model import Architecture, InContextModel
from tabicl_linear.readouts import FinalState
from tabicl_linear.ridge_inputs import RidgeOptions
from tabicl_linear.ridge_inputs.class_map import BIAS_PENALTY, SHARE_PENALTY
from tabicl_linear.ridge_inputs.feature_sets import of_set
from tabicl_linear.ridge_inputs.predictions import ABSENT_LOGIT
from tabicl_linear.ridge_inputs.solve_rows import solve_rows
from tabicl_linear.strategies.combined import Combined

EXACT = RMS[torch.float64]
MOVES = 1e-6
CELLS = {
    "cells": Cells(offsets=(0, 1, 3), label_in_every_cell=True, head_reads="mean"),
    "mask_absent_classes": True,
}
OPTIONS = RidgeOptions(num_tanh=8, num_cosine=8, num_trees=3, tree_depth=2)
SMALL = Architecture(
    dim=32,
    num_heads=2,
    depth=2,
    num_features=6,
    num_classes=4,
    hidden_dim=8,
    decoder_dim=8,
    ridge_inputs=OPTIONS,
)
axes = pytest.mark.parametrize("axis", [{}, {"cells": Cells()}, CELLS], ids=["row", "pair", "cell"])


def untrained(mixer=DeltaNet, readout=FinalState, strategy=Combined, ridge=OPTIONS, **changes):
    """A float64 model with the weights that training starts from."""
    architecture = replace(SMALL, ridge_inputs=ridge, **changes)
    torch.manual_seed(0)
    return InContextModel.from_parts(
        mixer, readout, strategy=strategy(), architecture=architecture
    ).double()


def noisy(*args, **changes):
    """A model all of whose parameters matter."""
    return with_noise_(untrained(*args, **changes))


def with_noise_(model):
    """The model, all of whose parameters matter now."""
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn_like(parameter)
            parameter.copy_(0.5 + 0.1 * noise if parameter.ndim == 1 else 0.4 * noise)
    return model


def fitted(model, batch, **options):
    c = batch.num_context
    x, y = batch.x[:, :c], batch.y[:, :c]
    state = model.fit(x, y, categorical=batch.categorical, **options)
    return state, batch.x[:, c:]


def read_context(model, batch, rows_per_chunk=None):
    """Predictions of the context rows."""
    c = batch.num_context
    x, y = batch.x[:, :c], batch.y[:, :c]
    statistics = context_statistics(x, y, batch.categorical, num_features=None)
    return model.ridge.open(x, y, statistics, rows_per_chunk).read(x, y)[0]


def closed_form(model, batch) -> torch.Tensor:
    """Logits of the closed form, task by task and set by set, without the modules that make them.

    The penalty is the only one of the options.
    """
    c, features = batch.num_context, model.ridge.features
    (penalty,) = model.ridge.options.penalties
    logits = []
    for x, y, categorical in zip(batch.x, batch.y[:, :c], batch.categorical, strict=True):
        statistics = context_statistics(x[None, :c], y[None], categorical[None], num_features=None)
        z = standardise(x[None], statistics)
        columns, rows = features.tree_questions(x.shape[1], c)
        f = features(
            z,
            thresholds=between_values(z[0, :c], columns, rows, categorical)[None],
            categorical=categorical[None],
            num_varying=torch.tensor([(x[:c] != x[:1]).any(0).sum()]),
        )
        r = F.one_hot(y, 4).double()
        of_context, of_queries = [], []
        for kinds in features.sets(x.shape[1]):
            mine = of_set(f, kinds)[0]
            solved = solve_rows(f[:, :c], r[None], [kinds], (penalty,))
            (regression,) = solved.choose(torch.zeros(1, 1, dtype=torch.long))
            of_context.append(solved.left_out[0, 0, 0])
            centred = (mine[c:] - mine[:c].mean(0)) * regression.scale[0]
            of_queries.append(r.mean(0) + centred @ regression.weights[0, 0])
        present = r.sum(0) > 0
        mixtures = [m for m in product([0, 0.25, 0.5, 0.75, 1], repeat=3) if sum(m) == 1]
        wrong = [(mixed(of_context, m) - r).square().sum().item() for m in mixtures]
        mixture = mixtures[wrong.index(min(wrong))]
        shares = mixed(of_context, mixture)
        grid = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0)
        names = torch.cumsum(present, 0)[y] - 1  # of the classes that there are
        losses = [F.cross_entropy(c * shares[:, present], names).item() for c in grid]
        confidence = grid[losses.index(min(losses))]
        scores = confidence * mixed(of_queries, mixture)
        if model.ridge.options.calibration == "logistic":
            left_out, new = (mixed(each, mixture)[:, present] for each in (of_context, of_queries))
            scores[:, present] = by_logistic_regression(left_out, names, confidence, new)
        logits.append(scores.masked_fill(~present, ABSENT_LOGIT))
    return torch.stack(logits)


def between_values(z, columns, rows, categorical) -> torch.Tensor:
    """Thresholds of trees, question by question: below a value, 0.382 of the way to the next."""
    limits = []
    for column, row in zip(columns.tolist(), rows.tolist(), strict=True):
        limit = z[row, column].item()
        smaller = [v for v in z[:, column].tolist() if v < limit - 1e-6 * (1 + abs(limit))]
        if not categorical[column]:
            limit = limit - 0.382 * (limit - max(smaller)) if smaller else -math.inf
        limits.append(limit)
    return torch.tensor(limits, dtype=z.dtype)


def by_logistic_regression(shares, y, confidence, queries) -> torch.Tensor:
    """Logits of queries by a general minimiser."""
    result = logistic_regression(shares, y, confidence)
    return queries @ result[:, :-1].T + result[:, -1]


def logistic_regression(shares, y, confidence) -> torch.Tensor:
    """Factors of the shares and, in the last column, constants."""
    classes = shares.shape[1]
    start = confidence * torch.eye(classes, classes + 1).double()
    penalty = torch.tensor([SHARE_PENALTY] * classes + [BIAS_PENALTY]).double()

    def loss(values):
        result = torch.from_numpy(values).view(classes, -1).requires_grad_(True)
        logits = shares @ result[:, :-1].T + result[:, -1]
        whole = F.cross_entropy(logits, y, reduction="sum")
        whole = whole + (penalty * (result - start) ** 2).sum() / 2
        whole.backward()
        return whole.item(), result.grad.flatten().numpy()

    options = {"maxiter": 2000, "ftol": 1e-15, "gtol": 1e-9}
    best = minimize(loss, start.flatten().numpy(), jac=True, method="L-BFGS-B", options=options)
    return torch.from_numpy(best.x).view(classes, -1)


def mixed(shares, mixture) -> torch.Tensor:
    """The sum of the shares of all sets by their part in the mixture."""
    return sum(part * share for part, share in zip(mixture, shares, strict=True))
