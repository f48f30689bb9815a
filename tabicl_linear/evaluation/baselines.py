"""Classifiers to compare with, by name: scikit-learn estimators that take frames.

Nothing is tuned. Libraries are imported when a baseline is made, never before. Numbers are imputed
by their mean; what a frame has as categories becomes one column each for linear models and codes
for trees.
"""

from collections.abc import Callable
from importlib import metadata
from importlib.util import find_spec
from typing import NamedTuple

from sklearn.base import ClassifierMixin
from sklearn.compose import ColumnTransformer, make_column_selector, make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler

from tabicl_linear.errors import ConfigError
from tabicl_linear.estimator.random_feature_ridge import RandomFeatureRidge

NUMBERS = make_column_selector(dtype_include="number")
CATEGORIES = make_column_selector(dtype_include=["category", "object", "string"])
SEED = 42
"""Of the baselines that the paper has, as in its authors' code."""


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
    """As in the authors' code: a missing category becomes the most frequent one."""
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
    return RandomFeatureRidge(n_jobs=threads)


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

    # It has no number of threads for the network, only PyTorch's own.
    return TabPFNClassifier(model_path=weights, ignore_pretraining_limits=True, random_state=SEED)


def _tabicl(weights: str, threads: int | None = None) -> ClassifierMixin:
    from tabicl import TabICLClassifier

    return TabICLClassifier(
        model_path=weights, allow_auto_download=False, random_state=SEED, n_jobs=threads
    )


class Baseline(NamedTuple):
    """A classifier to compare with.

    Attributes:
        make: Makes it, unfitted, for a number of threads; None leaves that to the library. Takes
            the file of its weights first where it has some.
        package: Module of its library.
        extra: Whether that is one of this project's extra `baselines`.
        reads_categories: Whether it is told which columns are categories. The others see codes as
            numbers, as all models of the paper do.
        has_weights: Whether it needs a file of weights.
    """

    make: Callable[..., ClassifierMixin]
    package: str = "sklearn"
    extra: bool = False
    reads_categories: bool = False
    has_weights: bool = False


BASELINES = {
    "logistic_regression": Baseline(_logistic_regression),
    "random_forest": Baseline(_random_forest),
    "hist_gradient_boosting": Baseline(_hist_gradient_boosting),
    "random_feature_ridge": Baseline(_random_feature_ridge, reads_categories=True),
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


def installed_version(name: str) -> str:
    """Version of the library of a baseline.

    Raises:
        ConfigError: It is not installed; says what to install.
    """
    baseline = BASELINES[name]
    if find_spec(baseline.package) is None:
        what = "'tabicl-linear[baselines]'" if baseline.extra else baseline.package
        raise ConfigError(
            f"--baseline {name}: the library {baseline.package} is not installed; "
            f"pip install {what}."
        )
    # The distribution may have another name than the module, such as xgboost-cpu.
    (distribution, *_) = metadata.packages_distributions()[baseline.package]
    return metadata.version(distribution)
