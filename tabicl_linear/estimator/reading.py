"""What the members of the ensemble read from rows, and what they say about others."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from tabicl_linear.estimator import refinement
from tabicl_linear.estimator.learners.protocol import ContextLearner
from tabicl_linear.estimator.members.ensemble import FittedEnsemble, fit_ensemble
from tabicl_linear.estimator.members.memory import retried_smaller
from tabicl_linear.estimator.plan import Plan


def read(
    learner: ContextLearner[Any],
    matrix: npt.NDArray[np.float32],
    codes: npt.NDArray[np.int64],
    categorical: npt.NDArray[np.bool_],
    *,
    plan: Plan,
    seed: int,
    **options: Any,
) -> tuple[FittedEnsemble[Any], pd.DataFrame | None]:
    """The members fitted on encoded rows, and the passes of their refinement if there is one.

    Args:
        learner: Reads the rows, on the device to compute on.
        matrix: Training rows `[rows, columns]`, encoded.
        codes: Class index of each row.
        categorical: Which columns hold category codes.
        plan: How.
        seed: Of the ensemble.
        **options: Further arguments of `fit_ensemble`.
    """
    members = retried_smaller(
        lambda rows: fit_ensemble(
            learner,
            matrix,
            codes,
            categorical=categorical,
            num_members=plan.num_members,
            seed=seed,
            rows_per_batch=rows,
            progress=plan.progress,
            **options,
        ),
        plan.rows_at_a_time(len(matrix)),
        what=f"fitting {len(matrix)} rows x {matrix.shape[1]} columns",
        device=learner.device,
    )
    if not plan.refine:
        return members, None
    return retried_smaller(
        lambda rows: refinement.refined(
            members, matrix, codes, seed=seed, gradient_rows=rows, progress=plan.progress
        ),
        min(refinement.BATCH_ROWS, plan.rows_at_a_time(len(matrix))),
        what=f"refining states of {len(matrix)} rows x {matrix.shape[1]} columns",
        device=members.model.device,
    )


def scores(
    members: FittedEnsemble[Any],
    matrix: npt.NDArray[np.float32],
    pool: Callable[[npt.NDArray[np.float64]], npt.NDArray[np.float64]],
    plan: Plan,
) -> npt.NDArray[np.float64]:
    """What `pool` makes of the members' logits of encoded rows; see `FittedEnsemble.scores`."""
    return retried_smaller(
        lambda rows: members.scores(
            matrix, pool, device=plan.device, rows_per_batch=rows, progress=plan.progress
        ),
        plan.rows_at_a_time(len(matrix)),
        what=f"predicting {len(matrix)} rows x {matrix.shape[1]} columns",
        device=plan.device,
    )
