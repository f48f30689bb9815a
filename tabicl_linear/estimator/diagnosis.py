"""Measures a classifier's states, and how much its predictions depend on the order of rows.

The measures are those of `tabicl_linear.analysis`, taken for every member of an ensemble.
"""

from collections.abc import Iterator
from dataclasses import replace

import pandas as pd
import torch

from tabicl_linear.errors import ConfigError, DataError, counted
from tabicl_linear.estimator.learners.blocks import ContextBlocks
from tabicl_linear.estimator.learners.many_classes import Problem, problems
from tabicl_linear.estimator.members.ensemble import Encoded, FittedEnsemble, as_seen
from tabicl_linear.estimator.notices import progress_bar
from tabicl_linear.model import InContextModel, InContextState
from tabicl_linear.types import Bool, Float, Int, Tensor

MAX_QUERIES = 200
"""Maximum number of rows to predict from the others in several orders; at most a fifth of all."""
MIN_ROWS = 10
KEY = ["member", "digit", "layer", "head", "measure"]


def diagnosis(
    ensemble: FittedEnsemble, rows: Encoded, *, row_orders: int, progress: bool
) -> pd.DataFrame:
    """Measure every member; see `TabICLLinearClassifier.diagnose` for the table and the errors.

    The members are those of a model, on the device to compute on; they read `rows` again.
    """
    if isinstance(ensemble.model, ContextBlocks):
        raise ConfigError(
            f"The table was read in {ensemble.model.num_blocks} blocks with states of their own, "
            "which diagnose does not look into: fit with long_context='full'."
        )
    num_rows = len(rows.matrix)
    if num_rows < MIN_ROWS:
        raise DataError(
            f"{counted(num_rows, 'row')}: give at least {MIN_ROWS} to look into states."
        )
    if row_orders < 2:
        raise ConfigError(f"row_orders={row_orders}: give at least 2 orders to compare.")
    tables, members_before = list[pd.DataFrame](), 0
    readable = replace(ensemble, states=ensemble.in_full(ensemble.model.device))
    with progress_bar("diagnose", len(ensemble.views) * num_rows, progress) as bar:
        for views, state in readable.batches():
            x, y = as_seen(ensemble, views, rows)
            mask = rows.are_categorical(views).to(x.device)
            for digit, problem in enumerate(problems(ensemble.model, state, y), start=1):
                for part in _of_problem(problem, x, mask, row_orders):
                    tables.append(part.assign(member=part["task"] + members_before, digit=digit))
            members_before += len(views)
            bar.update(len(views) * num_rows)
    table = pd.concat(tables).reindex(columns=[*KEY, "value"])
    table = table.astype({"layer": "Int64", "head": "Int64"})
    return table.sort_values(KEY, ignore_index=True)


def _of_problem(
    problem: Problem,
    x: Float[Tensor, "b c m"],
    categorical: Bool[Tensor, "b m"],
    row_orders: int,
) -> Iterator[pd.DataFrame]:
    """All measures of a batch of members; the column `task` counts the members from 1."""
    model = problem.learner
    yield from _of_states(model, problem.state, len(x))
    for task in range(len(x)):
        one = slice(task, task + 1)
        rows = x[one], problem.y[one], categorical[one]
        yield from (part.assign(task=task + 1) for part in _of_reading(model, *rows))
        yield _of_orders(model, *rows, row_orders).assign(task=task + 1)


def _of_states(
    model: InContextModel, state: InContextState, num_tasks: int
) -> Iterator[pd.DataFrame]:
    """Norms and ranks of the fitted states, means over cells; nothing if they are no matrices."""
    from tabicl_linear.analysis.states import matrices, state_norms

    if states := matrices(model, state):
        table = state_norms(states, num_tasks=num_tasks).rename(columns={"frobenius": "norm"})
        means = table.groupby(["task", "layer", "head"])[["norm", "effective_rank"]].mean()
        yield means.rename_axis("measure", axis=1).stack().rename("value").reset_index()


def _of_reading(
    model: InContextModel,
    x: Float[Tensor, "1 c m"],
    y: Int[Tensor, "1 c"],
    categorical: Bool[Tensor, "1 m"],
) -> Iterator[pd.DataFrame]:
    """Write rates while reading the rows, and cosines of the states after half and after all."""
    from tabicl_linear.analysis.rate_profiles import write_rates
    from tabicl_linear.analysis.state_drift import cosine
    from tabicl_linear.analysis.states import heads_table, matrices
    from tabicl_linear.analysis.streams import gates, record_streams

    half = x.shape[1] // 2
    with torch.no_grad():
        with record_streams(model, keep=gates) as streams:
            whole = matrices(model, model.fit(x, y, categorical=categorical))
        part = matrices(model, model.fit(x[:, :half], y[:, :half], categorical=categorical))
    for layer, S in whole.items():
        table = heads_table({"value": cosine(part[layer], S)}, layer, 1, measure="cosine_half")
        yield table.groupby(["layer", "head", "measure"])["value"].mean().reset_index()
    if any(gate is not None for layer in streams.layers for gate in layer):
        rates = write_rates(streams.layers, num_tasks=1, num_bins=1)
        yield rates.rename(columns={"gate": "measure", "mean": "value"})


def _of_orders(
    model: InContextModel,
    x: Float[Tensor, "1 c m"],
    y: Int[Tensor, "1 c"],
    categorical: Bool[Tensor, "1 m"],
    row_orders: int,
) -> pd.DataFrame:
    """How far the predictions of the last rows move when the order of the others changes."""
    from tabicl_linear.analysis.row_order import order_sensitivity

    first = x.shape[1] - min(MAX_QUERIES, x.shape[1] // 5)
    context = x[:, :first], y[:, :first]
    table = order_sensitivity(
        model, *context, x[:, first:], categorical=categorical, permutations=row_orders
    )
    spread = float(table["total_variation"].mean())
    return pd.DataFrame({"measure": ["order_spread"], "value": [spread]})
