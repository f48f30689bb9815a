"""Classifiers to compare with, by name: scikit-learn estimators that take raw frames.

Numbers are imputed by their mean; categories become one column each for linear models and integers
for trees. The closed form alone encodes tables like our models do. Nothing is tuned.
"""

from collections.abc import Callable

from sklearn.base import ClassifierMixin
from sklearn.compose import ColumnTransformer, make_column_selector, make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler

from tabicl_linear import RandomFeatureRidge

NUMBERS = make_column_selector(dtype_include="number")
CATEGORIES = make_column_selector(dtype_include=["category", "object", "string"])


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


def _logistic_regression() -> Pipeline:
    return make_pipeline(_one_hot(), LogisticRegression(max_iter=1000))


def _random_forest() -> Pipeline:
    return make_pipeline(_codes(), RandomForestClassifier(500, random_state=0))


def _hist_gradient_boosting() -> Pipeline:
    return make_pipeline(_codes(), HistGradientBoostingClassifier(random_state=0))


BASELINES: dict[str, Callable[[], ClassifierMixin]] = {
    "logistic_regression": _logistic_regression,
    "random_forest": _random_forest,
    "hist_gradient_boosting": _hist_gradient_boosting,
    "random_feature_ridge": RandomFeatureRidge,
}
