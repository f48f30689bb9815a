"""Optimises fitted states on their own context: `refine=True`.

This makes the hidden-state oracle (section 4.1, `analysis/state_optimisation.py`) an option of the
classifier. The model is frozen. A starting state reads nine tenths of the rows. Its matrices are
then optimised to predict the same rows, read as queries, for as long as the loss on the held-out
tenth falls.
"""

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import torch

from tabicl_linear.errors import ConfigError
from tabicl_linear.estimator.choices import held_out_rows
from tabicl_linear.estimator.learners.interface import State
from tabicl_linear.estimator.learners.many_classes import Problem, problems, rejoined
from tabicl_linear.estimator.members.ensemble import Encoded, FittedEnsemble, as_seen
from tabicl_linear.estimator.notices import progress_bar
from tabicl_linear.estimator.plan import Plan
from tabicl_linear.model import InContextModel, InContextState
from tabicl_linear.types import Int, Tensor

if TYPE_CHECKING:
    from tabicl_linear.analysis.state_optimisation import Epoch

HELD_OUT_FRACTION = 0.1
"""Share of the rows that a starting state has not read; at most `choices.MAX_HELD_OUT` rows."""
LEARNING_RATE = 0.01
"""How far a step moves a matrix, relative to its size: the best ones are a dozen steps away."""
BATCH_ROWS = 512
PASS_ROWS = 2048
"""Maximum number of rows of a pass, so that a pass takes no longer in a longer table."""
MAX_PASSES = 20
PATIENCE = 3


def check_refinable(model: InContextModel) -> None:
    """Raise `ConfigError`, with the reason, if states of a model cannot be refined."""
    from tabicl_linear.analysis.state_optimisation import check_model

    try:
        check_model(model)
    except ConfigError as error:
        raise ConfigError(f"refine=True: {error}") from error


def refined(
    ensemble: FittedEnsemble, rows: Encoded, plan: Plan
) -> tuple[FittedEnsemble, pd.DataFrame]:
    """The members, with refined states where these predict held-out rows better.

    Members were fitted one at a time on `rows`. Each holds out rows of its own draw (never the last
    one of a class). Where no pass lowers the loss on them, or no row can be held out, the member
    keeps its state of all rows, as if not refined. Column statistics and ridge solutions are always
    those of all rows.

    Returns:
        The members, and a table with a row for each pass:

        - member, digit, passes: which pass it is. Members and digits (of the code of many classes,
          see docs/columns.md) count from 1; pass 0 is the start.
        - training_loss: mean cross-entropy during the pass, on the rows optimised on; NaN at the
          start.
        - held_out_loss: mean cross-entropy of the held-out rows after the pass.
        - relative_update: |S - S_start| / |S_start|, mean over layers.
        - best: whether the state after this pass has the least loss on the held-out rows.
        - used: whether the member uses a refined state for this digit.
    """
    members = list(zip(ensemble.views, ensemble.states, strict=True))
    num_rows = len(rows.codes)

    def attempt(gradient_rows: int) -> tuple[FittedEnsemble, pd.DataFrame]:
        states, curves = list[State](), list[pd.DataFrame]()
        with progress_bar("refine", len(members) * num_rows, plan.progress) as bar:
            for member, (view, state) in enumerate(members):
                seed = plan.seed + member
                held_out = held_out_rows(rows.codes, seed, fraction=HELD_OUT_FRACTION)
                is_held_out = torch.from_numpy(held_out[view.row_order(num_rows)])
                positions = is_held_out.nonzero().squeeze(1)
                x, y = as_seen(ensemble, (view,), rows)
                digit_states = []
                for digit, problem in enumerate(problems(ensemble.model, state, y)):
                    digit_state, epochs = _refined(problem, x, positions, seed, gradient_rows)
                    digit_states.append(digit_state)
                    curves.append(_curve(member + 1, digit + 1, epochs))
                states.append(rejoined(ensemble.model, digit_states))
                bar.update(num_rows)
        return replace(ensemble, states=tuple(states)), pd.concat(curves, ignore_index=True)

    return plan.within_memory(attempt, "refining states of", rows.matrix, most=BATCH_ROWS)


def _refined(
    problem: Problem, x: Tensor, held_out: Int[Tensor, " h"], seed: int, gradient_rows: int
) -> "tuple[InContextState, list[Epoch]]":
    """The state that a member uses for a problem, and the passes that led to it.

    `held_out` are positions of rows in `x`, and `gradient_rows` is the number of rows whose
    gradients are held at a time.
    """
    # Imported here, since only `refine` needs it.
    from tabicl_linear.analysis.state_optimisation import OracleOptions, optimise_states

    learner, state, y = problem
    epochs: list[Epoch] = []
    if not len(held_out):
        return state, epochs
    options = OracleOptions(
        learning_rate=LEARNING_RATE,
        batch_rows=BATCH_ROWS,
        gradient_rows=gradient_rows,
        pass_rows=PASS_ROWS,
        max_epochs=MAX_PASSES,
        patience=PATIENCE,
        seed=seed,
    )
    optimum = optimise_states(
        learner, state, x, y, options, held_out=held_out, on_epoch=epochs.append
    )
    # The start has read fewer rows than the member's own state, which stays unless a pass helped.
    is_better = any(bool(epoch.improved) for epoch in epochs[1:])
    return optimum if is_better else state, epochs


def _curve(member: int, digit: int, epochs: "list[Epoch]") -> pd.DataFrame:
    """A row of the table of `refined` for each pass."""
    best = max((epoch.number for epoch in epochs if epoch.improved), default=0)
    numbers = np.array([epoch.number for epoch in epochs], dtype=np.int64)
    return pd.DataFrame(
        {
            "member": np.full(len(epochs), member),
            "digit": np.full(len(epochs), digit),
            "passes": numbers,
            "training_loss": np.array([float(epoch.training) for epoch in epochs]),
            "held_out_loss": np.array([float(epoch.held_out) for epoch in epochs]),
            "relative_update": np.array([np.mean(epoch.relative_updates) for epoch in epochs]),
            "best": numbers == best,
            "used": np.full(len(epochs), best > 0),
        }
    )
