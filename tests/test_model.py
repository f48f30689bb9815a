"""What `InContextModel.fit` and `predict` take, and what they say about everything else."""

import pytest
import tiny_model
import torch
from contract.variants import make
from tolerances import RMS, assert_close, relative_rms

from tabicl_linear.data.batch import TaskBatch
from tabicl_linear.embedding.labels import ABSENT
from tabicl_linear.errors import DataError


@pytest.fixture(scope="module")
def model():
    return tiny_model.untrained(num_features=4, num_classes=3)


@pytest.fixture
def table():
    g = torch.Generator().manual_seed(0)
    return torch.randn(2, 30, 4, generator=g), torch.randint(0, 3, (2, 30), generator=g)


def logits(model, x, y, **options):
    with torch.inference_mode():
        return model.predict(model.fit(x, y, **options), x[:, :9])


MISTAKES = [
    (dict(x=lambda x: x.long()), "x is a int64 tensor of shape"),
    (dict(x=lambda x: x[0]), r"x is a float32 tensor of shape \(30, 4\)"),
    (dict(x=lambda x: x[:, :0]), "at least one of each"),
    (dict(x=lambda x: x[..., :0]), "at least one of each"),
    (dict(x=lambda x: x[:, :-1]), "x has shape .* and y"),
    (dict(x=lambda x: x.to("meta")), "x is on meta but the model is on cpu"),
    (dict(x=lambda x: torch.cat([x, x], -1)), "8 columns; this model takes 1 to 4"),
    (dict(y=lambda y: y.float()), "y is a float32 tensor .*integers"),
    (dict(y=lambda y: y == 1), "y is a bool tensor"),
    (dict(y=lambda y: y[0]), "x has shape .* and y"),
    (dict(y=lambda y: y[..., None]), "x has shape .* and y"),
    (dict(y=lambda y: y + 1), "between 1 and 3; this model takes class indices 0 to 2"),
    (dict(y=lambda y: y - 1), "between -1 and 1"),
    (dict(y=lambda y: y.to("meta")), "y is on meta"),
    (dict(categorical=torch.zeros(4, dtype=torch.bool)), r"categorical .*\[2, 4\]"),
    (dict(categorical=torch.zeros(2, 4)), "categorical is a float32 tensor"),
    (dict(categorical=torch.zeros(2, 3, dtype=torch.bool)), r"categorical .*\[2, 4\]"),
]


@pytest.mark.parametrize(("change", "message"), MISTAKES)
def test_contexts_that_cannot_be_used_are_refused_by_name(model, table, change, message):
    x, y = table
    x, y = change.get("x", lambda z: z)(x), change.get("y", lambda z: z)(y)
    with pytest.raises(DataError, match=message) as refusal:
        model.fit(x, y, categorical=change.get("categorical"))
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x: x.long(), "x is a int64"),
        (lambda x: x[0], "x is a float32 tensor of shape"),
        (lambda x: x[..., :3], "3 columns do not match"),
        (lambda x: x[:1], "1 tasks"),
        (lambda x: x.to("meta"), "x is on meta"),
    ],
)
def test_queries_that_cannot_be_used_are_refused_by_name(model, table, change, message):
    x, y = table
    with torch.inference_mode():
        state = model.fit(x, y)
        with pytest.raises(DataError, match=message):
            model.predict(state, change(x))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_tables_of_any_floating_dtype_are_taken(model, table, dtype):
    x, y = table
    x = x.bfloat16().clamp(-2, 2)
    expected = logits(model, x.float(), y)
    actual = logits(model, x.to(dtype), y)
    # In 16 bits the standardised rows are rounded.
    assert_close(actual, expected, RMS[torch.float32] if dtype == torch.float64 else 5e-2)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int16])
def test_labels_of_any_signed_integer_dtype_are_taken(model, table, dtype):
    x, y = table
    assert torch.equal(logits(model, x, y.to(dtype)), logits(model, x, y))


def test_huge_float32_values_do_not_turn_into_nan(model, table):
    x, y = table
    for column in (3.4e38 * x[..., :1].sign(), 1e38 * x[..., :1].clamp(-2, 2)):
        mixed = torch.cat([column, x[..., 1:]], dim=-1)
        assert logits(model, mixed, y).isfinite().all()


def test_no_query_rows_give_no_logits(model, table):
    x, y = table
    with torch.inference_mode():
        assert model.predict(model.fit(x, y), x[:, :0]).shape == (2, 0, 3)


@pytest.mark.parametrize("other", [{"dim": 16}, {"depth": 1}, {"num_heads": 4}])
def test_states_of_other_models_are_refused(model, table, other):
    """Kernels would read them beyond their end."""
    x, y = table
    state = tiny_model.untrained(num_features=4, num_classes=3, **other).fit(x, y)
    for foreign in (state, state.layers):
        with pytest.raises(DataError, match="not one of this model"):
            model.predict(foreign, x)
        with pytest.raises(DataError, match="not one of this model"):
            model.fit(x, y, state=foreign)


@pytest.fixture(scope="module")
def masking():
    return tiny_model.untrained(num_features=4, num_classes=5, mask_absent_classes=True)


def test_a_part_of_a_context_is_fitted_under_the_statistics_of_all(table):
    """Parts then extend to what the whole gives; without them the first part decides."""
    model, (x, y) = make("DeltaNet", "causal"), table
    x, kinds = 3 * x.double(), torch.tensor([[False, True, False, False]]).expand(2, -1)
    x[:, :, 1] = x[:, :, 1].round()
    with torch.no_grad():
        whole = logits(model, x, y, categorical=kinds)
        by = model.statistics(x, y, kinds)
        assert_close(logits(model, x, y, statistics=by), whole, RMS[torch.float64])
        for statistics, same in ((by, True), (None, False)):
            options = {"categorical": kinds} if statistics is None else {"statistics": by}
            part = model.fit(x[:, :10], y[:, :10], **options)
            read = model.predict(model.fit(x[:, 10:], y[:, 10:], state=part), x[:, :9])
            assert (relative_rms(read, whole) < RMS[torch.float64]) is same


def test_statistics_are_given_once(model, table):
    x, y = table
    by = model.statistics(x, y)
    with pytest.raises(DataError, match="know the categories: leave categorical out"):
        model.fit(x, y, categorical=torch.zeros(2, 4, dtype=torch.bool), statistics=by)
    with pytest.raises(DataError, match="of 2 tasks of 4 columns, and x has 2 of 3;"):
        model.fit(x[..., :3], y, statistics=by)
    causal = make("DeltaNet", "causal")
    state = causal.fit(x.double(), y)
    with pytest.raises(DataError, match="leave `statistics` out"):
        causal.fit(x.double(), y, state=state, statistics=by)


def test_only_classes_of_the_context_can_be_predicted(masking, table):
    x, y = table
    y[0, y[0] == 1] = 4
    masked = logits(masking, x, y)
    assert (masked == ABSENT).any(1).tolist() == [
        [False, True, False, True, False],
        [False, False, False, True, True],
    ]
    open_model = tiny_model.untrained(num_features=4, num_classes=5)
    open_model.load_state_dict(masking.state_dict())
    expected = logits(open_model, x, y)
    present = masked != ABSENT
    assert torch.equal(masked[present], expected[present])


def test_training_masks_what_prediction_masks(masking, table):
    x, y = table
    y[:, 21:] = 2
    batch = TaskBatch(x, y, torch.zeros(2, 4, dtype=torch.bool), 21, 0)
    trained = masking(batch)
    with torch.no_grad():
        read = masking.predict(masking.fit(x[:, :21], y[:, :21]), x[:, 21:])
    assert torch.equal(trained == ABSENT, read == ABSENT)
    present = read != ABSENT
    assert_close(trained[present], read[present], RMS[torch.float32])


def test_rows_that_extend_a_state_bring_their_classes(table):
    model, (x, y) = make("DeltaNet", "causal", axis="cells"), table
    with torch.no_grad():
        first = model.fit(x.double(), y.clamp(max=1))
        extended = model.fit(x[:, :3].double(), torch.full((2, 3), 3), state=first)
    assert first.classes.tolist() == [[True, True, False, False]] * 2
    assert extended.classes.tolist() == [[True, True, False, True]] * 2


def test_states_say_which_classes_they_have_if_asked(masking, model, table):
    x, y = table
    other = tiny_model.untrained(num_features=4, num_classes=5)
    assert other.fit(x, y).classes is None
    with pytest.raises(DataError, match="not one of this model"):
        masking.predict(other.fit(x, y), x)
