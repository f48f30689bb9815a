"""Scores a checkpoint, the closed form alone and two classic models on bundled tables."""

import math
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import ClassifierMixin
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, roc_auc_score
from sklearn.model_selection import StratifiedKFold, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from tqdm import tqdm

from tabicl_linear import RandomFeatureRidge, TabICLLinearClassifier, load_model
from tabicl_linear.pages import markdown

# The demo uses more rows and columns than the small model was made for, to show what happens; the
# classifier's warnings about them are correct, but would bury the result.
warnings.filterwarnings("ignore", message="The table has", category=UserWarning)

SEED = 42
Table = tuple[np.ndarray, np.ndarray]
SIZES = (16, 32, 64, 128, 256, 512, 1024)
TESTED_ROWS = 500
"""Small tables are split anew until as many rows are predicted: of the 30 rows that a fold of iris
tests, one pair in the wrong order moves ROC-AUC by 0.002 or more."""
OURS = "tabicl_linear"
LOADERS = {
    "breast_cancer": load_breast_cancer,  # OpenML 1510
    "wine": load_wine,
    "iris": load_iris,
    "digits": load_digits,
}


def bundled_tables(names: Sequence[str]) -> dict[str, Table]:
    """Features and labels of tables that come with scikit-learn."""
    return {name: LOADERS[name](return_X_y=True) for name in names}


def classifiers(checkpoint: Path) -> Iterator[tuple[str, ClassifierMixin]]:
    """Name and unfitted classifier; seeds are fixed and nothing is tuned."""
    model = load_model(checkpoint)
    yield OURS, TabICLLinearClassifier(model)
    # What the ridge inputs of the model would predict without its network.
    yield "closed form", RandomFeatureRidge(trees=False, max_columns=model.max_columns)
    yield "logistic regression", make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000))
    yield "random forest", RandomForestClassifier(n_estimators=200, random_state=0)


def score_tables(checkpoint: Path, tables: Mapping[str, Table], *, folds: int) -> pd.DataFrame:
    """ROC-AUC (one against rest, weighted) and accuracy by table, model and stratified fold.

    Every row is tested once in each repetition, and small tables are repeated (`TESTED_ROWS`);
    folds count on from one repetition to the next.
    """
    rows = []
    for table, (x, y) in tqdm(tables.items(), desc="tables", disable=not sys.stderr.isatty()):
        for fold, (train, test) in enumerate(_splits(x, y, folds)):
            for model, classifier in classifiers(checkpoint):
                classifier.fit(x[train], y[train])
                scores = _scores(classifier, x[test], y[test])
                rows.append({"table": table, "model": model, "fold": fold, **scores})
    return pd.DataFrame(rows)


def score_context_sizes(checkpoint: Path, tables: Mapping[str, Table]) -> pd.DataFrame:
    """Accuracy on a fixed test quarter of every table, fitted on increasing numbers of rows."""
    rows = []
    for table, (x, y) in tables.items():
        x_train, x_test, y_train, y_test = train_test_split(
            x, y, test_size=0.25, random_state=SEED, stratify=y
        )
        for size in (*[s for s in SIZES if s < 0.8 * len(y_train)], len(y_train)):
            if len(np.unique(y_train[:size])) < len(np.unique(y_train)):
                continue
            for model, classifier in classifiers(checkpoint):
                classifier.fit(x_train[:size], y_train[:size])
                scores = _scores(classifier, x_test, y_test)
                rows.append({"table": table, "model": model, "rows": size, **scores})
    return pd.DataFrame(rows)


def _splits(x: np.ndarray, y: np.ndarray, folds: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    for seed in range(SEED, SEED + math.ceil(TESTED_ROWS / len(y))):
        yield from StratifiedKFold(folds, shuffle=True, random_state=seed).split(x, y)


def summary(scores: pd.DataFrame) -> str:
    """A markdown table: mean over folds, ROC-AUC and accuracy, a row for each table."""
    means = scores.groupby(["table", "model"], sort=False)[["roc_auc", "accuracy"]].mean()
    wide = means.unstack("model")
    wide.loc["mean"] = wide.mean()
    models = list(dict.fromkeys(scores["model"]))
    header = ["", *(f"{model} {metric}" for metric in ("AUC", "acc") for model in models)]
    columns = [(metric, model) for metric in ("roc_auc", "accuracy") for model in models]
    rows = [
        [str(name), *(f"{row[column]:.3f}" for column in columns)] for name, row in wide.iterrows()
    ]
    return markdown(header, rows)


def _scores(classifier: Any, x: np.ndarray, y: np.ndarray) -> dict[str, float]:
    probabilities = classifier.predict_proba(x)
    if probabilities.shape[1] == 2:
        roc_auc = roc_auc_score(y, probabilities[:, 1])
    else:
        roc_auc = roc_auc_score(y, probabilities, multi_class="ovr", average="weighted")
    labels = classifier.classes_[probabilities.argmax(1)]
    return {"roc_auc": float(roc_auc), "accuracy": float(accuracy_score(y, labels))}
