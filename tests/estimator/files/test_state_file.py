"""A fitted classifier goes to a file and comes back: same answers, no rows, nothing executable."""

import copy
import datetime
import json
import os
import stat
import subprocess
import sys
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
import tiny_model
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from sklearn.base import clone
from tolerances import ROUNDING

from tabicl_linear import RandomFeatureRidge, TabICLLinearClassifier
from tabicl_linear.errors import CheckpointError, DataError
from tabicl_linear.ridge_inputs import RidgeOptions

pytestmark = pytest.mark.usefixtures("few_trees")

FEW = RidgeOptions(num_tanh=8, num_cosine=8, num_trees=2)


def table(rows, seed=0, classes=("no", "yes", "maybe")):
    """Numbers, texts, flags, dates, gaps; every class and category occurs."""
    rng = np.random.default_rng(seed)
    y = np.arange(rows) % len(classes)
    frame = pd.DataFrame(
        {
            "number": y + rng.normal(size=rows),
            "skewed": np.exp(rng.normal(size=rows)),
            "text": np.array(list("abcd"))[rng.integers(0, 4, rows)],
            "flag": rng.random(rows) > 0.5,
            "when": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.random(rows), unit="D"),
            "void": None,
        }
    )
    frame.loc[5, "number"] = np.nan
    frame.loc[6, "text"] = None
    return frame, np.array(classes)[y]


def fitted(kind, checkpoint, rows=60, **options):
    first = checkpoint if kind is TabICLLinearClassifier else FEW
    return kind(first, **{"n_estimators": 3, "device": "cpu"} | options).fit(*table(rows))


@pytest.fixture(params=[TabICLLinearClassifier, RandomFeatureRidge])
def classifier(request, checkpoint):
    return fitted(request.param, checkpoint)


@pytest.fixture
def saved(checkpoint, tmp_path):
    path = tmp_path / "a.state"
    fitted(TabICLLinearClassifier, checkpoint).save(path)
    return path


def test_a_loaded_classifier_is_the_saved_one(classifier, tmp_path):
    path = tmp_path / "fitted.state"
    classifier.save(path)
    again = type(classifier).load(path, device="cpu")
    queries = table(200, seed=1)[0]
    np.testing.assert_array_equal(again.predict_proba(queries), classifier.predict_proba(queries))
    np.testing.assert_array_equal(again.predict(queries), classifier.predict(queries))
    before, after = (
        {name: str(value) for name, value in each.get_params().items()}
        for each in (classifier, again)
    )
    assert before == after
    assert vars(again).keys() == vars(classifier).keys()
    assert again.state_nbytes_ == classifier.state_nbytes_ > 0
    assert again.preprocessor_.columns == classifier.preprocessor_.columns
    with pytest.raises(DataError, match="missing 'text'"):
        again.predict(queries.drop(columns="text"))


def test_equal_fits_have_equal_files(checkpoint, tmp_path):
    """Git, and caches that know a file by its hash, tell what has changed."""
    paths = [tmp_path / f"{number}.state" for number in range(3)]
    for path in paths[:2]:
        fitted(TabICLLinearClassifier, checkpoint).save(path)
    TabICLLinearClassifier.load(paths[0], model=checkpoint, device="cpu").save(paths[2])
    assert len({path.read_bytes() for path in paths}) == 1


def test_another_process_loads_them(checkpoint, tmp_path):
    queries = table(20, seed=1)[0]
    queries.drop(columns="void").assign(void=np.nan).to_parquet(tmp_path / "queries.parquet")
    expected, code = {}, "import numpy, pandas, tabicl_linear\n"
    for kind in (TabICLLinearClassifier, RandomFeatureRidge):
        classifier, name = fitted(kind, checkpoint), kind.__name__
        classifier.save(tmp_path / name)
        expected[name] = classifier.predict_proba(queries)
        code += f"c = tabicl_linear.{name}.load({name!r}, device='cpu')\n"
        code += "p = c.predict_proba(pandas.read_parquet('queries.parquet'))\n"
        code += f"numpy.save({name!r}, p)\n"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, timeout=90)
    for name, probabilities in expected.items():
        np.testing.assert_array_equal(np.load(tmp_path / f"{name}.npy"), probabilities)


@pytest.mark.parametrize(
    "labels",
    [
        np.array([0.0, 1.0, 2.0]),
        np.array([False, True]),
        np.array([-3, 7, 2**40]),
        np.array(["a", "", "\u00e9\U0001f600"], dtype=object),
        np.array(["2024-01-01", "2025-01-01"], dtype="datetime64[D]"),
    ],
)
def test_labels_keep_their_type(checkpoint, labels, tmp_path):
    y = labels[np.arange(30) % len(labels)]
    x = np.random.default_rng(0).normal(size=(30, 3))
    before = TabICLLinearClassifier(checkpoint, n_estimators=1).fit(x, y)
    before.save(tmp_path / "s")
    after = TabICLLinearClassifier.load(tmp_path / "s")
    np.testing.assert_array_equal(after.classes_, before.classes_)
    assert after.classes_.dtype == before.classes_.dtype
    assert type(after.predict(x)[0]) is type(before.predict(x)[0])


@pytest.mark.parametrize("kind", [TabICLLinearClassifier, RandomFeatureRidge])
def test_the_size_does_not_depend_on_the_rows(kind, checkpoint, tmp_path):
    sizes = []
    for rows in (500, 50_000):
        # Each member in a batch of its own, as members of a long table always are.
        fit = fitted(kind, checkpoint, rows, n_estimators=2, rows_per_batch=500)
        fit.save(tmp_path / "s")
        sizes.append(((tmp_path / "s").stat().st_size, fit.state_nbytes_))
    (few, few_states), (many, many_states) = sizes
    assert few_states == many_states
    assert abs(many - few) < 200  # digits of the numbers in the header


def test_the_file_holds_no_training_row_and_no_code(saved):
    with safe_open(saved, framework="pt") as file:
        content = file.metadata()["content"]
    # Of 60 values at most the extremes of the column are there.
    numbers = table(60)[0]["number"].dropna()
    assert sum(repr(float(value)) in content for value in numbers) <= 2
    for tensor in load_file(saved).values():
        assert 60 not in tensor.shape
    assert b"pickle" not in saved.read_bytes()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("inputs", [{}, {"ridge_inputs": {"num_tanh": 8, "num_trees": 2}}])
def test_any_dtype_loads_it(dtype, inputs, tmp_path):
    model = tiny_model.untrained(**inputs)
    before = TabICLLinearClassifier(model, n_estimators=2, device="cpu").fit(*table(60))
    before.save(tmp_path / "s")
    after = TabICLLinearClassifier.load(tmp_path / "s", model=model, dtype=dtype)
    queries = table(20, seed=1)[0]
    assert next(after.ensemble_.model.parameters()).dtype == dtype
    np.testing.assert_allclose(
        after.predict_proba(queries), before.predict_proba(queries), atol=ROUNDING, rtol=0
    )
    assert next(model.parameters()).dtype == torch.float32  # the user's own is left alone


@pytest.mark.parametrize("readout", ["FinalState", "Causal"])
def test_one_loaded_in_another_dtype_is_saved_in_it(readout, tmp_path):
    model = tiny_model.untrained(readout=readout)
    first = TabICLLinearClassifier(model, n_estimators=2, device="cpu").fit(*table(60))
    first.save(tmp_path / "a")
    double = TabICLLinearClassifier.load(tmp_path / "a", model=model, dtype=torch.float64)
    if readout == "Causal":
        double.partial_fit(*table(30, seed=2))
    double.save(tmp_path / "b")
    queries = table(20, seed=1)[0]
    answers = double.predict_proba(queries)
    for given in (model, copy.deepcopy(model).double()):
        again = TabICLLinearClassifier.load(tmp_path / "b", model=given)
        assert next(again.ensemble_.model.parameters()).dtype == torch.float64
        np.testing.assert_array_equal(again.predict_proba(queries), answers)
    single = TabICLLinearClassifier.load(tmp_path / "b", model=model, dtype=torch.float32)
    single.save(tmp_path / "c")
    again = TabICLLinearClassifier.load(tmp_path / "c", model=model)
    assert next(again.ensemble_.model.parameters()).dtype == torch.float32
    np.testing.assert_array_equal(again.predict_proba(queries), single.predict_proba(queries))
    np.testing.assert_allclose(again.predict_proba(queries), answers, atol=ROUNDING, rtol=0)
    assert next(model.parameters()).dtype == torch.float32  # the user's own is left alone
    other = tiny_model.untrained(seed=1, readout=readout)
    with pytest.raises(CheckpointError, match="fitted with the model of checksum"):
        TabICLLinearClassifier.load(tmp_path / "b", model=other)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize(("first", "second"), [("cuda", "cpu"), ("cpu", "cuda")])
def test_any_device_loads_it(checkpoint, tmp_path, first, second):
    before = fitted(TabICLLinearClassifier, checkpoint, device=first)
    before.save(tmp_path / "s")
    after = TabICLLinearClassifier.load(tmp_path / "s", device=second)
    queries = table(20, seed=1)[0]
    np.testing.assert_allclose(
        after.predict_proba(queries), before.predict_proba(queries), atol=1e-3
    )


def test_the_device_of_the_fit_is_not_that_of_the_load(checkpoint, tmp_path):
    classifier = fitted(TabICLLinearClassifier, checkpoint)
    classifier.device = "cuda:99"
    classifier.save(tmp_path / "s")
    assert TabICLLinearClassifier.load(tmp_path / "s").device is None


def test_the_model_may_have_moved(checkpoint, saved, tmp_path):
    elsewhere = tmp_path / "elsewhere.ckpt"
    elsewhere.write_bytes(checkpoint.read_bytes())
    again = TabICLLinearClassifier.load(saved, model=elsewhere)
    assert again.model == elsewhere
    assert TabICLLinearClassifier.load(saved, model=tiny_model.trained()).classes_.tolist()


def test_another_model_is_refused(saved):
    weights = tiny_model.untrained(seed=1)
    with pytest.raises(CheckpointError, match=r"fitted with the model of checksum .*load\(path, m"):
        TabICLLinearClassifier.load(saved, model=weights)
    same_weights = tiny_model.untrained()
    same_weights.load_state_dict(tiny_model.trained().state_dict())
    same_weights.backbone.blocks[0].mixer.write_rate.decay_constant = 4.0
    with pytest.raises(CheckpointError, match="checksum"):
        TabICLLinearClassifier.load(saved, model=same_weights)


def test_a_model_that_is_gone_is_asked_for(checkpoint, tmp_path):
    gone = tmp_path / "gone.ckpt"
    gone.write_bytes(checkpoint.read_bytes())
    fitted(TabICLLinearClassifier, gone).save(tmp_path / "s")
    gone.unlink()
    with pytest.raises(CheckpointError, match=r"gone.ckpt.*give its place as `load\(path, model="):
        TabICLLinearClassifier.load(tmp_path / "s")
    given = TabICLLinearClassifier(tiny_model.untrained(), n_estimators=1).fit(*table(30))
    given.save(tmp_path / "t")
    with pytest.raises(CheckpointError, match="given as an object"):
        TabICLLinearClassifier.load(tmp_path / "t")


@pytest.mark.filterwarnings("ignore:Column 'number' has 59 categories in 59 rows")
@pytest.mark.parametrize(
    "make_declared",
    [
        lambda x: x.columns[[0, 2]],
        lambda x: pd.Index([0, 2]),
        lambda x: pd.Series(["number", "text"]),
        lambda x: pd.Series(x.columns.isin(["number", "text"]), index=x.columns),
        lambda x: x.columns.isin(["number", "text"]),
    ],
)
def test_declared_columns_of_any_container_are_saved(make_declared, tmp_path):
    x, y = table(60)
    declared = make_declared(x)
    options = {"n_estimators": 2, "device": "cpu"}
    before = RandomFeatureRidge(FEW, categorical_features=declared, **options).fit(x, y)
    before.save(tmp_path / "s")
    assert before.categorical_features is declared
    after = RandomFeatureRidge.load(tmp_path / "s", device="cpu")
    assert list(after.categorical_features) == list(declared)
    queries = table(20, seed=1)[0]
    np.testing.assert_array_equal(after.predict_proba(queries), before.predict_proba(queries))
    again = clone(after).fit(x, y)
    assert again.preprocessor_.columns == before.preprocessor_.columns


@pytest.mark.filterwarnings("ignore:Column 'cells' has:UserWarning")
@pytest.mark.parametrize(
    "of_row",
    [
        lambda row: datetime.date(2024, 1, 1 + row % 28),
        lambda row: datetime.datetime(2024, 1, 1, row % 24, tzinfo=datetime.UTC),
        lambda row: datetime.time(row % 24, 0, 0, row),
        lambda row: pd.Timestamp(2024, 1, 1 + row % 28) if row % 5 else pd.NaT,
        lambda row: Decimal(row) / 8 if row % 5 else pd.NA,
        lambda row: bytes([row % 3]),
        lambda row: row % 3,
    ],
    ids=["date", "datetime", "time", "timestamp", "decimal", "bytes", "sparse"],
)
def test_rows_that_are_held_may_have_cells_of_any_type_of_parquet(of_row, tmp_path):
    x, y = table(60)
    cells = [of_row(row) for row in range(60)]
    kind = pd.SparseDtype("int64") if isinstance(cells[0], int) else object
    x["cells"] = pd.Series(cells, dtype=kind)
    before = TabICLLinearClassifier(n_estimators=1, random_state=0, device="cpu")
    before.partial_fit(x, y).save(tmp_path / "s")
    after = TabICLLinearClassifier.load(tmp_path / "s", device="cpu")
    tables = [classifier.fitted_.held.table for classifier in (after, before)]
    pd.testing.assert_frame_equal(*tables, check_dtype=False)  # pandas finds that of dates
    more, labels = x[:30].copy(), y[:30]
    grown = [classifier.partial_fit(more, labels) for classifier in (before, after)]
    np.testing.assert_array_equal(*(classifier.predict_proba(x) for classifier in grown))


def test_a_file_names_the_model_of_the_fit(checkpoint, tmp_path):
    """Not one that was set for the next fit."""
    before = fitted(TabICLLinearClassifier, checkpoint, n_estimators=1)
    before.set_params(model="streaming", random_state=7).save(tmp_path / "s")
    after = TabICLLinearClassifier.load(tmp_path / "s", device="cpu")
    assert (after.model, after.random_state) == (str(checkpoint), 7)
    x, _ = table(20, seed=1)
    np.testing.assert_array_equal(after.predict_proba(x), before.predict_proba(x))


def test_what_cannot_be_stored_is_named_and_nothing_is_written(checkpoint, tmp_path):
    path = tmp_path / "s"
    classifier = fitted(TabICLLinearClassifier, checkpoint, random_state=np.random.RandomState(0))
    with pytest.raises(DataError, match=r"random_state.*RandomState.*numbers and texts"):
        classifier.save(path)
    classifier.set_params(random_state=0).save(path)
    before = path.read_bytes()
    with pytest.raises(DataError, match=r"s cannot be written: No such .*; name a file in"):
        classifier.save(tmp_path / "folder" / "s")
    with pytest.raises(ValueError, match="not fitted"):
        TabICLLinearClassifier(checkpoint).save(path)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["s"]


def test_the_file_has_the_usual_permissions(saved, tmp_path):
    (tmp_path / "usual").touch()
    modes = {stat.S_IMODE(os.stat(tmp_path / name).st_mode) for name in ("usual", saved.name)}
    assert len(modes) == 1


def test_saving_leaves_the_mask_of_permissions_alone(checkpoint, tmp_path, monkeypatch):
    """It is the whole process's: of two threads that ask for it one may leave it open to all."""
    monkeypatch.setattr(os, "umask", lambda mask: pytest.fail("the mask was set"))
    fitted(TabICLLinearClassifier, checkpoint).save(tmp_path / "s")


def test_the_header_is_json_that_others_can_read(saved):
    with safe_open(saved, framework="pt") as file:
        metadata = file.metadata()
    assert metadata["class"] == "TabICLLinearClassifier"
    parameters = json.loads(metadata["content"])["parameters"]
    assert ["n_estimators", 3] in parameters["items"]
