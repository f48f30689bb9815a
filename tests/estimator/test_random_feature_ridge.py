"""The closed form alone, against its own definition; test_sklearn_checks has it as a classifier."""

import pickle

import numpy as np
import pytest
import torch
from scipy.special import softmax
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.model_selection import train_test_split

from tabicl_linear import RandomFeatureRidge
from tabicl_linear.embedding.statistics import context_statistics
from tabicl_linear.errors import ConfigError, DataError
from tabicl_linear.estimator.random_feature_ridge import COLUMNS
from tabicl_linear.kernels.state import num_bytes
from tabicl_linear.ridge_inputs import RidgeInputs, RidgeOptions

SMALL = RidgeOptions(num_tanh=16, num_cosine=16, num_trees=4)
TABLE = np.random.default_rng(0).normal(size=(12, 2))


@pytest.fixture(scope="module")
def wine():
    table, labels = load_wine(return_X_y=True)
    return train_test_split(table, labels, random_state=0, stratify=labels)


@pytest.fixture(scope="module")
def fitted(wine):
    return RandomFeatureRidge(trees=False, n_estimators=3).fit(wine[0], wine[2])


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_probabilities_are_the_softmax_of_the_mean_logits_of_ridge_inputs(wine, temperature):
    train, test, labels, _ = wine
    train, test = np.round(train), np.round(test)
    classifier = RandomFeatureRidge(
        SMALL, n_estimators=3, softmax_temperature=temperature, categorical_features=[0, 5]
    )
    probabilities = classifier.fit(train, labels).predict_proba(test)
    ensemble, preprocessor = classifier.ensemble_, classifier.preprocessor_
    total = np.zeros(probabilities.shape)
    for view in ensemble.views:
        tables = []
        for rows in (train, test):
            plain = preprocessor.transform(rows)
            matrix = ensemble.power.transform(plain) if view.power else plain
            tables.append(torch.from_numpy(matrix[:, view.columns])[None])
        order = view.row_order(len(train))
        x, queries = tables[0][:, order], tables[1]
        y = torch.from_numpy((labels[order] + view.class_shift) % 3)[None]
        categorical = torch.from_numpy(np.isin(view.columns, [0, 5]))[None]
        statistics = context_statistics(x, y, categorical, num_features=None)
        ridge = RidgeInputs(SMALL, num_features=COLUMNS, num_classes=3, dim=8)
        state = ridge.open(x, y, statistics).state
        logits = ridge.query(queries, state, statistics).logits()[0].double().numpy()
        total += np.roll(logits, -view.class_shift, axis=1)
    expected = softmax(total / 3 / temperature, axis=1)
    np.testing.assert_allclose(probabilities, expected, atol=1e-5)


@pytest.mark.parametrize("load", [load_breast_cancer, load_iris, load_wine])
def test_real_tables(load):
    table, labels = load(return_X_y=True)
    train, test, train_labels, test_labels = train_test_split(
        table, labels, random_state=0, stratify=labels
    )
    classifier = RandomFeatureRidge().fit(train, train_labels)
    assert classifier.score(test, test_labels) > 0.93


def test_any_number_of_classes():
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(30), 6)
    table = rng.normal(size=(30, 8))[labels] * 3 + rng.normal(size=(180, 8))
    classifier = RandomFeatureRidge(n_estimators=4).fit(table[::2], labels[::2])
    probabilities = classifier.predict_proba(table[1::2])
    assert probabilities.shape == (90, 30)
    assert (probabilities.argmax(1) == labels[1::2]).mean() > 0.8


def test_hundreds_of_classes_share_one_factor_of_logits():
    labels = np.repeat(np.arange(200), 2)
    rows = labels[:, None] + np.random.default_rng(0).normal(size=(400, 2))
    classifier = RandomFeatureRidge(trees=False, n_estimators=1).fit(rows, labels)
    assert classifier.ensemble_.model.regressions.options.calibration == "confidence"
    learners = RandomFeatureRidge(trees=False)._learners()
    few, many = (learners.for_table(count, len(rows)) for count in (50, 51))
    assert few.regressions.options.calibration == "logistic"
    assert many.regressions.options.calibration == "confidence"


def test_members_see_max_columns():
    table, labels = load_digits(return_X_y=True)
    table, labels = table[:400], labels[:400]
    options = {"options": SMALL, "n_estimators": 3}
    with pytest.warns(UserWarning, match="has 56 usable columns and the model takes 40") as told:
        classifier = RandomFeatureRidge(**options).fit(table, labels)
    assert len(told) == 1
    assert told[0].filename == __file__
    assert {len(view.columns) for view in classifier.ensemble_.views} == {40}
    all_columns = RandomFeatureRidge(max_columns=64, **options).fit(table, labels)
    assert {len(view.columns) for view in all_columns.ensemble_.views} == {56}


def test_pickles_and_clones_predict_the_same(fitted, wine):
    train, test, labels, _ = wine
    expected = fitted.predict_proba(test)
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict_proba(test), expected)
    np.testing.assert_array_equal(clone(fitted).fit(train, labels).predict_proba(test), expected)
    other = clone(fitted).set_params(options=RidgeOptions(seed=1)).fit(train, labels)
    assert np.abs(other.predict_proba(test) - expected).max() > 1e-4


@pytest.mark.parametrize("rows_per_batch", [1, 12, 150, 100_000])
def test_predictions_do_not_depend_on_pieces_or_order(fitted, wine, rows_per_batch):
    train, test, labels, _ = wine
    expected = fitted.predict_proba(test)
    pieces = clone(fitted).set_params(rows_per_batch=rows_per_batch).fit(train, labels)
    order = np.random.default_rng(0).permutation(len(test))
    np.testing.assert_allclose(pieces.predict_proba(test[order]), expected[order], atol=1e-5)
    np.testing.assert_allclose(pieces.predict_proba(test[:1]), expected[:1], atol=1e-5)


def test_the_state_does_not_grow_with_the_rows(fitted, wine):
    train, _, labels, _ = wine
    longer = clone(fitted).fit(np.repeat(train, 6, axis=0), np.repeat(labels, 6))
    assert longer.state_bytes_ == fitted.state_bytes_
    assert fitted.state_bytes_ == num_bytes(fitted.ensemble_.states) // 3
    # Of three sets of all features, 13 columns and 3 classes, in float64.
    weights = 3 * (6 * 13 + 96 + 96 + 24 * 2**4) * 3 * 8
    assert weights < fitted.state_bytes_ < 1.05 * weights


def test_random_states_are_left_alone(wine):
    train, test, labels, _ = wine
    numpy_state, torch_state = np.random.get_state()[1].copy(), torch.get_rng_state()  # noqa: NPY002
    RandomFeatureRidge(SMALL, n_estimators=2).fit(train, labels).predict(test)
    assert (np.random.get_state()[1] == numpy_state).all()  # noqa: NPY002
    assert torch.equal(torch.get_rng_state(), torch_state)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_estimators": 0}, "n_estimators=0: give a positive integer"),
        ({"max_columns": 2.5}, r"max_columns=2\.5: give a positive integer"),
        ({"options": 3}, "options=3: give RidgeOptions, or None"),
        ({"options": RidgeOptions(form="earlier_rows")}, "form='earlier_rows' .*'leave_one_out'"),
    ],
)
def test_bad_arguments(options, message):
    with pytest.raises(ConfigError, match=message):
        RandomFeatureRidge(**options).fit(TABLE, [0, 1] * 6)


def test_one_class_is_refused_and_nothing_changed():
    classifier = RandomFeatureRidge(SMALL)
    before = dict(vars(classifier))
    with pytest.raises(DataError, match="one class only"):
        classifier.fit(TABLE, np.zeros(12))
    assert dict(vars(classifier)) == before
