"""A classifier is fitted and predicts: what it is told, and what is taken down."""

from typing import ClassVar

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, ClassifierMixin

from tabicl_linear.evaluation.timed_fit import try_out


class Told(ClassifierMixin, BaseEstimator):
    """Says which labels it is told."""

    labels: ClassVar[list] = []

    def fit(self, x, y):
        self.labels.append(sorted(set(y.tolist())))
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, x):
        return np.full((len(x), len(self.classes_)), 1 / len(self.classes_))


def test_labels_are_told_as_numbers_from_zero():
    x = pd.DataFrame({"x": np.arange(4.0)})
    trial = try_out(Told(), x, np.array(["q", "p", "q", "z"], dtype=object), x)
    assert Told.labels[-1] == [0, 1, 2]
    assert trial.classes.tolist() == ["p", "q", "z"]
    assert trial.probabilities.shape == (4, 3)
    assert min(trial[2:]) >= 0
