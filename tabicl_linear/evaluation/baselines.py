"""Classifiers to compare with, by name: scikit-learn estimators that take frames.

None is tuned. Libraries are imported only when a baseline is made. Missing numbers are replaced by
the column's mean. Categories of a frame are one-hot encoded for linear models, and become integer
codes for trees.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from typing import Any, NamedTuple

from sklearn.base import ClassifierMixin
from sklearn.compose import ColumnTransformer, make_column_selector, make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler

from tabicl_linear._version import __version__
from tabicl_linear.errors import ConfigError
from tabicl_linear.estimator import random_feature_ridge
from tabicl_linear.estimator.random_feature_ridge import RandomFeatureRidge

NUMBERS = make_column_selector(dtype_include="number")
CATEGORIES = make_column_selector(dtype_include=["category", "object", "string"])
OURS = "tabicl_linear"
SEED = 42
"""Seed of the paper's baselines, as in the authors' code."""


def _one_hot() -> ColumnTransformer:
    numbers = make_pipeline(SimpleImputer(keep_empty_features=True), StandardScaler())
    categories = make_pipeline(
        SimpleImputer(strategy="most_frequent", keep_empty_features=True),
        OneHotEncoder(handle_unknown="ignore"),
    )
    return make_column_transformer((numbers, NUMBERS), (categories, CATEGORIES))


def _codes() -> ColumnTransformer:
    encoder = OrdinalEncoder(
        handle_unknown="use_encoded_value", unknown_value=-1, encoded_missing_value=-2
    )
    return make_column_transformer(
        (SimpleImputer(keep_empty_features=True), NUMBERS), (encoder, CATEGORIES)
    )


def _imputed_codes() -> ColumnTransformer:
    """As in the authors' code: codes, with missing categories replaced by the most frequent one."""
    categories = make_pipeline(
        SimpleImputer(strategy="most_frequent", keep_empty_features=True),
        OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1),
    )
    return make_column_transformer(
        (categories, CATEGORIES), (SimpleImputer(keep_empty_features=True), NUMBERS)
    )


def _logistic_regression(threads: int | None = None) -> Pipeline:
    return make_pipeline(_one_hot(), LogisticRegression(max_iter=1000))


def _random_forest(threads: int | None = None) -> Pipeline:
    return make_pipeline(_codes(), RandomForestClassifier(500, random_state=0, n_jobs=threads))


def _hist_gradient_boosting(threads: int | None = None) -> Pipeline:
    return make_pipeline(_codes(), HistGradientBoostingClassifier(random_state=0))


def _random_feature_ridge(threads: int | None = None) -> RandomFeatureRidge:
    return RandomFeatureRidge(trees=False, n_jobs=threads)


def _ridge_options() -> dict[str, Any]:
    parameters = RandomFeatureRidge(trees=False).get_params()
    return parameters | {"options": asdict(random_feature_ridge.OPTIONS)}


def _catboost(threads: int | None = None) -> Pipeline:
    from catboost import CatBoostClassifier

    booster = CatBoostClassifier(
        iterations=500,
        depth=6,
        learning_rate=0.1,
        loss_function="MultiClass",
        random_seed=SEED,
        thread_count=threads or -1,
        verbose=False,
        allow_writing_files=False,
    )
    return make_pipeline(_imputed_codes(), booster)


def _xgboost(threads: int | None = None) -> Pipeline:
    from xgboost import XGBClassifier

    booster = XGBClassifier(
        n_estimators=500,
        max_depth=6,
        learning_rate=0.1,
        subsample=0.8,
        colsample_bytree=0.8,
        tree_method="hist",
        random_state=SEED,
        n_jobs=threads,
    )
    return make_pipeline(_imputed_codes(), booster)


def _tabpfn(weights: str, threads: int | None = None) -> ClassifierMixin:
    from tabpfn import TabPFNClassifier

    # It has no option for threads: its network uses PyTorch's.
    return TabPFNClassifier(model_path=weights, ignore_pretraining_limits=True, random_state=SEED)


def _tabicl(weights: str, threads: int | None = None) -> ClassifierMixin:
    from tabicl import TabICLClassifier

    return TabICLClassifier(
        model_path=weights, allow_auto_download=False, random_state=SEED, n_jobs=threads
    )


class Baseline(NamedTuple):
    """A classifier to compare with.

    Attributes:
        make: Makes the unfitted classifier for a number of threads; None leaves that to the
            library. If it has weights, their file is the first argument.
        package: Module of its library.
        extra: Whether this project's extra `baselines` installs that library.
        reads_categories: Whether it is told which columns are categories. Otherwise it sees codes
            as numbers, as all models of the paper do.
        has_weights: Whether it needs a file of weights.
        options: Its options as plain data, if they can change without the library's version.
    """

    make: Callable[..., ClassifierMixin]
    package: str = "sklearn"
    extra: bool = False
    reads_categories: bool = False
    has_weights: bool = False
    options: Callable[[], Mapping[str, Any]] | None = None


BASELINES = {
    "logistic_regression": Baseline(_logistic_regression),
    "random_forest": Baseline(_random_forest),
    "hist_gradient_boosting": Baseline(_hist_gradient_boosting),
    "random_feature_ridge": Baseline(
        _random_feature_ridge, OURS, reads_categories=True, options=_ridge_options
    ),
    "catboost": Baseline(_catboost, "catboost", extra=True, reads_categories=True),
    "xgboost": Baseline(_xgboost, "xgboost", extra=True, reads_categories=True),
    "tabpfn": Baseline(_tabpfn, "tabpfn", reads_categories=True, has_weights=True),
    "tabicl": Baseline(_tabicl, "tabicl", reads_categories=True, has_weights=True),
}


NOT_SERVED = {
    "tabflex": "its library (ticl) is installed from its repository alone, fetches its weights "
    "itself and gives labels, not the probabilities that the protocol scores; leave it out."
}
"""Classifiers of the paper that cannot be run here, and why."""


def baseline_version(name: str) -> str:
    """The version of a baseline, on which its results depend besides its weights.

    Returns:
        The version of its library, such as "1.9.1", with its `options_checksum` if it has one:
        "0.1.0, options 1a2b3c4d".

    Raises:
        ConfigError: The library is not installed; the message says what to install.
    """
    baseline = BASELINES[name]
    version = _installed(name, baseline)
    checksum = options_checksum(name)
    return version if checksum is None else f"{version}, options {checksum}"


def options_checksum(name: str) -> str | None:
    """First 8 digits of the SHA-256 of a baseline's options; None if it has no such options."""
    options = BASELINES[name].options
    if options is None:
        return None
    return hashlib.sha256(json.dumps(options(), sort_keys=True).encode()).hexdigest()[:8]


def _installed(name: str, baseline: Baseline) -> str:
    """The installed version of a baseline's library."""
    if baseline.package == OURS:
        return __version__  # also where the package is used without being installed
    if find_spec(baseline.package) is None:
        what = "'tabicl-linear[baselines]'" if baseline.extra else baseline.package
        raise ConfigError(
            f"--baseline {name}: the library {baseline.package} is not installed; "
            f"pip install {what}."
        )
    # The distribution's name may differ from the module's, such as xgboost-cpu.
    (distribution, *_) = distributions()[baseline.package]
    return metadata.version(distribution)


@cache
def distributions() -> Mapping[str, list[str]]:
    """Installed distributions by module name; cached, since it reads every distribution's files."""
    return metadata.packages_distributions()
