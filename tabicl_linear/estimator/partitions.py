"""Tables in partitions, scored by the workers of a Dask cluster.

The fitted classifier is a constant of the task graph: one worker unpacks it, and each other worker
gets it from there once. Unlike data that is scattered to workers, it is rebuilt if the workers that
hold it are lost.
"""

import copy
import pickle
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from sklearn.utils.validation import check_is_fitted

from tabicl_linear.errors import ConfigError, DataError, counted
from tabicl_linear.estimator.base import EnsembleClassifier

if TYPE_CHECKING:
    from dask.dataframe import DataFrame
    from dask.delayed import Delayed


def dask_predict_proba(classifier: EnsembleClassifier, ddf: "DataFrame") -> "DataFrame":
    """Class probabilities of a partitioned table, computed by Dask when they are needed.

    Every partition is scored as `predict_proba` scores it. Workers need this package installed,
    and each holds the classifier once. A classifier that was fitted with `device=None` uses CUDA on
    workers that have it.

    Args:
        classifier: A fitted classifier.
        ddf: Rows with the columns of the training table, in any order.

    Returns:
        A frame with the index and partitions of `ddf`, not computed yet, and a float64 column
        `proba_<label>` for each class, in the order of `classes_`.

    Raises:
        ConfigError: Dask is not installed.
        NotFittedError: The classifier has not been fitted.
        DataError: The columns are not those of the training table. Values that cannot be used only
            raise when the result is computed.
    """
    try:
        import dask.dataframe  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            f"dask_predict_proba needs dask ({error}): pip install 'tabicl-linear[dask]'."
        ) from error
    check_is_fitted(classifier)
    names = list(ddf.columns)
    classifier.preprocessor_.align(pd.DataFrame(columns=names))
    if len(names) != classifier.n_features_in_:
        raise DataError(
            f"The table has {counted(len(names), 'column')} and the training table had "
            f"{classifier.n_features_in_}: give the same columns."
        )
    meta = pd.DataFrame(columns=names_of(classifier), dtype=np.float64)
    frame: DataFrame = ddf.map_partitions(
        probabilities, broadcast(classifier), meta=meta, enforce_metadata=False
    )
    return frame


def broadcast(classifier: EnsembleClassifier) -> "Delayed":
    """A fitted classifier, without progress bars, as a value of the task graph."""
    from dask import delayed

    quiet = copy.copy(classifier)
    quiet.verbose = 0
    content: Delayed = delayed(pickle.loads, pure=True)(pickle.dumps(quiet))
    return content


def probabilities(rows: pd.DataFrame, classifier: EnsembleClassifier) -> pd.DataFrame:
    """Class probabilities of one partition, which may be empty."""
    shape = (0, len(classifier.classes_))
    values = classifier.predict_proba(rows) if len(rows) else np.empty(shape)
    return pd.DataFrame(values, index=rows.index, columns=names_of(classifier))


def names_of(classifier: EnsembleClassifier) -> list[str]:
    """Names of the columns that hold the probabilities."""
    return [f"proba_{label}" for label in classifier.classes_]
