"""Tables of more rows than the model was pretrained on: one context, blocks, or by evidence."""

import pickle
from collections.abc import Mapping

import numpy as np
import pytest
import tiny_model
from sklearn.base import clone

from tabicl_linear import TabICLLinearClassifier
from tabicl_linear.errors import ConfigError, DataError
from tabicl_linear.estimator import choices
from tabicl_linear.estimator.choices import FULL, LongContext
from tabicl_linear.estimator.learners.blocks import BlockStates
from tabicl_linear.estimator.rows import pieces as rows_in_pieces
from tabicl_linear.model import InContextModel

TRAINED = 50
OPTIONS = {"n_estimators": 2, "device": "cpu"}


def recorded(model, provenance: Mapping):
    model.provenance = provenance
    return model


@pytest.fixture(scope="module")
def model():
    """Trained on tables of at most 50 rows, it says."""
    copied = pickle.loads(pickle.dumps(tiny_model.trained()))
    return recorded(copied, {"trained_rows": [4, TRAINED]})


def table(rows, seed=0, num_classes=2):
    rng = np.random.default_rng(seed)
    y = np.arange(rows) % num_classes
    return rng.normal(size=(rows, 3)) + 2 * y[:, None], y


def make(model, mode, **options):
    return TabICLLinearClassifier(model, long_context=mode, **OPTIONS | options)


@pytest.fixture
def fits(monkeypatch):
    """Rows of every context that a model reads."""
    seen, fit = [], InContextModel.fit

    def counted(self, x, y, **options):
        seen.append(x.shape[1])
        return fit(self, x, y, **options)

    monkeypatch.setattr(InContextModel, "fit", counted)
    return seen


def mislead(monkeypatch, is_misled):
    """Contexts of some lengths teach that each of two classes is the other."""
    fit = InContextModel.fit

    def fit_or_mislead(self, x, y, **options):
        return fit(self, x, 1 - y if is_misled(x.shape[1]) else y, **options)

    monkeypatch.setattr(InContextModel, "fit", fit_or_mislead)


@pytest.mark.parametrize("mode", ["full", "blocks", "auto"])
def test_up_to_the_trained_length_nothing_changes_and_nothing_is_computed_twice(model, fits, mode):
    x, y = table(TRAINED)
    expected = TabICLLinearClassifier(model, **OPTIONS).fit(x, y).predict_proba(x)
    fits.clear()
    classifier = make(model, mode).fit(x, y)
    assert fits == [TRAINED]
    assert classifier.long_context_ == FULL
    np.testing.assert_array_equal(classifier.predict_proba(x), expected)


def test_the_default_reads_all_rows_at_once_without_a_warning(model, fits):
    x, y = table(180)
    classifier = TabICLLinearClassifier(model, **OPTIONS).fit(x, y)
    assert fits == [180]
    assert classifier.long_context_ == FULL


def test_blocks_of_at_most_the_trained_length(model, fits):
    x, y = table(180)
    classifier = make(model, "blocks").fit(x, y)
    assert fits == [45, 45, 45, 45]
    assert classifier.long_context_ == LongContext(4)
    assert classifier.score(x, y) > 0.9
    full = make(model, "full").fit(x, y)
    assert np.abs(full.predict_proba(x) - classifier.predict_proba(x)).max() > 1e-3
    presence = 2 * 4 * 2  # a byte for each member, block and class
    assert classifier.state_nbytes_ == 4 * full.state_nbytes_ + presence


@pytest.mark.parametrize("better", ["blocks", "full"])
def test_evidence_decides(model, monkeypatch, better):
    mislead(monkeypatch, lambda rows: rows > 100 if better == "blocks" else rows < 100)
    x, y = table(150)
    chosen = make(model, "auto", random_state=3).fit(x, y)
    result = chosen.long_context_
    assert (result.choice, result.num_blocks) == (better, 3 if better == "blocks" else 1)
    assert result.held_out_rows == 15
    gain = result.full_log_loss - result.blocks_log_loss
    assert abs(gain) > 2 * result.standard_error > 0
    assert (gain > 0) == (better == "blocks")
    given = make(model, better, random_state=3).fit(x, y)
    np.testing.assert_array_equal(chosen.predict_proba(x), given.predict_proba(x))


def test_what_may_be_noise_does_not_decide(model, monkeypatch):
    x, y = table(180)
    monkeypatch.setattr(choices, "STANDARD_ERRORS", -np.inf)
    assert make(model, "auto").fit(x, y).long_context_.choice == "blocks"
    monkeypatch.setattr(choices, "STANDARD_ERRORS", np.inf)
    assert make(model, "auto").fit(x, y).long_context_.choice == "full"


def test_where_nothing_can_be_compared_the_context_is_one(model, fits, monkeypatch):
    x, y = table(TRAINED + 5)  # without a tenth of the rows it is no longer table
    assert make(model, "auto").fit(x, y).long_context_ == FULL
    assert fits == [TRAINED + 5]
    fits.clear()
    monkeypatch.setattr(choices, "MAX_BLOCKS", 2)
    x, y = table(3 * TRAINED)
    assert make(model, "auto").fit(x, y).long_context_ == FULL
    assert fits == [3 * TRAINED]


def test_a_calibrated_temperature_is_that_of_the_choice(model, monkeypatch):
    mislead(monkeypatch, lambda rows: rows > 100)
    x, y = table(150)
    both = {"softmax_temperature": "auto"}
    chosen, given = (make(model, mode, **both).fit(x, y) for mode in ("auto", "blocks"))
    assert chosen.long_context_.choice == "blocks"
    assert chosen.temperature_ == given.temperature_ != 0.9


@pytest.mark.parametrize("num_classes", [2, 12])
def test_blocks_are_saved_and_pickled(model, num_classes, tmp_path):
    x, y = table(180, num_classes=num_classes)
    classifier = make(model, "blocks").fit(x, y)
    expected = classifier.predict_proba(x)
    assert expected.shape == (180, num_classes)
    np.testing.assert_allclose(expected.sum(1), 1)
    classifier.save(tmp_path / "s")
    loaded = TabICLLinearClassifier.load(tmp_path / "s", model=model, device="cpu")
    for again in (loaded, pickle.loads(pickle.dumps(classifier))):
        assert again.long_context_ == classifier.long_context_
        assert again.state_nbytes_ == classifier.state_nbytes_
        np.testing.assert_array_equal(again.predict_proba(x), expected)


def test_a_table_in_pieces_may_be_read_in_blocks(model, monkeypatch):
    x, y = table(180)
    expected = make(model, "blocks").fit(x, y)
    monkeypatch.setattr(rows_in_pieces, "FIRST_ROWS", 60)
    scaled = make(model, "blocks").fit((x[i : i + 60], y[i : i + 60]) for i in range(0, 180, 60))
    assert scaled.long_context_ == expected.long_context_ == LongContext(4)
    assert all(isinstance(state, BlockStates) for state in scaled.ensemble_.states)
    # Columns are scaled by the first piece alone.
    np.testing.assert_allclose(scaled.predict_proba(x), expected.predict_proba(x), atol=0.1)
    with pytest.raises(ConfigError, match="'auto' needs all rows at once"):
        make(model, "auto").fit((x[i : i + 60], y[i : i + 60]) for i in range(0, 180, 60))


def test_rows_may_follow_one_context_only():
    x, y = table(180)
    causal = recorded(tiny_model.untrained(readout="Causal"), {"trained_rows": [4, TRAINED]})
    for mode in ("blocks", "auto"):
        with pytest.raises(ConfigError, match=f"'{mode}' needs all rows at once: give 'full'"):
            make(causal, mode).partial_fit(x, y)
    blocks = make(causal, "blocks").fit(x, y)
    with pytest.raises(AttributeError) as refusal:
        blocks.partial_fit(x, y)
    assert "long_context='full'" in str(refusal.value.__cause__)
    grown = make(causal, "full").partial_fit(x, y).partial_fit(x, y)
    assert grown.long_context_ == FULL


def test_bad_choices_are_refused(model, monkeypatch):
    x, y = table(180)
    with pytest.raises(ConfigError, match="long_context='half': give one of full, blocks, auto"):
        make(model, "half").fit(x, y)
    unknown = recorded(tiny_model.untrained(), {})
    for mode in ("blocks", "auto"):
        with pytest.raises(ConfigError, match=f"'{mode}'.* does not say how many rows"):
            make(unknown, mode).fit(x, y)
    make(unknown, "full").fit(x, y)
    monkeypatch.setattr(choices, "MAX_BLOCKS", 3)
    with pytest.raises(DataError, match=r"4 blocks for 180 rows.* at most 50.* at most 150 rows"):
        make(model, "blocks").fit(x, y)


def test_a_former_fit_survives_a_refused_one(model):
    x, y = table(180)
    classifier = make(model, "blocks").fit(x, y)
    before = clone(classifier).fit(x, y).predict_proba(x)
    with pytest.raises(ConfigError):
        classifier.set_params(long_context="half").fit(x, y)
    classifier.set_params(long_context="full")
    np.testing.assert_array_equal(classifier.predict_proba(x), before)
    assert classifier.long_context_ == LongContext(4)
