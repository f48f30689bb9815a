"""What the members of the ensemble read from rows, and what they say about others."""

import warnings
from typing import Any

import numpy as np
import numpy.typing as npt

from tabicl_linear.errors import DataError
from tabicl_linear.estimator.arguments import EnsembleArguments
from tabicl_linear.estimator.ensemble import FittedEnsemble, fit_ensemble
from tabicl_linear.estimator.learner import ContextLearner
from tabicl_linear.estimator.memory import retried_smaller
from tabicl_linear.estimator.pooling import calibrated_temperature, held_out_rows
from tabicl_linear.estimator.preprocessing import Table, TablePreprocessor


class ReadTables(EnsembleArguments):
    """Fits members and reads them, as the arguments say."""

    def _read(
        self,
        learner: ContextLearner[Any],
        table: Table,
        codes: npt.NDArray[np.int64],
        seed: int,
    ) -> tuple[TablePreprocessor, FittedEnsemble[Any]]:
        """The columns learnt and the members fitted on rows."""
        preprocessor = self._new_preprocessor(learner)
        matrix = preprocessor.fit_transform(table, codes)
        ensemble = self._members(learner, preprocessor, matrix, codes, seed)
        return preprocessor, self._finished(ensemble, matrix, codes, seed)

    def _new_preprocessor(self, learner: ContextLearner[Any]) -> TablePreprocessor:
        """What is to learn the columns for this learner."""
        return TablePreprocessor(self.categorical_features)

    def _finished(
        self,
        ensemble: FittedEnsemble[Any],
        matrix: npt.NDArray[np.float32],
        codes: npt.NDArray[np.int64],
        seed: int,
    ) -> FittedEnsemble[Any]:
        """The members as they are; subclasses may improve them on the rows that they have read."""
        return ensemble

    def _members(
        self,
        learner: ContextLearner[Any],
        preprocessor: TablePreprocessor,
        matrix: npt.NDArray[np.float32],
        codes: npt.NDArray[np.int64],
        seed: int,
        **options: Any,
    ) -> FittedEnsemble[Any]:
        """The members fitted on encoded rows; `options` as in `fit_ensemble`."""
        return retried_smaller(
            lambda rows: fit_ensemble(
                learner,
                matrix,
                codes,
                categorical=preprocessor.categorical,
                num_members=self._preset.n_estimators,
                seed=seed,
                rows_per_batch=rows,
                progress=self.verbose > 0,
                **options,
            ),
            self._rows_at_a_time(len(matrix)),
            what=f"fitting {len(matrix)} rows x {matrix.shape[1]} columns",
            device=learner.device,
        )

    def _pooled(
        self, ensemble: FittedEnsemble[Any], matrix: npt.NDArray[np.float32], pool: Any
    ) -> npt.NDArray[np.float64]:
        device = self._resolved_device()
        return retried_smaller(
            lambda rows: ensemble.scores(
                matrix,
                pool,
                device=device,
                rows_per_batch=rows,
                progress=self.verbose > 0,
            ),
            self._rows_at_a_time(len(matrix)),
            what=f"predicting {len(matrix)} rows x {matrix.shape[1]} columns",
            device=device,
        )

    def _held_out_logits(
        self,
        learner: ContextLearner[Any],
        table: Table,
        codes: npt.NDArray[np.int64],
        held_out: npt.NDArray[np.bool_],
        seed: int,
    ) -> npt.NDArray[np.float64] | None:
        """Logits `[members, rows, classes]` of some rows after a fit on the others.

        None if the others do not make a table, or not one that these rows fit into.
        """
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # the fit on all rows warns
            try:
                preprocessor, ensemble = self._read(
                    learner, table[~held_out], codes[~held_out], seed
                )
                matrix = preprocessor.transform(table[held_out])
            except DataError:  # of columns that hold their only other values in these few rows
                return None
        return self._pooled(ensemble, matrix, lambda member_logits: member_logits)

    def _temperature(
        self,
        learner: ContextLearner[Any],
        table: Table,
        codes: npt.NDArray[np.int64],
        seed: int,
    ) -> float:
        """The temperature, for "auto" calibrated on rows held out from a first fit."""
        fixed = self._preset.softmax_temperature
        if self.softmax_temperature != "auto":
            return fixed
        held_out = held_out_rows(codes, seed)
        if not held_out.any():
            return fixed
        logits = self._held_out_logits(learner, table, codes, held_out, seed)
        if logits is None:
            return fixed
        return calibrated_temperature(
            logits, codes[held_out], fixed=fixed, average_logits=self.average_logits
        )
