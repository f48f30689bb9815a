"""Arguments that classifiers share, where tables come piece by piece."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import tiny_model

from tabicl_linear import RandomFeatureRidge, TabICLLinearClassifier
from tabicl_linear.errors import ConfigError, DataError
from tabicl_linear.estimator.columns.target_rates import RateColumn
from tabicl_linear.estimator.rows import pieces as rows_in_pieces
from tabicl_linear.ridge_inputs import RidgeOptions

OPTIONS = {"n_estimators": 2, "device": "cpu"}
FEW = RidgeOptions(num_tanh=8, num_cosine=8, num_trees=2)


def table(rows=120, num_classes=3):
    """Two columns of numbers, and one of 20 categories that tell the class."""
    rng = np.random.default_rng(0)
    y = np.arange(rows) % num_classes
    frame = pd.DataFrame(rng.normal(size=(rows, 2)) + y[:, None], columns=list("uv"))
    frame["shop"] = [f"shop {label + 3 * rng.integers(7)}" for label in y]
    return frame, y


def pieces(frame, y):
    return ((frame[i : i + 40], y[i : i + 40]) for i in range(0, len(y), 40))


def causal(**options):
    return TabICLLinearClassifier(tiny_model.untrained(readout="Causal"), **OPTIONS, **options)


@pytest.fixture
def small(monkeypatch):
    """Few rows are many."""
    monkeypatch.setattr(rows_in_pieces, "FIRST_ROWS", 40)


def test_a_temperature_cannot_be_calibrated_piece_by_piece(checkpoint, small):
    x, y = table()
    auto = {"softmax_temperature": "auto"}
    with pytest.raises(ConfigError, match="'auto' needs all rows at once"):
        causal(**auto).partial_fit(x, y)
    for classifier in (
        causal(**auto),
        TabICLLinearClassifier(checkpoint, **OPTIONS, **auto),
        RandomFeatureRidge(FEW, **OPTIONS, **auto),
    ):
        with pytest.raises(ConfigError, match="'auto' needs all rows at once"):
            classifier.fit(pieces(x, y))
        assert not hasattr(classifier, "temperature_")


def test_one_calibrated_by_fit_stays_when_rows_follow():
    x, y = table()
    classifier = causal(softmax_temperature="auto").fit(x[:80], y[:80])
    before = classifier.temperature_
    assert classifier.partial_fit(x[80:], y[80:]).temperature_ == before
    assert before != 0.9


@pytest.mark.parametrize(
    ("ensemble", "members", "temperature"), [("default", 8, 0.9), ("paper", 10, 0.8)]
)
def test_presets_hold_for_pieces(ensemble, members, temperature, small):
    x, y = table()
    model = tiny_model.untrained(readout="Causal")
    classifier = TabICLLinearClassifier(model, ensemble=ensemble, device="cpu").fit(pieces(x, y))
    assert len(classifier.ensemble_.views) == members
    assert classifier.temperature_ == temperature


def test_rows_of_classes_are_counted_over_pieces(checkpoint, small):
    x, y = table()
    y = np.where(np.arange(120) % 5 == 0, 0, y)
    counts = np.bincount(y)
    grown = causal(class_weight="balanced").partial_fit(x[:40], y[:40], [0, 1, 2, 3])
    assert grown.class_count_.tolist() == [*np.bincount(y[:40]), 0]
    assert np.isfinite(grown.predict_log_proba(x)).all(), "a class without rows yet"
    grown.partial_fit(x[40:], y[40:])
    assert grown.class_count_.tolist() == [*counts, 0]
    weighted = grown.predict_log_proba(x)
    plain = grown.set_params(class_weight=None).predict_log_proba(x)
    shift = weighted - plain + np.log([*counts, 1])
    np.testing.assert_allclose(shift, shift[:, :1] + np.zeros(4), atol=1e-9)
    for classifier in (causal(), TabICLLinearClassifier(checkpoint, **OPTIONS)):
        assert classifier.fit(pieces(x, y)).class_count_.tolist() == counts.tolist()


def test_weights_of_unknown_classes_are_refused_before_the_fit(checkpoint, small):
    x, y = table()
    wrong = {"class_weight": {"no": 2.0}}
    with pytest.raises(ConfigError, match="'no', which is not a class"):
        causal(**wrong).partial_fit(x, y)
    with pytest.raises(ConfigError, match="'no', which is not a class"):
        TabICLLinearClassifier(checkpoint, **OPTIONS, **wrong).fit(pieces(x, y))


def test_more_classes_than_the_model_takes_need_all_rows_at_once(checkpoint, small):
    x, y = table(num_classes=12)
    with pytest.raises(DataError, match="12 classes, more than a model can take"):
        causal().partial_fit(x, y)
    with pytest.raises(DataError, match="12 classes and the model takes 10"):
        TabICLLinearClassifier(checkpoint, **OPTIONS).fit(pieces(x, y))
    whole = causal().fit(x, y)
    assert not hasattr(whole, "partial_fit")


def test_columns_have_rates_of_classes_only_if_all_rows_are_there(checkpoint, small):
    x, y = table()

    def has_rates(classifier):
        return any(isinstance(c, RateColumn) for c in classifier.preprocessor_.used)

    final = TabICLLinearClassifier(checkpoint, **OPTIONS)
    assert has_rates(final.fit(x, y)), "else the test could not fail"
    assert not has_rates(final.fit(pieces(x, y)))
    assert not has_rates(causal().partial_fit(x, y))


@pytest.mark.parametrize("num_classes", [3, 12])
@pytest.mark.parametrize("options", [{}, {"softmax_temperature": "auto"}])
def test_what_was_learnt_about_classes_is_saved(checkpoint, num_classes, options, tmp_path):
    x, y = table(num_classes=num_classes)
    before = TabICLLinearClassifier(checkpoint, **OPTIONS, **options, class_weight={0: 2.0})
    before.fit(x, y).save(tmp_path / "a.state")
    after = TabICLLinearClassifier.load(tmp_path / "a.state", device="cpu")
    np.testing.assert_array_equal(after.predict_proba(x), before.predict_proba(x))
    assert after.temperature_ == before.temperature_
    assert after.class_count_.tolist() == np.bincount(y).tolist()
    assert after.classes_.tolist() == list(range(num_classes))


def test_frames_of_other_libraries_may_come_in_pieces(small):
    x, y = table()
    given = ((pa.Table.from_pandas(a, preserve_index=False), pa.array(b)) for a, b in pieces(x, y))
    expected = causal().fit(pieces(x, y))
    np.testing.assert_array_equal(causal().fit(given).predict_proba(x), expected.predict_proba(x))


def test_weights_of_rows_are_refused_for_pieces():
    with pytest.raises(ConfigError, match="sample_weight is not supported"):
        causal().fit(pieces(*table()), sample_weight=np.ones(120))
    with pytest.raises(TypeError, match="unexpected keyword argument 'weight'"):
        causal().fit(pieces(*table()), weight=1)


def test_a_fit_draws_one_seed_from_a_generator_and_a_prediction_none():
    x, y = table()
    generator, other = np.random.RandomState(0), np.random.RandomState(0)
    classifier = RandomFeatureRidge(FEW, **OPTIONS, random_state=generator)
    first, second = (classifier.fit(x, y).predict_proba(x) for _ in range(2))
    assert (first != second).any()
    for _ in range(2):
        other.randint(2**31 - 1)
    assert generator.randint(1000, size=9).tolist() == other.randint(1000, size=9).tolist()
