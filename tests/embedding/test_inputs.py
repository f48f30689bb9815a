"""What no tensor operation should stumble over, and that a refused call changes nothing."""

import numpy as np
import pytest
import tiny_model
import torch
from tolerances import RMS, assert_close

from tabicl_linear import recipe as recipes
from tabicl_linear.embedding.inputs import LABEL_TYPES, Limits, check_context, chunk_rows
from tabicl_linear.errors import DataError
from tabicl_linear.kernels.state import tensors

CPU = torch.device("cpu")
X, Y = torch.zeros(2, 5, 3), torch.zeros(2, 5, dtype=torch.long)


@pytest.fixture(scope="module")
def causal():
    readout = {"class_path": "tabicl_linear.readouts.Causal", "init_args": {}}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return recipes.build(tiny_model.RECIPE | {"readout": readout}).eval()


@pytest.mark.parametrize(
    ("x", "y", "categorical", "message"),
    [
        (X.numpy(), Y, None, "x is a ndarray; give a tensor"),
        (X, Y.tolist(), None, "y is a list; give a tensor"),
        (X, Y, [[False] * 3] * 2, "categorical is a list; give a tensor"),
        (X.to_sparse(), Y, None, r"x is a sparse tensor; .*x\.to_dense"),
        (X, Y.to_sparse(), None, "y is a sparse tensor"),
        (X.to(torch.complex64), Y, None, "x is a complex64 tensor"),
        (X.to(torch.float8_e4m3fn), Y, None, r"x is a float8_e4m3fn tensor .*x\.float\(\)"),
        (X, Y.to(torch.uint16), None, r"y is a uint16 tensor .*y\.long\(\)"),
        (X, Y.to(torch.uint8), None, "y is a uint8 tensor"),
        (X, Y.to(torch.complex64), None, "y is a complex64 tensor"),
        (X, Y + 10, None, "between 10 and 10; this model takes class indices 0 to 9"),
        (X[:0], Y[:0], None, "at least one of each"),
    ],
)
def test_what_is_no_table_is_refused_in_one_line(x, y, categorical, message):
    with pytest.raises(DataError, match=message) as refusal:
        check_context(x, y, categorical, limits=Limits(CPU, 10))
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("dtype", LABEL_TYPES, ids=str)
def test_labels_of_every_type_that_is_taken_can_be_used(causal, dtype):
    y = torch.arange(10)[None]
    x = torch.randn(1, 10, 3)
    with torch.inference_mode():
        expected, actual = (causal.fit(x, labels) for labels in (y, y.to(dtype)))
    for a, b in zip(tensors(actual), tensors(expected), strict=True):
        assert torch.equal(a, b)


def test_a_context_of_missing_values_alone_is_a_context_without_information(causal):
    y = torch.tensor([[0, 1, 2, 1]])
    nothing, constant = torch.full((1, 4, 3), torch.nan), torch.ones(1, 4, 3)
    queries = torch.tensor([[[1.0, torch.nan, torch.inf]]])
    with torch.inference_mode():
        expected = causal.predict(causal.fit(constant, y), queries)
        for x in (nothing, nothing.nan_to_num(torch.inf), nothing.nan_to_num(-torch.inf)):
            assert torch.equal(causal.predict(causal.fit(x, y), queries), expected)


def test_one_class_and_one_row_are_contexts(causal):
    x = torch.randn(1, 6, 3)
    with torch.inference_mode():
        for rows in (1, 6):
            state = causal.fit(x[:, :rows], torch.full((1, rows), 9))
            assert causal.predict(state, x).isfinite().all()


@pytest.mark.parametrize(
    "change",
    [
        {"y": lambda y: y + 10},
        {"y": lambda y: y.float()},
        {"x": lambda x: x[..., :2]},
        {"x": lambda x: x.long()},
        {"categorical": lambda _: torch.zeros(1, 3, dtype=torch.bool)},
    ],
)
def test_a_state_is_as_it_was_after_calls_that_extend_it_or_fail(causal, change):
    x, y = torch.randn(1, 40, 3), torch.randint(0, 4, (1, 40))
    arguments = {"x": x[:, 20:], "y": y[:, 20:], "categorical": None}
    wrong = arguments | {name: make(arguments[name]) for name, make in change.items()}
    with torch.inference_mode():
        state = causal.fit(x[:, :20], y[:, :20])
        before = [tensor.clone() for tensor in tensors(state)]
        with pytest.raises(DataError):
            causal.fit(wrong["x"], wrong["y"], categorical=wrong["categorical"], state=state)
        longer = causal.fit(x[:, 20:], y[:, 20:], state=state)
        assert [layer.num_tokens for layer in state.layers] == [20, 20]
        assert [layer.num_tokens for layer in longer.layers] == [40, 40]
        assert all(map(torch.equal, tensors(state), before))


@pytest.mark.parametrize("rows_per_chunk", [1, 7])
def test_a_state_extended_in_chunks_is_that_extended_at_once(causal, rows_per_chunk):
    x, y = torch.randn(2, 40, 3), torch.randint(0, 4, (2, 40))
    with torch.inference_mode():
        start = causal.fit(x[:, :15], y[:, :15])
        whole = causal.fit(x[:, 15:], y[:, 15:], state=start)
        pieces = causal.fit(x[:, 15:], y[:, 15:], state=start, rows_per_chunk=rows_per_chunk)
    for actual, expected in zip(pieces.layers, whole.layers, strict=True):
        assert_close(actual.rule_state.S, expected.rule_state.S, RMS[torch.float32])


@pytest.mark.parametrize("scale", [1e-38, 1e38, 3.4e38])
def test_extreme_float32_columns_predict_as_the_same_column_near_one(causal, scale):
    """Standardised columns have no unit, as long as no soft clip (a logarithm) comes in."""
    values = torch.tensor(np.linspace(-1, 1, 24), dtype=torch.float32)[None, :, None]
    y = (values[..., 0] > 0).long()
    # Divided and multiplied by powers of two alone, so that no digit is lost.
    factor = 2.0 ** np.floor(np.log2(scale))
    with torch.inference_mode():
        expected = causal.predict(causal.fit(values, y), values)
        scaled = values * factor
        assert scaled.isfinite().all()
        assert_close(causal.predict(causal.fit(scaled, y), scaled), expected, 1e-4)


@pytest.mark.parametrize(
    ("device", "most", "num_cells", "num_rows", "expected"),
    [
        ("cpu", None, 1, None, 2048),
        ("cpu", None, 10, None, 409),
        ("cpu", None, 1000, None, 64),
        ("cpu", None, 10, 2048, 2048),
        ("cpu", None, 10, 2049, 409),
        ("cpu", 100, 10, 2049, 100),
        ("cpu", 5000, 10, 2049, 409),
        ("cuda", None, 10, 20_000, 16_384),
        ("cuda", 5000, 10, 20_000, 5000),
    ],
)
def test_rows_of_many_cells_are_few_at_a_time(device, most, num_cells, num_rows, expected):
    assert chunk_rows(torch.device(device), most, num_cells, num_rows) == expected
