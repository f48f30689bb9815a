"""Tables that come in pieces: the states of the whole, under what the first piece taught."""

import numpy as np
import pandas as pd
import pytest
import tiny_model
import torch
from contract.variants import AXES, make, served
from sklearn.metrics import accuracy_score, log_loss
from sklearn.utils import estimator_checks
from tolerances import RMS, assert_close

from tabicl_linear import RandomFeatureRidge, TabICLLinearClassifier
from tabicl_linear.analysis.prequential import prequential_figure
from tabicl_linear.errors import ConfigError, DataError, UnsupportedReadout
from tabicl_linear.estimator.members import ensemble
from tabicl_linear.estimator.members.ensemble import as_seen
from tabicl_linear.kernels.state import tensors

CAUSAL = [
    mixer
    for mixer, readout in served()
    if readout == "causal" and "+" not in mixer and mixer != "SoftmaxAttention"
]
CLASSES = np.array(["a", "b", "c"])


def table(rows, seed=0):
    """Four columns, one of them text, with gaps; rows of a class look alike."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, rows)
    y[:3] = range(3)
    frame = pd.DataFrame(rng.normal(size=(rows, 3)) + y[:, None], columns=list("uvw"))
    frame["text"] = np.array(["red", "green", "blue"])[rng.integers(0, 3, rows)]
    frame.loc[4, "u"] = np.nan
    return frame, CLASSES[y]


def grown(model, x, y, ends, **options):
    options = {"n_estimators": 2, "device": "cpu"} | options
    classifier = TabICLLinearClassifier(model, **options)
    for start, end in zip((0, *ends), (*ends, len(x)), strict=True):
        classifier.partial_fit(x.iloc[start:end], y[start:end], CLASSES)
    return classifier


def assert_same_states(a, b):
    for left, right in zip(tensors(a), tensors(b), strict=True):
        finite = right.isfinite()
        assert torch.equal(left.isfinite(), finite)
        assert_close(left[finite].double(), right[finite].double(), RMS[torch.float64])


@pytest.mark.parametrize(
    ("mixer", "axis"),
    [(m, "row") for m in CAUSAL]
    + [("DeltaNet", a) for a in AXES if "ridge" not in a or "earlier" in a],
)
def test_pieces_give_the_states_of_the_whole(mixer, axis):
    """Of any length, down to one row; "whole" is what follows the first piece at once."""
    x, y = table(70)
    model = make(mixer, "causal", axis=axis)
    pieces = grown(model, x, y, (30, 31, 50))
    whole = grown(model, x, y, (30,))
    assert_same_states(pieces.ensemble_.states, whole.ensemble_.states)
    queries = table(20, seed=1)[0]
    np.testing.assert_allclose(
        pieces.predict_proba(queries), whole.predict_proba(queries), atol=RMS[torch.float64]
    )
    assert pieces.n_samples_seen_ == 70


@pytest.mark.parametrize("mixer", CAUSAL)
def test_they_are_those_of_one_fit_with_the_statistics_of_the_first_piece(mixer):
    x, y = table(60)
    fitted = grown(make(mixer, "causal"), x, y, (30, 41))
    ensemble = fitted.ensemble_
    matrix = fitted.preprocessor_.transform(x)
    codes = np.searchsorted(CLASSES, y)
    powered = ensemble.power.transform(matrix)
    for member, view in enumerate(ensemble.views):
        seen = (powered if view.power else matrix)[None][..., view.columns]
        state = type(ensemble.states[0])(
            *(
                None if part is None else type(part)(*(t[member : member + 1] for t in part))
                for part in (None, ensemble.states[0].statistics)
            )
        )
        whole = ensemble.model.fit(
            torch.from_numpy(seen),
            torch.from_numpy((codes + view.class_shift) % 3)[None],
            statistics=state.statistics,
        )
        every = [t[member : member + 1] for t in tensors(ensemble.states[0].layers)]
        assert_same_states(tuple(every), tuple(tensors(whole.layers)))


def test_what_follows_depends_on_the_labels():
    """Else the tests above could not fail."""
    x, y = table(70)
    model = make("DeltaNet", "causal")
    other = y.copy()
    other[30:] = np.roll(y[30:], 1)
    queries = table(20, seed=1)[0]
    first, second = (grown(model, x, labels, (30, 50)) for labels in (y, other))
    assert np.abs(first.predict_proba(queries) - second.predict_proba(queries)).max() > 1e-3


def test_a_fit_can_be_continued():
    x, y = table(60)
    classifier = TabICLLinearClassifier(make("DeltaNet", "causal"), n_estimators=2)
    classifier.fit(x[:40], y[:40])
    before = classifier.ensemble_
    classifier.partial_fit(x[40:], y[40:])
    assert [state.layers[0].num_tokens for state in classifier.ensemble_.states] == [60]
    assert [state.layers[0].num_tokens for state in before.states] == [40]
    assert classifier.n_samples_seen_ == 60
    classifier.fit(x[:50], y[:50])  # starts anew
    assert classifier.n_samples_seen_ == 50


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ensemble", "paper"),
        ("n_estimators", 3),
        ("long_context", "blocks"),
        ("categorical_features", ["u"]),
        ("random_state", 1),
        ("softmax_temperature", "auto"),
    ],
)
def test_what_only_a_fit_can_obey_is_refused_when_rows_follow(name, value):
    x, y = table(60)
    classifier = TabICLLinearClassifier(make("DeltaNet", "causal"), n_estimators=2)
    classifier.fit(x[:40], y[:40]).set_params(**{name: value})
    with pytest.raises(ConfigError, match=f"{name}=.*: the rows so far were read with {name}="):
        classifier.partial_fit(x[40:], y[40:])
    assert classifier.n_samples_seen_ == 40


def test_more_rows_are_written_in_the_order_given(monkeypatch):
    """After `fit`, too, in which every member has written them in an order of its own."""
    x, y = table(60)
    classifier = TabICLLinearClassifier(make("DeltaNet", "causal"), n_estimators=2)
    classifier.fit(x[:40], y[:40])
    assert all(view.row_seed is not None for view in classifier.ensemble_.views)
    orders = []

    def recorded(members, views, rows, spill):
        orders.extend(view.row_order(len(rows.matrix)).tolist() for view in views)
        return as_seen(members, views, rows, spill)

    monkeypatch.setattr(ensemble, "as_seen", recorded)
    classifier.partial_fit(x[40:], y[40:])
    assert orders == [list(range(20))] * 2


@pytest.mark.parametrize("axis", ["ridge_earlier_row", "ridge_earlier_logistic"])
def test_saving_in_between_changes_nothing(axis, tmp_path):
    x, y = table(60)
    model = make("DeltaNet", "causal", axis=axis)
    one = grown(model, x[:40], y[:40], (20,))
    one.save(tmp_path / "s")
    two = TabICLLinearClassifier.load(tmp_path / "s", model=model, device="cpu")
    for classifier in (one, two):
        classifier.partial_fit(x[40:], y[40:])
    np.testing.assert_array_equal(one.predict_proba(x), two.predict_proba(x))
    assert one.state_nbytes_ == two.state_nbytes_


def test_the_size_stays():
    x, y = table(200)
    small = grown(make("DeltaNet", "causal"), x[:40], y[:40], (20,))
    large = grown(make("DeltaNet", "causal"), x, y, (20,))
    assert small.state_nbytes_ == large.state_nbytes_


def test_classes_may_be_announced_before_they_occur():
    x, y = table(60)
    first = y != "b"
    model = make("DeltaNet", "causal", axis="coded_row")  # gives absent classes no probability
    classifier = TabICLLinearClassifier(model, n_estimators=3, device="cpu")
    classifier.partial_fit(x[first], y[first], classes=["c", "b", "a"])
    assert classifier.classes_.tolist() == ["a", "b", "c"]
    announced = classifier.predict_proba(x)
    share = 0.5 / (first.sum() + 1.5)  # half a row of all rows and of half a row for each class
    np.testing.assert_allclose(announced[:, 1], share, rtol=1e-6)
    np.testing.assert_allclose(announced.sum(1), 1, rtol=1e-6)
    assert announced[:, [0, 2]].min() > share
    classifier.partial_fit(x[~first], y[~first])
    assert (abs(classifier.predict_proba(x)[:, 1] / share - 1) > 1e-3).all()


def test_one_class_may_come_first_if_others_are_announced():
    x, y = table(60)
    model = make("DeltaNet", "causal")
    with pytest.raises(DataError, match=r"one class only \('a'\).*partial_fit\(X, y, classes"):
        TabICLLinearClassifier(model).partial_fit(x[y == "a"], y[y == "a"])
    fitted = TabICLLinearClassifier(model, n_estimators=1)
    assert fitted.partial_fit(x[y == "a"], y[y == "a"], classes=CLASSES).classes_.tolist() == [
        "a",
        "b",
        "c",
    ]


def test_new_categories_are_unknown_ones_and_dropped_columns_stay_dropped():
    x, y = table(60)
    x["late"] = [0.0] * 30 + list(range(30))
    late = x.copy()
    late.loc[40:, "text"] = "violet"
    last = late.copy()
    last.loc[40:, "text"] = "orange"
    last.loc[35:, "late"] = 7.0
    fitted = []
    for each in (x, late, last):
        with pytest.warns(UserWarning, match="first rows said nothing in columns 'late'"):
            fitted.append(grown(make("DeltaNet", "causal"), each, y, (30,)))
    present, new, same = fitted
    np.testing.assert_array_equal(new.predict_proba(x), same.predict_proba(x))
    assert np.abs(present.predict_proba(x) - new.predict_proba(x)).max() > 1e-6


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x, y: (x.drop(columns="v"), y), "missing 'v'"),
        (lambda x, y: (x.assign(more=1.0), y), "unknown 'more'"),
        (lambda x, y: (x.assign(v="text"), y), "'v' held numbers"),
        (lambda x, y: (x, np.where(y == "a", "new", y)), r"'new'.*announce all classes"),
        (lambda x, y: (x, y[:-1]), "inconsistent"),
        (lambda x, y: (x, [None, *y[1:]]), "missing"),
        (lambda x, y: (x[:0], y[:0]), "0 rows|0 sample"),
        (lambda x, y: (x, y, ["a", "b"]), r"\['a', 'b'\] differ from those of the first call"),
    ],
)
def test_a_failed_call_changes_nothing(change, message):
    x, y = table(60)
    classifier = grown(make("DeltaNet", "causal"), x[:40], y[:40], (20,))
    before, answers = dict(vars(classifier)), classifier.predict_proba(x)
    with pytest.raises(ValueError, match=message):
        classifier.partial_fit(*change(x[40:], y[40:]))
    assert vars(classifier) == before
    np.testing.assert_array_equal(classifier.predict_proba(x), answers)


def test_a_failed_first_call_leaves_it_unfitted():
    x, y = table(60)
    classifier = TabICLLinearClassifier(make("DeltaNet", "causal"), n_estimators=2)
    before = dict(vars(classifier))
    with pytest.raises(DataError, match="not one of the classes"):
        classifier.partial_fit(x, y, classes=["a", "b"])
    assert vars(classifier) == before


@pytest.mark.parametrize("classes", [[], ["a"], "ab", {"a", None}, [["a"], ["a", "b"]], iter("ab")])
def test_announced_classes_that_are_none_are_called_so(classes):
    x, y = table(20)
    with pytest.raises(DataError, match=r"^classes=.*: .* Give all class labels"):
        TabICLLinearClassifier(trees=True).partial_fit(x, y, classes=classes)


def test_announced_classes_may_be_a_set():
    x, y = table(20)
    classifier = TabICLLinearClassifier(trees=True).partial_fit(x, y, classes={"c", *y})
    assert classifier.classes_.tolist() == sorted({"c", *y})


def test_a_model_that_cannot_says_which_can(checkpoint):
    x, y = table(60)
    for classifier in (
        TabICLLinearClassifier(checkpoint),
        TabICLLinearClassifier(checkpoint, n_estimators=1).fit(x, y),
    ):
        assert not hasattr(classifier, "partial_fit")
        with pytest.raises(AttributeError, match="no attribute 'partial_fit'") as refusal:
            classifier.partial_fit(x, y)
        cause = str(refusal.value.__cause__)
        assert "readouts.Causal" in cause
        assert "model='streaming'" in cause
    ridge = tiny_model.untrained(readout="Causal", ridge_inputs={"num_tanh": 8, "num_trees": 2})
    with pytest.raises(AttributeError) as refusal:
        TabICLLinearClassifier(ridge).partial_fit(x, y)
    assert "ridge_inputs.form: earlier_rows" in str(refusal.value.__cause__)
    assert not hasattr(RandomFeatureRidge(), "partial_fit")
    assert hasattr(TabICLLinearClassifier("missing.ckpt"), "partial_fit")
    with pytest.raises(ValueError, match=r"missing\.ckpt"):
        TabICLLinearClassifier("missing.ckpt").partial_fit(x, y)


@pytest.mark.parametrize(
    "check",
    [
        estimator_checks.check_estimators_partial_fit_n_features,
        estimator_checks.check_n_features_in_after_fitting,
        estimator_checks.check_fit_score_takes_y,
    ],
)
def test_scikit_learn_checks_that_call_it(check):
    model = tiny_model.untrained(readout="Causal")
    check("TabICLLinearClassifier", TabICLLinearClassifier(model, n_estimators=2))


@pytest.mark.parametrize("class_weight", [None, {"a": 1e-300}])
def test_every_piece_is_scored_before_it_is_read(class_weight):
    """Probabilities of about 0 cost as much as they do in scikit-learn."""
    x, y = table(60)
    options = {"n_estimators": 2, "class_weight": class_weight}
    classifier = TabICLLinearClassifier(make("DeltaNet", "causal"), **options)
    classifier.partial_fit(x[:20], y[:20], CLASSES, prequential=True)
    assert classifier.prequential_.empty
    expected = []
    for start, end in ((20, 45), (45, 60)):
        before = classifier.predict_proba(x[start:end])
        expected.append(
            {
                "rows_seen": start,
                "rows": end - start,
                "log_loss": log_loss(y[start:end], before, labels=CLASSES),
                "accuracy": accuracy_score(y[start:end], CLASSES[before.argmax(1)]),
            }
        )
        classifier.partial_fit(x[start:end], y[start:end], prequential=True)
    pd.testing.assert_frame_equal(classifier.prequential_, pd.DataFrame(expected))


def test_scores_are_optional_and_change_nothing(tmp_path):
    x, y = table(60)
    model = make("DeltaNet", "causal")
    plain, scored = grown(model, x[:40], y[:40], (20,)), grown(model, x[:40], y[:40], (20,))
    plain.partial_fit(x[40:], y[40:])
    scored.partial_fit(x[40:], y[40:], prequential=True)
    assert plain.prequential_.empty
    np.testing.assert_array_equal(plain.predict_proba(x), scored.predict_proba(x))
    scored.save(tmp_path / "s")
    again = TabICLLinearClassifier.load(tmp_path / "s", model=model)
    pd.testing.assert_frame_equal(again.prequential_, scored.prequential_)
    again.fit(x, y)
    assert again.prequential_.empty
    figure = prequential_figure(scored.prequential_)
    assert [axes.get_ylabel() for axes in figure.axes] == ["log-loss", "accuracy"]
    line = figure.axes[0].lines[0].get_xydata()
    np.testing.assert_allclose(line, [[40, scored.prequential_.log_loss[0]]])


def test_arguments_are_checked_first():
    x, y = table(30)
    with pytest.raises(ConfigError, match="n_estimators"):
        TabICLLinearClassifier(make("DeltaNet", "causal"), n_estimators=0).partial_fit(x, y)
    with pytest.raises(UnsupportedReadout):
        make("DeltaNet", "final_state").check_extensible()
