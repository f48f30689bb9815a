"""The baselines of the development tables, by name: estimators that take raw frames.

Only the closed form (random_feature_ridge) encodes tables as our models do.
"""

import os
from collections.abc import Callable
from typing import Any, Self

import numpy.typing as npt
import pandas as pd
from sklearn.base import BaseEstimator, ClassifierMixin

from tabicl_linear.evaluation import baselines


class NativeCatBoost(ClassifierMixin, BaseEstimator):
    """CatBoost with 300 iterations and categorical columns; other settings are its defaults.

    Columns that are not numeric are categorical: values become text, and missing ones a category.
    """

    def fit(self, x: pd.DataFrame, y: npt.NDArray[Any]) -> Self:
        """Fit on a raw frame."""
        from catboost import CatBoostClassifier

        self.categories_ = [name for name in x if not pd.api.types.is_numeric_dtype(x[name])]
        self.booster_ = CatBoostClassifier(
            iterations=300,
            random_seed=0,
            cat_features=self.categories_,
            thread_count=int(os.environ.get("OMP_NUM_THREADS", 1)),
            verbose=False,
            allow_writing_files=False,
        ).fit(self._with_texts(x), y)
        self.classes_ = self.booster_.classes_
        return self

    def predict_proba(self, x: pd.DataFrame) -> npt.NDArray[Any]:
        """Probabilities `[rows, classes]`."""
        return self.booster_.predict_proba(self._with_texts(x))

    def _with_texts(self, x: pd.DataFrame) -> pd.DataFrame:
        """Return the frame with texts in all categorical columns, as CatBoost requires."""
        texts = {
            name: x[name].astype(object).where(x[name].notna(), "nan").astype(str)
            for name in self.categories_
        }
        return x.assign(**texts)


NAMES = (
    "logistic_regression",
    "random_forest",
    "hist_gradient_boosting",
    "random_feature_ridge",
    "catboost",
)
BASELINES: dict[str, Callable[[], ClassifierMixin]] = {
    name: baselines.BASELINES[name].make for name in NAMES
} | {"catboost_300": NativeCatBoost}
VERSIONS = {name: name for name in NAMES} | {"catboost_300": "catboost"}
"""For each name, the package's baseline from which the version of its library is read."""
