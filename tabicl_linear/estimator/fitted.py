"""A fitted classifier as a value: what was learnt from rows, and how it predicts others."""

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from scipy.special import log_softmax, softmax

from tabicl_linear.estimator.arrays import Float32Array, FloatArray, IntArray
from tabicl_linear.estimator.choices import FULL, LongContext
from tabicl_linear.estimator.class_weights import class_weights
from tabicl_linear.estimator.columns.preprocessor import Table, TablePreprocessor
from tabicl_linear.estimator.columns.query_warnings import warn_of_queries
from tabicl_linear.estimator.members.ensemble import FittedEnsemble
from tabicl_linear.estimator.members.pooling import pooled
from tabicl_linear.estimator.plan import Plan
from tabicl_linear.estimator.rows.labelled import Rows

NO_SCORES = pd.DataFrame(
    {"rows_seen": [0], "rows": [0], "log_loss": [0.0], "accuracy": [0.0]}
).iloc[:0]
"""`Fitted.prequential` before any piece has been scored: a table without rows."""


@dataclass(frozen=True, eq=False)
class FittedCompanion:
    """The fitted members of a `learners.interface.Companion`, their temperature and weight."""

    members: FittedEnsemble
    temperature: float
    weight: float


@dataclass(frozen=True, eq=False)
class Fitted:
    """A fitted classifier: what `fitting.fit` returns and `fitting.extended` takes.

    It holds no training rows, except in `held` and in states of trees that can grow.

    Attributes:
        columns: The preprocessor; the field has the name that it has in saved files.
        classes: Class labels, sorted.
        counts: Number of training rows of each class.
        temperature: Divides the logits: a fixed one, or calibrated on held-out rows.
        long_context: Whether a table longer than those of pretraining was read in blocks, and why.
        refinement: With `refine`, the passes of every member (see `refinement.refined`).
        prequential: A row for each piece that was scored before it was read.
        held: All rows so far, while they are too few to learn the columns and grow the trees for
            good; None for models, and once there are enough.
        companion: Members of a second learner, whose logits are mixed with those of `members`.
    """

    columns: TablePreprocessor
    members: FittedEnsemble
    classes: npt.NDArray[Any]
    counts: IntArray
    temperature: float
    long_context: LongContext = FULL
    refinement: pd.DataFrame | None = None
    prequential: pd.DataFrame = field(default_factory=NO_SCORES.copy)
    held: Rows | None = None
    companion: FittedCompanion | None = None

    @property
    def num_rows(self) -> int:
        """Rows read so far."""
        return int(self.counts.sum())

    @property
    def nbytes(self) -> int:
        """Bytes of the states of all members."""
        return self.members.nbytes + (self.companion.members.nbytes if self.companion else 0)

    def scores(self, table: Table, plan: Plan) -> FloatArray:
        """Logarithms of the probabilities `[rows, classes]`, up to a constant for each row.

        `table` has the columns of the training table, in their order. Class weights and temperature
        are those of the plan; if the plan asks for a calibrated temperature, it is that of the fit.
        """
        weights = class_weights(plan.class_weight, self.classes, self.counts)
        matrix = self.columns.transform(table)
        warn_of_queries(self.columns, table, matrix, self.num_rows)
        logs = self._scores_of(self.members, self.temperature, matrix, plan)
        companion = self.companion
        if companion is not None:
            others = self._scores_of(companion.members, companion.temperature, matrix, plan)
            logs = (1 - companion.weight) * logs + companion.weight * others
        return _with_unseen(logs, self.counts) + np.log(weights)

    def _scores_of(
        self, members: FittedEnsemble, temperature: float, matrix: Float32Array, plan: Plan
    ) -> FloatArray:
        """The pooled logits `[rows, classes]` of some members for the encoded rows."""
        plan = plan.with_preset_of(members.model, self.num_rows, matrix.shape[1])
        pool = partial(
            pooled,
            temperature=temperature if plan.is_calibrated else plan.fixed_temperature,
            average_logits=plan.average_logits,
        )
        return members.scores(matrix, pool, plan)

    def probabilities(self, table: Table, plan: Plan) -> FloatArray:
        """Class probabilities `[rows, classes]`; see `scores`."""
        return np.asarray(softmax(self.scores(table, plan), axis=1))

    def solved(self) -> "Fitted":
        """The same with all states solved, ready to predict."""
        return replace(self, members=replace(self.members, states=self.members.solved_states))

    def on(self, device: torch.device) -> "Fitted":
        """The same with its model and states on `device`."""
        companion = self.companion
        if companion is not None:
            companion = replace(companion, members=companion.members.on(device))
        return replace(self, members=self.members.on(device), companion=companion)


def _with_unseen(logs: FloatArray, counts: IntArray) -> FloatArray:
    """The scores, with a probability for each announced class that has no rows yet.

    It is the estimate of Krichevsky and Trofimov (1981), which adds half a row to every class. The
    models themselves give such a class a probability of about zero.
    """
    is_unseen = counts == 0
    if not is_unseen.any():
        return logs
    share = 0.5 / (counts.sum() + len(counts) / 2)
    mixed = np.full_like(logs, np.log(share))
    mixed[:, ~is_unseen] = log_softmax(logs[:, ~is_unseen], axis=1)
    mixed[:, ~is_unseen] += np.log1p(-share * is_unseen.sum())
    return mixed
