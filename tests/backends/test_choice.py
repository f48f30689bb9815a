"""Which kernels a model gets, what is refused and what is said about it."""

from contextlib import nullcontext

import pytest
import torch
from kernels.candidates import RIGHT, fast_dtypes, fold_right, put, raises, scan_right
from log_messages import messages_of

from tabicl_linear.backends import choice as backend_choice
from tabicl_linear.backends import fla, self_test, using
from tabicl_linear.backends.cpp import loader
from tabicl_linear.errors import ConfigError
from tabicl_linear.kernels import delta
from tabicl_linear.kernels.additive import AdditiveRule
from tabicl_linear.kernels.delta import DeltaRule
from tabicl_linear.kernels.ridge import RidgeRule
from tabicl_linear.kernels.rule import Kernel
from tabicl_linear.kernels.streams import Streams

CPU = torch.device("cpu")
BOTH = {torch.float32, torch.bfloat16}


def example(dtype=torch.float32, *, dim=6, beta=True, gates=0):
    """One token of a rule; the dimension makes its verdict and its log line its own."""
    return Streams(
        q=torch.zeros(1, 1, 2, dim, dtype=dtype),
        k=torch.zeros(1, 1, 2, dim, dtype=dtype),
        v=torch.zeros(1, 1, 2, dim, dtype=dtype),
        beta=torch.zeros(1, 1, 2) if beta else None,
        log_decay=torch.zeros(1, 1, 2, gates) if gates else None,
    )


def raises_in_bfloat16(x, S, *, size):
    if x.q.dtype == torch.bfloat16:
        raise RuntimeError("no bfloat16 here")
    return delta.scan(x, S, size=size)


def raises_beyond_12_channels(x, S, *, size):
    if x.k.shape[-1] > 12:
        raise RuntimeError("too wide")
    return delta.scan(x, S, size=size)


def outputs_off(x, S, *, size):
    o, S = delta.scan(x, S, size=size)
    return 1.01 * o, S


def state_off(x, S, *, size):
    o, S = delta.scan(x, S, size=size)
    return o, S + 0.05


def gradient_off(x, S, *, size):
    """Right results, with a gradient of the keys that is 2 % too large."""
    return delta.scan(x._replace(k=1.02 * x.k - 0.02 * x.k.detach()), S, size=size)


def gradient_nan(x, S, *, size):
    o, S = delta.scan(x, S, size=size)
    return o + (o - o).abs().sqrt(), S


def fold_off(x, S, *, size):
    return 1.01 * delta.fold(x, S, size=size)


def choose(rule, *examples, backend="auto", device=CPU):
    return backend_choice.choose([(rule, x) for x in examples], device=device, backend=backend)


@pytest.fixture
def lines():
    with messages_of("tabicl_linear") as messages:
        yield lambda: list(messages)


@pytest.mark.skipif(loader.unavailable() is not None, reason="the C++ kernels are not built")
@pytest.mark.parametrize(
    ("rule", "gates"),
    [(DeltaRule(), 0), (DeltaRule(), 1), (AdditiveRule(), 1), (AdditiveRule(), 6)],
)
def test_auto_takes_cpp_on_the_cpu(rule, gates):
    examples = [example(dtype, gates=gates) for dtype in (torch.float32, torch.bfloat16)]
    for backend in ("auto", "cpp"):
        choice = choose(rule, *examples, backend=backend)
        assert fast_dtypes(choice, self_test.TORCH[type(rule)]) == BOTH
        assert backend_choice.backend_of(choice, rule) == "cpp"
    assert choose(rule, *examples, backend="torch") == {}
    assert backend_choice.backend_of({}, rule) == "torch"


def test_a_missing_library_is_said_once_and_pytorch_taken(monkeypatch, lines):
    monkeypatch.setitem(
        backend_choice.IMPLEMENTATIONS,
        "cpp",
        backend_choice.IMPLEMENTATIONS["cpp"]._replace(unavailable=lambda: "no compiler was there"),
    )
    for _ in range(2):
        examples = example(dim=3), example(torch.bfloat16, dim=3)
        assert choose(DeltaRule(), *examples) == {}
        assert backend_choice.tokenwise(device=CPU, backend="auto") == {}
    assert lines() == ["cpu, DeltaRule (k 3, v 3) by torch: no compiler was there"]
    with pytest.raises(ConfigError, match=r"backend='cpp' .*no compiler was there.*'torch'"):
        backend_choice.check("cpp")


def test_a_kernel_that_agrees_is_taken_and_said(monkeypatch, lines):
    put(monkeypatch, RIGHT)
    choice = choose(DeltaRule(), example(dim=4), example(torch.bfloat16, dim=4))
    assert fast_dtypes(choice) == BOTH
    assert lines() == ["cpu, DeltaRule (k 4, v 4) by cpp"]


def test_a_kernel_is_taken_where_it_agrees_in_every_layer(monkeypatch):
    put(monkeypatch, Kernel(raises_beyond_12_channels, fold_right))
    narrow, wide = example(dim=12), example(dim=13)
    assert fast_dtypes(choose(DeltaRule(), narrow)) == {torch.float32}
    for layers in ((narrow, wide), (wide, narrow)):
        assert choose(DeltaRule(), *layers) == {}


@pytest.mark.parametrize(
    ("kernel", "reason"),
    [
        (Kernel(raises, fold_right), "RuntimeError: no such instruction on this card"),
        (Kernel(outputs_off, fold_right), "its outputs differ from PyTorch's by 1.0e-02"),
        (Kernel(state_off, fold_right), "its states differ"),
        (Kernel(scan_right, fold_off), "its folded states differ from PyTorch's by 1.0e-02"),
        (Kernel(gradient_off, fold_right), "its gradients of k differ from PyTorch's by 2.0e-02"),
        (Kernel(gradient_nan, fold_right), "differ from PyTorch's by nan"),
    ],
    ids=lambda value: value.scan.__name__ if isinstance(value, Kernel) else "",
)
def test_a_kernel_that_fails_or_is_wrong_is_refused(monkeypatch, lines, kernel, reason):
    put(monkeypatch, kernel)
    assert choose(DeltaRule(), example()) == {}
    assert any(reason in line for line in [*lines(), _refusal(backend="cpp")])
    assert reason in _refusal(backend="cpp")


def _refusal(backend):
    with pytest.raises(ConfigError) as error:
        choose(DeltaRule(), example(), backend=backend)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_kernel_is_taken_for_the_dtypes_in_which_it_works(monkeypatch, lines):
    put(monkeypatch, Kernel(raises_in_bfloat16, fold_right))
    choice = choose(DeltaRule(), example(dim=5), example(torch.bfloat16, dim=5))
    assert fast_dtypes(choice) == {torch.float32}
    (line,) = lines()
    assert line == (
        "cpu, DeltaRule (k 5, v 5) by cpp in float32; by torch in bfloat16: "
        "RuntimeError: no bfloat16 here"
    )
    x = Streams(*(None if z is None else torch.rand_like(z) for z in example(torch.bfloat16)))
    with using(choice):
        outputs, _ = DeltaRule().scan(x)  # would raise
    assert torch.equal(outputs, DeltaRule().scan(x)[0])


@pytest.mark.parametrize("gates", [0, 1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_long_self_test_is_not_failed_by_gradients_that_vanish(monkeypatch, dtype, gates):
    """A thousand writes to narrow heads leave nothing of the gradient of the first state."""
    monkeypatch.setitem(self_test.SHAPE, "cpu", (1, 967))
    put(monkeypatch, RIGHT)
    choice = choose(DeltaRule(), example(dtype, dim=11, gates=gates), backend="cpp")
    assert fast_dtypes(choice) == {dtype}


def test_other_processes_than_the_first_say_nothing(monkeypatch, lines):
    monkeypatch.setenv("LOCAL_RANK", "1")
    put(monkeypatch, RIGHT)
    choose(DeltaRule(), example(dim=7))
    assert lines() == []


def test_float64_is_pytorch_s_and_not_worth_a_line(monkeypatch, lines):
    put(monkeypatch, Kernel(raises, raises))
    for backend in ("auto", "cpp"):
        assert choose(DeltaRule(), example(torch.float64), backend=backend) == {}
    assert lines() == []


def test_rules_of_other_kinds_are_pytorch_s(lines):
    assert choose(RidgeRule(), example()) == {}
    assert backend_choice.backend_of({}, RidgeRule()) == "torch"
    assert lines() == []


def test_a_self_test_leaves_no_trace(monkeypatch):
    put(monkeypatch, RIGHT)
    before = torch.get_rng_state()
    for i, context in enumerate([torch.no_grad(), torch.inference_mode(), nullcontext()]):
        with context:
            assert fast_dtypes(choose(DeltaRule(), example(dim=8 + i))) == {torch.float32}
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.skipif(fla.unavailable() is None, reason="flash-linear-attention is installed")
def test_a_missing_library_is_named():
    with pytest.raises(ConfigError, match=r"backend='fla' .*fla-core is not installed \(pip inst"):
        backend_choice.check("fla")


@pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA device is here")
def test_fla_needs_a_cuda_device(monkeypatch):
    put(monkeypatch, RIGHT, "fla")
    with pytest.raises(ConfigError, match="there is no CUDA device"):
        backend_choice.check("fla")
    # A model is on the CPU before it is on its card.
    assert choose(DeltaRule(), example(), backend="fla") == {}


def test_unknown_names_and_devices_are_refused():
    with pytest.raises(ConfigError, match=r"backend='cuda' must be one of \('auto'"):
        backend_choice.check("cuda")
    with pytest.raises(ConfigError, match="computes on the CPU, and the model is on meta"):
        choose(DeltaRule(), example(), backend="cpp", device=torch.device("meta"))
