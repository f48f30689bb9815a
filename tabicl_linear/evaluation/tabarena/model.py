"""The classifier with AutoGluon's model interface, as TabArena runs it.

It follows the interface of AutoGluon 1.6 (`AbstractTorchModel`). Nothing outside of this folder
imports this module, so AutoGluon is needed only by those who use it.
"""

from typing import Any, ClassVar

import pandas as pd

from tabicl_linear.estimator.classifier import TabICLLinearClassifier
from tabicl_linear.estimator.members.memory import MAX_ROWS, ROW_BYTES

try:
    from autogluon.tabular.models.abstract.abstract_torch_model import AbstractTorchModel
except ImportError as error:
    raise ImportError(
        "tabicl_linear.evaluation.tabarena needs AutoGluon: pip install 'autogluon.tabular>=1.6,"
        "<1.7', in an environment of its own, since AutoGluon takes older versions of pandas than "
        "this project is tested with."
    ) from error

# The constants below bound the memory of the default weights on a CPU.
LIBRARY_BYTES = 10**9
"""Bytes of a process that has imported torch and AutoGluon."""
TABLE_COPIES = 4
"""Copies of a table during fitting, in its own types and in float32."""
HIDDEN_BYTES = 1024
"""Bytes for a cell of a long table: one member at a time holds the hidden tokens of all rows."""
MEMBERS, MOST_COLUMNS = 10, 40
"""Most members of an ensemble, and most columns of the table that one of them sees."""


class TabICLLinearModel(AbstractTorchModel):
    """An in-context learner with linear-time mixers, whose fitted state does not grow with rows.

    Pretrained on synthetic tables only; `fit` tunes nothing. Hyperparameters are the arguments of
    `TabICLLinearClassifier`; AutoGluon decides on `device` and `n_jobs`. As for other in-context
    learners, `X_val` and `time_limit` are not used. Code and weights: Apache-2.0.
    """

    ag_key = "TA-TABICL-LINEAR"
    ag_name = "TA-TabICLLinear"
    ag_priority = 65
    seed_name = "random_state"
    warmup_modules: ClassVar[tuple[str, ...]] = ("tabicl_linear.estimator.classifier",)
    cheap_hyperparameters: ClassVar[dict[str, Any]] = {"n_estimators": 1}
    _supported_problem_types: ClassVar[list[str]] = ["binary", "multiclass"]
    # Folds are fitted one after the other, as they share a GPU; one fit on all rows then predicts.
    _default_ag_args_ensemble_extra: ClassVar[dict[str, Any]] = {
        "fold_fitting_strategy": "sequential_local",
        "refit_folds": True,
    }
    default_resources_physical_cores_only = True
    default_num_gpus = 1
    minimum_num_gpus = 0

    def _fit(
        self,
        X: pd.DataFrame,
        y: pd.Series,
        num_cpus: int = 1,
        num_gpus: float = 0,
        **kwargs: Any,
    ) -> None:
        device = self._resolve_fit_device(num_gpus=num_gpus)
        arguments = self._get_model_params() | {"device": device, "n_jobs": num_cpus}
        self.model = TabICLLinearClassifier(**arguments)
        self.model.fit(self.preprocess(X, y=y, is_train=True), y)

    def get_device(self) -> str:
        """The device on which the fitted classifier computes."""
        return str(self.model.device)

    def _set_device(self, device: str) -> None:
        # The classifier moves model and states when it predicts.
        self.model.set_params(device=device)

    @classmethod
    def _estimate_memory_usage_static(cls, *, X: pd.DataFrame, **kwargs: Any) -> int:
        """An upper bound in bytes: libraries, the table, the network, tokens of long tables."""
        rows, columns = len(X), min(X.shape[1], MOST_COLUMNS)
        table = TABLE_COPIES * int(X.memory_usage(deep=True).sum())
        network = min(rows * MEMBERS, MAX_ROWS) * ROW_BYTES
        return LIBRARY_BYTES + table + network + rows * columns * HIDDEN_BYTES

    def _more_tags(self) -> dict[str, bool]:
        return {"can_refit_full": True}
