"""Real tables: those scikit-learn carries, and a folder of more where one is named.

`TABICL_LINEAR_TABLES` may name a folder with `index.csv` (columns name, file, n_classes,
target_column) and the parquet files it lists.
"""

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import tiny_model
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split

from tabicl_linear import TabICLLinearClassifier

FOLDER = os.environ.get("TABICL_LINEAR_TABLES")
MAX_ROWS = 400


def _listed() -> list[dict]:
    return [] if FOLDER is None else pd.read_csv(Path(FOLDER) / "index.csv").to_dict("records")


def _fit_and_predict(x, y):
    x_train, x_test, y_train, y_test = train_test_split(x, y, random_state=0, stratify=y)
    classifier = TabICLLinearClassifier(tiny_model.trained(), n_estimators=2)
    return classifier.fit(x_train, y_train), classifier.predict_proba(x_test), y_test


@pytest.mark.filterwarnings("ignore:The table has:UserWarning")
@pytest.mark.parametrize(
    ("load", "least"),
    [(load_breast_cancer, 0.9), (load_wine, 0.9), (load_iris, 0.9), (load_digits, 0.6)],
)
def test_bundled_tables_are_classified_well_above_chance(load, least):
    x, y = load(return_X_y=True, as_frame=True)
    classifier, probabilities, y_test = _fit_and_predict(x, y)
    scores = probabilities[:, 1] if len(classifier.classes_) == 2 else probabilities
    assert roc_auc_score(y_test, scores, multi_class="ovr") > least


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.skipif(FOLDER is None, reason="TABICL_LINEAR_TABLES names no folder")
@pytest.mark.parametrize("entry", _listed(), ids=lambda entry: entry["name"])
def test_listed_tables_are_read_as_they_are(entry):
    frame = pd.read_parquet(Path(FOLDER) / entry["file"])
    target = entry["target_column"]
    counts = frame[target].value_counts()
    frame = frame[frame[target].isin(counts[counts >= 8].index)]
    share = frame.groupby(target, observed=True).sample(
        frac=min(1, MAX_ROWS / len(frame)), random_state=0
    )
    share = share.groupby(target, observed=True).filter(lambda rows: len(rows) >= 4)
    x, y = share.drop(columns=target), share[target]
    classifier, probabilities, y_test = _fit_and_predict(x, y)
    assert probabilities.shape == (len(y_test), y.nunique())
    assert np.isfinite(probabilities).all()
    assert np.allclose(probabilities.sum(1), 1)
    assert set(classifier.classes_) == set(y)
