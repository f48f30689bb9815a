"""States are optimised on rows that they have read, and judged by rows that they have not."""

import numpy as np
import pandas as pd
import pytest
import torch
from contract.variants import make
from tolerances import RMS
from torch.nn.functional import cross_entropy

from tabicl_linear import TabICLLinearClassifier
from tabicl_linear.analysis import OracleOptions, state_optimisation
from tabicl_linear.errors import ConfigError
from tabicl_linear.estimator import refinement
from tabicl_linear.estimator.choices import held_out_rows
from tabicl_linear.estimator.columns.preprocessor import TablePreprocessor
from tabicl_linear.estimator.members.ensemble import Encoded, as_seen, fit_ensemble
from tabicl_linear.estimator.refinement import HELD_OUT_FRACTION, refined
from tabicl_linear.kernels.state import tensors
from tabicl_linear.model import InContextModel

COLUMNS = ["member", "digit", "passes", "training_loss", "held_out_loss", "relative_update"]
COLUMNS += ["best", "used"]
PIECES = r"refine=True .* piece by piece"
VARIANTS = [
    ("DeltaNet", "final_state", "row"),
    ("DeltaNet", "final_state", "ridge_cells"),
    ("DeltaNet", "causal", "ridge_earlier_row"),
    ("DeltaNet+decay+conv", "bidirectional", "row"),
    ("GatedLinearAttention", "causal", "coded_row"),
    ("Mamba2", "final_state", "row"),
]


def table(rows=60, seed=0, classes=3):
    """Three columns, one of them text, with a gap; rows of a class look alike."""
    rng = np.random.default_rng(seed)
    y = np.arange(rows) % classes
    frame = pd.DataFrame(rng.normal(size=(rows, 2)) + y[:, None], columns=list("uv"))
    frame["text"] = np.array(["red", "green", "blue"])[rng.integers(0, 3, rows)]
    frame.loc[4, "u"] = np.nan
    return frame, np.array(list("abcdefghijkl"))[y]


def fitted(model=None, rows=60, classes=3, **options):
    options = {"n_estimators": 2, "device": "cpu", "refine": True} | options
    model = make("DeltaNet", "final_state") if model is None else model
    return TabICLLinearClassifier(model, **options).fit(*table(rows, classes=classes))


def check_curve(passes):
    """What holds for the passes of one member and digit."""
    assert passes["passes"].tolist() == list(range(len(passes)))
    assert passes["best"].sum() == 1
    start, best = passes["held_out_loss"].iloc[0], passes["held_out_loss"][passes["best"]].item()
    assert best <= start
    assert best <= passes["held_out_loss"].min() + OracleOptions().tolerance
    assert passes["used"].unique().tolist() == [best < start]
    assert (passes["relative_update"] > 0).tolist() == [False] + [True] * (len(passes) - 1)


@pytest.fixture
def few_passes(monkeypatch):
    """Where it is not looked at how good states become."""
    monkeypatch.setattr(refinement, "MAX_PASSES", 4)


@pytest.fixture
def nothing_better(monkeypatch):
    """Steps so short that no loss changes."""
    monkeypatch.setattr(refinement, "LEARNING_RATE", 1e-30)


@pytest.mark.parametrize(("mixer", "readout", "axis"), VARIANTS)
def test_it_is_never_worse_on_the_held_out_rows_and_the_model_is_frozen(mixer, readout, axis):
    model = make(mixer, readout, axis=axis)
    result = fitted(model)
    curve = result.refine_
    assert list(curve) == COLUMNS
    assert curve["member"].unique().tolist() == [1, 2]
    for _, passes in curve.groupby("member"):
        check_curve(passes)
    after = result.ensemble_.model.state_dict()
    for name, value in model.state_dict().items():
        assert torch.equal(value, after[name])
    assert not any(tensor.requires_grad for tensor in tensors(result.ensemble_.states))
    np.testing.assert_allclose(result.predict_proba(table(20, seed=1)[0]).sum(1), 1)


def test_the_loss_is_that_of_the_states_in_use_on_rows_of_each_members_own():
    x, y = table()
    result = fitted()
    ensemble, codes = result.ensemble_, np.unique(y, return_inverse=True)[1]
    matrix = result.preprocessor_.fit_transform(x, codes)
    held_out = []
    for member, (view, state) in enumerate(zip(ensemble.views, ensemble.states, strict=True)):
        encoded = Encoded(matrix, codes, result.preprocessor_, result.classes_)
        rows, labels = as_seen(ensemble, (view,), encoded)
        seed = result._plan().drawn().seed + member
        mask = held_out_rows(codes, seed, fraction=HELD_OUT_FRACTION)
        held_out.append(mask)
        shown = mask[view.row_order(len(codes))]
        with torch.no_grad():
            logits = ensemble.model.predict(state, rows[:, shown])
        of_member = result.refine_[result.refine_["member"] == member + 1]
        assert of_member["used"].all()
        told = float(of_member["held_out_loss"][of_member["best"]].item())
        expected = cross_entropy(logits[0], labels[0, shown]).item()
        assert told == pytest.approx(expected, rel=RMS[torch.float64])
    assert [mask.sum() for mask in held_out] == [6, 6]
    assert (held_out[0] != held_out[1]).any()


@pytest.mark.parametrize("axis", ["row", "ridge_cells"])
def test_starts_are_written_from_the_other_rows(axis, monkeypatch):
    written, fit = [], InContextModel.fit

    def watched(self, x, y, **options):
        written.append((x[0].nan_to_num(), y[0]))
        return fit(self, x, y, **options)

    monkeypatch.setattr(InContextModel, "fit", watched)
    result = fitted(make("DeltaNet", "final_state", axis=axis))
    codes = np.unique(table()[1], return_inverse=True)[1]
    assert len(written) == 4
    pairs = zip(written[:2], written[2:], strict=True)
    for member, ((rows, labels), (some, of_some)) in enumerate(pairs):
        seed = result._plan().drawn().seed + member
        mask = held_out_rows(codes, seed, fraction=HELD_OUT_FRACTION)
        kept = ~mask[result.ensemble_.views[member].row_order(60)]
        assert kept.sum() == 54
        assert torch.equal(rows[kept], some)
        assert torch.equal(labels[kept], of_some)


def test_starts_do_not_know_the_label_of_a_row_held_out(monkeypatch):
    """The probabilities that they give the labels a row might have add up to one."""
    x, y = table(12, classes=4)
    codes = np.unique(y, return_inverse=True)[1]
    columns = TablePreprocessor().fit(x)
    matrix = columns.transform(x)
    monkeypatch.setattr(refinement, "held_out_rows", lambda labels, *_, **__: np.arange(12) == 7)
    plan = TabICLLinearClassifier(n_estimators=1, rows_per_batch=12, device="cpu")._plan().drawn()
    total = 0.0
    for label in range(4):
        codes[7] = label
        rows = Encoded(matrix, codes, columns, np.arange(4))
        model = make("DeltaNet", "final_state", axis="coded_row")
        _, curve = refined(fit_ensemble(model, rows, plan), rows, plan)
        total += np.exp(-curve["held_out_loss"].iloc[0])
    assert total == pytest.approx(1.0, rel=1e-9)


@pytest.mark.usefixtures("nothing_better")
@pytest.mark.parametrize("mixer", ["DeltaNet", "DeltaNet+decay+conv"])
def test_where_nothing_is_better_the_states_are_those_of_all_rows(mixer):
    """A single member, since several are otherwise computed together, with other roundings."""
    model, queries = make(mixer, "final_state"), table(20, seed=1)[0]
    result = fitted(model, n_estimators=1)
    assert not result.refine_["used"].any()
    assert result.refine_["best"].tolist() == [True, False, False, False]
    plain = fitted(model, n_estimators=1, refine=False)
    np.testing.assert_array_equal(result.predict_proba(queries), plain.predict_proba(queries))


def test_refined_states_differ_and_members_are_read_as_without():
    queries = table(20, seed=1)[0]
    result, plain = fitted(), fitted(refine=False)
    assert np.abs(result.predict_proba(queries) - plain.predict_proba(queries)).max() > 1e-6
    assert result.state_nbytes_ == plain.state_nbytes_
    assert not hasattr(plain, "refine_")
    result.set_params(refine=False).fit(*table())
    assert not hasattr(result, "refine_")
    np.testing.assert_allclose(
        result.predict_proba(queries), plain.predict_proba(queries), rtol=RMS[torch.float64]
    )


def test_too_few_rows_to_hold_one_out():
    result, plain = fitted(rows=9), fitted(rows=9, refine=False)
    assert list(result.refine_) == COLUMNS
    assert len(result.refine_) == 0
    queries = table(20, seed=1)[0]
    np.testing.assert_allclose(
        result.predict_proba(queries), plain.predict_proba(queries), rtol=RMS[torch.float64]
    )


def test_random_state_decides_and_global_generators_stay():
    model = make("DeltaNet", "final_state")
    before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    first, again, other = fitted(model), fitted(model), fitted(model, random_state=1)
    assert torch.equal(before[0], torch.get_rng_state())
    assert np.array_equal(before[1], np.random.get_state()[1])  # noqa: NPY002
    pd.testing.assert_frame_equal(first.refine_, again.refine_)
    for a, b in zip(tensors(first.ensemble_.states), tensors(again.ensemble_.states), strict=True):
        assert torch.equal(a, b) or not a.isfinite().all()
    assert first.refine_["held_out_loss"].iloc[0] != other.refine_["held_out_loss"].iloc[0]


@pytest.mark.parametrize("axis", ["coded_row", "ridge_cells"])
def test_a_file_keeps_refined_states(axis, tmp_path):
    model, queries = make("DeltaNet", "final_state", axis=axis), table(20, seed=1)[0]
    result = fitted(model)
    result.save(tmp_path / "refined.state")
    again = TabICLLinearClassifier.load(tmp_path / "refined.state", model=model, device="cpu")
    np.testing.assert_array_equal(again.predict_proba(queries), result.predict_proba(queries))
    pd.testing.assert_frame_equal(again.refine_, result.refine_)
    assert again.refine is True


@pytest.mark.usefixtures("few_passes")
def test_digits_of_many_classes_are_refined_one_by_one():
    """The model takes four classes and the table has six, as two digits in each of two orders."""
    result = fitted(classes=6)
    pairs = result.refine_.groupby(["member", "digit"])
    assert list(pairs.groups) == [(m, d) for m in (1, 2) for d in (1, 2, 3, 4)]
    for _, passes in pairs:
        check_curve(passes)
    assert result.refine_["used"].any()
    np.testing.assert_allclose(result.predict_proba(table(20, seed=1)[0]).sum(1), 1)


@pytest.mark.usefixtures("few_passes")
def test_it_goes_with_the_other_arguments():
    options = {"softmax_temperature": "auto", "class_weight": "balanced", "ensemble": "paper"}
    result = fitted(average_logits=False, **options)
    assert result.temperature_ > 0
    assert result.refine_["member"].max() == 2
    # The calibration refines states of fewer rows; the table is that of the last fit.
    assert result.refine_.groupby("member")["passes"].min().tolist() == [0, 0]
    np.testing.assert_allclose(result.predict_proba(table(20, seed=1)[0]).sum(1), 1)


@pytest.mark.usefixtures("few_passes")
def test_memory_that_runs_out_is_tried_with_fewer_rows(monkeypatch):
    sizes, whole = [], state_optimisation.optimise_states

    def scarce(*arguments, **options):
        sizes.append(arguments[-1].gradient_rows)
        if sizes[-1] > 20:
            raise MemoryError
        return whole(*arguments, **options)

    monkeypatch.setattr(state_optimisation, "optimise_states", scarce)
    assert fitted().refine_["used"].any()
    assert sizes[0] == 60
    assert set(sizes[1:]) == {7}


def test_what_cannot_be_refined_is_refused():
    x, y = table()
    with pytest.raises(ConfigError, match="refine='yes': give True or False"):
        fitted(refine="yes")
    with pytest.raises(ConfigError, match="long_context='blocks' may make several: give"):
        fitted(long_context="blocks")
    for mixer in ("Softmax", "Ridge"):
        with pytest.raises(ConfigError, match=f"refine=True: {mixer}.* no matrix state"):
            fitted(make(mixer, "final_state"))
    causal = TabICLLinearClassifier(make("DeltaNet", "causal"), n_estimators=1, refine=True)
    with pytest.raises(ConfigError, match=PIECES):
        causal.partial_fit(x, y)
    with pytest.raises(ConfigError, match=PIECES):
        causal.fit(iter([(x, y)]))
    causal.fit(x, y).set_params(refine=False)
    with pytest.raises(ConfigError, match=PIECES):
        causal.partial_fit(x, y)
    assert causal.fit(iter([(x, y)])).partial_fit(x, y).n_samples_seen_ == 120
    assert not hasattr(causal, "refine_")


def test_pieces_of_a_long_table_are_refused(monkeypatch):
    monkeypatch.setattr("tabicl_linear.estimator.rows.pieces.FIRST_ROWS", 30)
    x, y = table()
    classifier = TabICLLinearClassifier(make("DeltaNet", "final_state"), refine=True)
    with pytest.raises(ConfigError, match=PIECES):
        classifier.fit(iter([(x[:30], y[:30]), (x[30:], y[30:])]))
