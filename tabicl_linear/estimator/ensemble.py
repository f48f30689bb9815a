"""The fitted members of the preprocessing ensemble: fit, read, move."""

import copy
import warnings
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from tqdm import tqdm

from tabicl_linear.estimator.views import PowerColumns, View, draw_views, sum_logits
from tabicl_linear.kernels.memory import map_tensors, num_bytes
from tabicl_linear.model import InContextModel, InContextState

MIN_ROWS = 8
"""Fewer query rows than this are filled up: matrix products of one or two rows run other kernels,
whose rounding would make a prediction depend on how many rows were asked for."""


@dataclass(frozen=True)
class FittedEnsemble:
    """Views of a table and the states into which a model read them. Holds no training row.

    Attributes:
        model: The pretrained learner.
        views: The members.
        power: The transforms that every second member uses.
        states: Fitted states, `group_size` consecutive members in each batch (the last may have
            fewer).
        group_size: Members of a batch.
        num_classes: Classes of the table.
    """

    model: InContextModel
    views: tuple[View, ...]
    power: PowerColumns
    states: tuple[InContextState, ...]
    group_size: int
    num_classes: int

    @property
    def state_bytes(self) -> int:
        """Bytes of the states of one member."""
        return sum(num_bytes(state) for state in self.states) // len(self.views)

    def logits(
        self,
        matrix: npt.NDArray[np.float32],
        *,
        device: torch.device,
        rows_per_batch: int,
        progress: bool,
    ) -> npt.NDArray[np.float64]:
        """Mean logits of the members `[rows, classes]`, before the softmax.

        Args:
            matrix: Query rows `[rows, columns]` as `TablePreprocessor.transform` gives them.
            device: Where to compute; model and states are moved there.
            rows_per_batch: Most rows in one call of the model, all its members together.
            progress: Whether to show a bar.
        """
        model = self.model.to(device)
        powered = self.power.transform(matrix)
        total = np.zeros((len(matrix), self.num_classes))
        work = len(self.views) * len(matrix)
        with _bar("predict", work, progress) as bar, torch.inference_mode():
            for group, state in enumerate(self.states):
                state = map_tensors(lambda tensor: tensor.to(device), state)
                members = slice(group * self.group_size, (group + 1) * self.group_size)
                views = self.views[members]
                step = max(1, rows_per_batch // len(views))
                for start in range(0, len(matrix), step):
                    rows = slice(start, start + step)
                    x = _stack(views, matrix[rows], powered[rows], like=model)
                    num_rows = x.shape[1]
                    if num_rows < MIN_ROWS:
                        x = torch.cat([x, x[:, :1].expand(-1, MIN_ROWS - num_rows, -1)], dim=1)
                    out = model.predict(state, x)[:, :num_rows, : self.num_classes]
                    total[rows] += sum_logits(out.double().cpu().numpy(), views)
                    bar.update(len(views) * num_rows)
        return total / len(self.views)

    def on(self, device: str) -> "FittedEnsemble":
        """The same ensemble with its model and states on `device`."""
        target = torch.device(device)
        if next(self.model.parameters()).device == target:
            return self
        return replace(
            self,
            model=copy.deepcopy(self.model).to(target),
            states=map_tensors(lambda tensor: tensor.to(target), self.states),
        )


def fit_ensemble(
    model: InContextModel,
    matrix: npt.NDArray[np.float32],
    labels: npt.NDArray[np.int64],
    *,
    categorical: npt.NDArray[np.bool_],
    num_members: int,
    seed: int,
    rows_per_batch: int,
    progress: bool,
) -> FittedEnsemble:
    """Let the model read the training rows as every member sees them.

    Args:
        model: On the device to compute on.
        matrix: Training rows `[rows, columns]` as `TablePreprocessor.transform` gives them.
        labels: Class index of each row; every class occurs.
        categorical: Which columns hold category codes.
        num_members: Size of the ensemble.
        seed: Of the views.
        rows_per_batch: Most rows in one call of the model; one member is never split.
        progress: Whether to show a bar.
    """
    num_rows, num_columns = matrix.shape
    num_classes = int(labels.max()) + 1
    max_columns = model.architecture.num_features
    if num_columns > max_columns:
        warnings.warn(
            f"The table has {num_columns} usable columns and the model takes {max_columns}: each "
            f"of the {num_members} ensemble members uses its own random {max_columns}. Raise "
            "n_estimators to cover more columns, or select columns beforehand.",
            UserWarning,
            stacklevel=3,
        )
    views = draw_views(
        num_members,
        num_columns=num_columns,
        max_columns=max_columns,
        num_classes=num_classes,
        seed=seed,
    )
    power = PowerColumns()
    if any(view.power for view in views):
        power.fit(matrix, categorical)
    powered = power.transform(matrix)
    group_size = max(1, rows_per_batch // num_rows)
    states = []
    with _bar("fit", num_members * num_rows, progress) as bar, torch.inference_mode():
        for first in range(0, num_members, group_size):
            group = views[first : first + group_size]
            orders = [view.row_order(num_rows) for view in group]
            x = _stack(group, matrix, powered, like=model, orders=orders)
            shown = [
                (labels[order] + view.class_shift) % num_classes
                for view, order in zip(group, orders, strict=True)
            ]
            y = torch.from_numpy(np.stack(shown)).to(x.device)
            mask = torch.from_numpy(np.stack([categorical[view.columns] for view in group]))
            states.append(model.fit(x, y, categorical=mask.to(x.device)))
            bar.update(len(group) * num_rows)
    return FittedEnsemble(model, views, power, tuple(states), group_size, num_classes)


def _stack(
    views: tuple[View, ...],
    matrix: npt.NDArray[np.float32],
    powered: npt.NDArray[np.float32],
    *,
    like: torch.nn.Module,
    orders: list[npt.NDArray[np.int64]] | None = None,
) -> torch.Tensor:
    """Rows as the members see them `[members, rows, columns]`, in the dtype and place of `like`."""
    tables = []
    for member, view in enumerate(views):
        table = (powered if view.power else matrix)[:, view.columns]
        tables.append(table if orders is None else table[orders[member]])
    parameter = next(like.parameters())
    return torch.from_numpy(np.stack(tables)).to(parameter.device, parameter.dtype)


def _bar(what: str, total: int, progress: bool) -> tqdm:
    # disable=None: off where stderr is no terminal.
    return tqdm(
        total=total,
        desc=what,
        unit="row",
        unit_scale=True,
        leave=False,
        disable=None if progress else True,
    )
