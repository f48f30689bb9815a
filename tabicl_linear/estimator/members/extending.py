"""Members of the ensemble after more rows."""

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from tabicl_linear.estimator.learners.pretrained import extensible
from tabicl_linear.estimator.members.ensemble import (
    FittedEnsemble,
    as_seen,
    progress_bar,
    rows_at_a_time,
)
from tabicl_linear.kernels.state import map_tensors


def extended_ensemble(
    ensemble: FittedEnsemble[Any],
    matrix: npt.NDArray[np.float32],
    labels: npt.NDArray[np.int64],
    *,
    device: torch.device,
    rows_per_batch: int,
    progress: bool,
) -> FittedEnsemble[Any]:
    """The ensemble after more rows, which all members write in the order given.

    Args:
        ensemble: What to extend; it does not change, except that its model is moved to `device`.
        matrix: Rows `[rows, columns]` as `TablePreprocessor.transform` gives them.
        labels: Class index of each row.
        device: Where to compute.
        rows_per_batch: Maximum number of rows in the network at a time, over all members.
        progress: Whether to show a progress bar.

    Raises:
        UnsupportedReadout: The learner cannot be extended.
    """
    model, size = extensible(ensemble.model).to(device), ensemble.group_size
    ensemble = replace(
        ensemble,
        model=model,
        states=map_tensors(lambda tensor: tensor.to(device), ensemble.states),
    )
    states = []
    with progress_bar("fit", len(ensemble.views) * len(matrix), progress) as bar:
        for group, state in enumerate(ensemble.states):
            views = tuple(
                view._replace(row_seed=None) for view in ensemble.views[group * size :][:size]
            )
            x, y = as_seen(ensemble, views, matrix, labels)
            rows = rows_at_a_time(device, rows_per_batch, len(views))
            with torch.inference_mode():
                states.append(model.fit(x, y, state=state, rows_per_chunk=rows))
            bar.update(len(views) * len(matrix))
    return replace(ensemble, states=tuple(states))
