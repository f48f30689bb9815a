"""The members of the preprocessing ensemble: fits, extends, queries and moves them."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from tabicl_linear.embedding.inputs import chunk_rows
from tabicl_linear.estimator.arrays import Float32Array, FloatArray, IntArray
from tabicl_linear.estimator.columns.preprocessor import Table, TablePreprocessor
from tabicl_linear.estimator.learners.interface import ContextLearner, SolvedLater, State
from tabicl_linear.estimator.members import half_precision
from tabicl_linear.estimator.members.memory import stored
from tabicl_linear.estimator.members.relevance import Relevance, choose_columns, relevance
from tabicl_linear.estimator.members.views import PowerColumns, View, draw_views, in_class_order
from tabicl_linear.estimator.notices import progress_bar, warn_user
from tabicl_linear.estimator.plan import Plan
from tabicl_linear.kernels.state import map_tensors, num_bytes
from tabicl_linear.types import Bool, Float, Int, Tensor

ROWS_ARRANGED = 1 << 16
"""Rows that are arranged for a member at a time, if all rows do not fit into memory."""
WIDE_MEMBERS = 4
"""Minimum number of members for a wide table, even if its columns are uninformative
(docs/training_log.md)."""
MIN_ROWS, MIN_PRODUCT_ROWS = 4, 8
"""Fewer query rows are padded to so many of a member, and so many of all members together: smaller
matrix products run other kernels, whose rounding would make a prediction depend on the number of
rows predicted together (docs/decisions.md, decision 38)."""


@dataclass(frozen=True)
class Encoded:
    """Labelled rows as numbers.

    Attributes:
        matrix: The rows `[rows, columns]` as `TablePreprocessor` encodes them. For a table in
            pieces they lie in a temporary file.
        codes: Class index of each row.
        preprocessor: Has encoded the rows.
        classes: Class labels of the table, sorted.
        table: The rows as they were given; None if they came in pieces and cannot be read twice.
    """

    matrix: Float32Array
    codes: IntArray
    preprocessor: TablePreprocessor
    classes: npt.NDArray[Any]
    table: Table | None = None

    @property
    def num_classes(self) -> int:
        """Number of classes of the table."""
        return len(self.classes)

    @cached_property
    def relevance(self) -> Relevance:
        """What each column alone says about the class; takes a millisecond per column."""
        return relevance(self.matrix, self.codes, self.preprocessor.categorical)

    def num_wanted(self, width: int) -> int:
        """How many columns should have a place in some member, if each member sees `width` columns.

        All, if `WIDE_MEMBERS` members have room for them. Otherwise as many as these have room for,
        or as many as are informative, if those are more.
        """
        num_columns, num_seen = self.matrix.shape[1], WIDE_MEMBERS * width
        return num_columns if num_columns <= num_seen else max(num_seen, self.relevance.num_telling)

    def are_categorical(self, views: Sequence[View]) -> Bool[Tensor, "b m"]:
        """Which columns hold category codes, among those that each member sees, in its order."""
        return torch.from_numpy(np.stack([self.preprocessor.categorical[v.columns] for v in views]))


@dataclass(frozen=True)
class FittedEnsemble:
    """Views of a table, and the states of a learner that has read them.

    Attributes:
        model: The learner.
        views: The view of each member.
        power: The transforms that every second member uses.
        states: Fitted states, one for each batch of `group_size` consecutive members; `in_full`
            returns them as the model reads them.
        group_size: Number of members that are computed together in a batch; the last batch may
            have fewer.
    """

    model: ContextLearner
    views: tuple[View, ...]
    power: PowerColumns
    states: tuple[State, ...]
    group_size: int
    num_classes: int

    @cached_property
    def solved_states(self) -> tuple[State, ...]:
        """The states that predictions read; solved here, once, if the learner has not done so."""
        if not isinstance(self.model, SolvedLater):
            return self.states
        with torch.inference_mode():
            states = map_tensors(lambda tensor: tensor.to(self.model.device), self.states)
            return tuple(map(self.model.solved, states))

    def halved(self) -> "FittedEnsemble":
        """The same ensemble with matrix states in half precision, for reading only.

        Probabilities move by about 1e-4 at most (docs/decisions.md, decision 130).
        """
        return replace(self, states=half_precision.halved(self.states))

    def in_full(self, device: torch.device) -> tuple[State, ...]:
        """The states on `device`, as the model reads them."""
        states = map_tensors(lambda tensor: tensor.to(device), self.solved_states)
        return half_precision.in_full(states)

    @property
    def nbytes(self) -> int:
        """Bytes of the states of all members, as predictions read them."""
        return sum(map(num_bytes, self.solved_states))

    @property
    def state_bytes(self) -> int:
        """Mean number of bytes of the states of one member."""
        return self.nbytes // len(self.views)

    def batches(self) -> list[tuple[tuple[View, ...], State]]:
        """The views of each batch of members, and the state of the batch."""
        size = self.group_size
        return [
            (self.views[group * size :][:size], state) for group, state in enumerate(self.states)
        ]

    def scores(
        self, matrix: Float32Array, pool: Callable[[FloatArray], FloatArray], plan: Plan
    ) -> FloatArray:
        """The members' logits for all rows, pooled: `[..., rows, classes]`.

        Args:
            matrix: Rows `[rows, columns]` as `TablePreprocessor.transform` encodes them.
            pool: Takes logits `[members, rows, classes]` of some of the rows, and returns an array
                whose last dimensions are `[rows, classes]`.
            plan: Names the device to compute on; model and states are moved there.
        """

        def scored(rows_per_batch: int) -> FloatArray:
            # Even if nothing moves, `to` visits every parameter: a tenth of the time of one row.
            model = self.model if self.model.device == plan.device else self.model.to(plan.device)
            batches = replace(self, states=self.in_full(plan.device)).batches()
            work, step = len(self.views) * len(matrix), max(1, rows_per_batch // self.group_size)
            pooled = []
            with progress_bar("predict", work, plan.progress) as bar, torch.inference_mode():
                for start in range(0, len(matrix), step):
                    plain = matrix[start : start + step]
                    powered = self.power.transform(plain)
                    members = []
                    for views, state in batches:
                        x = _stacked([(powered if v.power else plain)[:, v.columns] for v in views])
                        logits = _read(model, state, x.to(plan.device))[..., : self.num_classes]
                        members.append(in_class_order(logits.double().cpu().numpy(), views))
                        bar.update(len(views) * len(plain))
                    pooled.append(pool(np.concatenate(members)))
            return np.concatenate(pooled, axis=-2)

        return plan.within_memory(scored, "predicting", matrix)

    def on(self, device: torch.device) -> "FittedEnsemble":
        """The same ensemble with its model and states on `device`."""
        # A prediction may have moved the model to another device than that of the states.
        is_there = self.model.device == device
        return replace(
            self,
            model=self.model if is_there else copy.deepcopy(self.model).to(device),
            states=map_tensors(lambda tensor: tensor.to(device), self.states),
        )


def fit_ensemble(
    model: ContextLearner,
    rows: Encoded,
    plan: Plan,
    *,
    in_order: bool = False,
    spill: Path | None = None,
) -> FittedEnsemble:
    """Let a learner, on the device to compute on, read training rows as each member sees them.

    With `in_order`, all members write the rows in the order of the table, not each in its own.
    `spill` is a folder for temporary files, which hold what grows with the rows instead of memory.
    """
    num_members, (num_rows, num_columns) = plan.num_members, rows.matrix.shape
    columns, width = [np.arange(num_columns)] * num_members, model.max_columns
    if num_columns > width:
        columns = choose_columns(
            rows.relevance, num_members=num_members, width=width, seed=plan.seed
        )
        _warn_of_width(rows.preprocessor, width, num_members)
    views = draw_views(columns, num_classes=rows.num_classes, seed=plan.seed)
    if in_order:
        views = _in_order(views)
    power = PowerColumns()
    powered = [view.columns for view in views if view.power]
    if powered:
        power.fit(rows.matrix, rows.preprocessor.categorical, np.unique(np.concatenate(powered)))

    def fitted(rows_per_batch: int) -> FittedEnsemble:
        group_size = min(num_members, max(1, rows_per_batch // num_rows))
        no_states = (None,) * -(-num_members // group_size)
        members = FittedEnsemble(model, views, power, no_states, group_size, rows.num_classes)
        return _with_rows(members, rows, plan, rows_per_batch, spill)

    return plan.within_memory(fitted, "fitting", rows.matrix)


def _warn_of_width(preprocessor: TablePreprocessor, width: int, num_members: int) -> None:
    num_columns, has_scores = len(preprocessor.used), preprocessor.linear_scores is not None
    each = f"each of the {num_members} members" if num_members > 1 else "the only member"
    text = (
        f"The table has {num_columns} usable columns and the model takes {width}: {each} of the "
        f"ensemble uses its own {width}, informative columns more often"
    )
    text += ", and linear scores of all." if has_scores else "."
    needed = -(-num_columns // width)
    if num_members < needed:
        others = (
            "Some have a part in these scores alone" if has_scores else "Some are not used at all"
        )
        text += f" {others}; with n_estimators={needed} or more all are used."
    warn_user(text)


def extended_ensemble(ensemble: FittedEnsemble, rows: Encoded, plan: Plan) -> FittedEnsemble:
    """The ensemble after more rows, which all members write in the order of the table.

    `ensemble` itself does not change, except that its model is moved to the device of the plan.
    """
    ensemble.model.check_extensible()

    def extended(rows_per_batch: int) -> FittedEnsemble:
        model = ensemble.model.to(plan.device)
        states = map_tensors(lambda tensor: tensor.to(plan.device), ensemble.states)
        members = replace(ensemble, model=model, states=states)
        return _with_rows(members, rows, plan, rows_per_batch, spill=None)

    return plan.within_memory(extended, "reading", rows.matrix)


def _with_rows(
    ensemble: FittedEnsemble, rows: Encoded, plan: Plan, rows_per_batch: int, spill: Path | None
) -> FittedEnsemble:
    """The ensemble after all members have read the rows, batch after batch.

    Each member writes its first rows in an order of its own, and later ones in that of the table.
    """
    model, work = ensemble.model, len(ensemble.views) * len(rows.matrix)
    states = list[State]()
    with progress_bar("fit", work, plan.progress) as bar, torch.inference_mode():
        for views, state in ensemble.batches():
            is_first = state is None
            new_state = model.fit(
                # Not bound to a name, so that they are freed before those of the next batch come.
                *as_seen(ensemble, views if is_first else _in_order(views), rows, spill),
                categorical=rows.are_categorical(views).to(model.device) if is_first else None,
                rows_per_chunk=min(chunk_rows(model.device), max(1, rows_per_batch // len(views))),
                spill=spill,
                state=state,
            )
            states.append(new_state)
            bar.update(len(views) * len(rows.matrix))
    return replace(ensemble, states=tuple(states))


def _in_order(views: tuple[View, ...]) -> tuple[View, ...]:
    """The views, changed so that all members write the rows in the order of the table."""
    return tuple(view._replace(row_seed=None) for view in views)


def as_seen(
    ensemble: FittedEnsemble, views: tuple[View, ...], rows: Encoded, spill: Path | None = None
) -> tuple[Float[Tensor, "b c m"], Int[Tensor, "b c"]]:
    """Labelled rows as the members with these views see them, on the device of the learner.

    `spill` is a folder for a temporary file that holds the rows of each member, instead of memory.
    """
    matrix, device = rows.matrix, ensemble.model.device
    tables, labels = [], []
    for view in views:
        order = view.row_order(len(matrix))
        if spill is None:
            tables.append(_seen(ensemble.power, view, matrix, order))
        else:
            pieces = np.array_split(order, -(-len(order) // ROWS_ARRANGED))
            parts = (_seen(ensemble.power, view, matrix, piece) for piece in pieces)
            tables.append(stored(parts, len(view.columns), spill))
        labels.append((rows.codes[order] + view.class_shift) % rows.num_classes)
    return _stacked(tables).to(device), _stacked(labels).to(device)


def _seen(power: PowerColumns, view: View, matrix: Float32Array, rows: IntArray) -> Float32Array:
    """Some rows as one member sees them."""
    table = matrix[np.ix_(rows, view.columns)]
    return power.transform(table, view.columns, in_place=True) if view.power else table


def _read(model: ContextLearner, state: State, x: torch.Tensor) -> torch.Tensor:
    """Logits of rows; few rows are padded (`MIN_ROWS`)."""
    num_members, num_rows = x.shape[:2]
    missing = max(MIN_ROWS, MIN_PRODUCT_ROWS // num_members) - num_rows
    if missing > 0:
        x = torch.cat([x, x[:, :1].expand(-1, missing, -1)], dim=1)
    return model.predict(state, x)[:, :num_rows]


def _stacked(tables: list[npt.NDArray[Any]]) -> torch.Tensor:
    """The tables of all members as one tensor; a single table is not copied."""
    return torch.from_numpy(np.stack(tables) if len(tables) > 1 else tables[0][None])
