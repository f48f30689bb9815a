"""Which kernels a model gets, what is refused and what is said about it."""

import logging
from contextlib import nullcontext

import pytest
import torch
from kernels.candidates import RIGHT, fast_dtypes, fold_right, put, raises, scan_right

from tabicl_linear.backends import choice as backend_choice
from tabicl_linear.backends import fla, probe
from tabicl_linear.backends.cpp import library
from tabicl_linear.errors import ConfigError
from tabicl_linear.kernels import additive, delta
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


def raises_in_bfloat16(*args, size):
    if args[0].dtype == torch.bfloat16:
        raise RuntimeError("no bfloat16 here")
    return delta.scan(*args, size=size)


def outputs_off(*args, size):
    o, S = delta.scan(*args, size=size)
    return 1.01 * o, S


def state_off(*args, size):
    o, S = delta.scan(*args, size=size)
    return o, S + 0.05


def gradient_off(q, k, *rest, size):
    """Right results, with a gradient of the keys that is 2 % too large."""
    return delta.scan(q, 1.02 * k - 0.02 * k.detach(), *rest, size=size)


def gradient_nan(*args, size):
    o, S = delta.scan(*args, size=size)
    return o + (o - o).abs().sqrt(), S


def fold_off(*args, size):
    return 1.01 * delta.fold(*args, size=size)


def place(rule, *examples, choice="auto", device=CPU):
    return backend_choice.place(rule, examples, device=device, backend=choice)


@pytest.fixture
def lines(caplog):
    caplog.set_level(logging.INFO, logger="tabicl_linear")
    return lambda: [record.getMessage() for record in caplog.records]


@pytest.mark.skipif(library.unavailable() is not None, reason="the compiled kernel is not built")
@pytest.mark.parametrize(
    ("rule", "gates"),
    [(DeltaRule(), 0), (DeltaRule(), 1), (AdditiveRule(), 1), (AdditiveRule(), 6)],
)
def test_auto_takes_the_compiled_kernel_on_the_cpu(rule, gates):
    examples = [example(dtype, gates=gates) for dtype in (torch.float32, torch.bfloat16)]
    assert fast_dtypes(place(rule, *examples)) == BOTH
    assert fast_dtypes(place(rule, *examples, choice="compiled")) == BOTH
    assert place(rule, *examples, choice="torch").kernel is None


def test_a_missing_compiled_kernel_is_said_once_and_pytorch_taken(monkeypatch, lines):
    monkeypatch.setitem(
        backend_choice.IMPLEMENTATIONS,
        "compiled",
        backend_choice.IMPLEMENTATIONS["compiled"]._replace(
            unavailable=lambda: "no compiler was there"
        ),
    )
    for _ in range(2):
        examples = example(dim=3), example(torch.bfloat16, dim=3)
        assert place(DeltaRule(), *examples).kernel is None
    assert lines() == ["cpu, DeltaRule (k 3, v 3) by PyTorch: no compiler was there"]
    with pytest.raises(ConfigError, match=r"backend='compiled' .*no compiler was there.*'torch'"):
        backend_choice.check("compiled")


def test_a_kernel_that_agrees_is_taken_and_said(monkeypatch, lines):
    put(monkeypatch, RIGHT)
    rule = place(DeltaRule(), example(dim=4), example(torch.bfloat16, dim=4))
    assert fast_dtypes(rule) == BOTH
    assert lines() == ["cpu, DeltaRule (k 4, v 4) by the compiled kernel"]


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
    assert place(DeltaRule(), example()).kernel is None
    assert place(AdditiveRule(), example(beta=False)) is not None
    assert any(reason in line for line in [*lines(), _refusal(choice="compiled")])
    assert reason in _refusal(choice="compiled")


def _refusal(choice):
    with pytest.raises(ConfigError) as error:
        place(DeltaRule(), example(), choice=choice)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_kernel_is_taken_for_the_dtypes_in_which_it_works(monkeypatch, lines):
    put(monkeypatch, Kernel(raises_in_bfloat16, fold_right))
    rule = place(DeltaRule(), example(dim=5), example(torch.bfloat16, dim=5))
    assert fast_dtypes(rule) == {torch.float32}
    (line,) = lines()
    assert line == (
        "cpu, DeltaRule (k 5, v 5) by the compiled kernel in float32; by PyTorch in bfloat16: "
        "RuntimeError: no bfloat16 here"
    )
    x = Streams(*(None if z is None else torch.rand_like(z) for z in example(torch.bfloat16)))
    outputs, _ = rule.scan(x)  # would raise
    assert torch.equal(outputs, DeltaRule().scan(x)[0])


@pytest.mark.parametrize("gates", [0, 1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_long_probe_is_not_failed_by_gradients_that_vanish(monkeypatch, dtype, gates):
    """A thousand writes to narrow heads leave nothing of the gradient of the first state."""
    monkeypatch.setitem(probe.SHAPE, "cpu", (1, 967))
    put(monkeypatch, RIGHT)
    placed = place(DeltaRule(), example(dtype, dim=11, gates=gates), choice="compiled")
    assert fast_dtypes(placed) == {dtype}


def test_other_processes_than_the_first_say_nothing(monkeypatch, lines):
    monkeypatch.setenv("LOCAL_RANK", "1")
    put(monkeypatch, RIGHT)
    place(DeltaRule(), example(dim=7))
    assert lines() == []


def test_float64_is_pytorch_s_and_not_worth_a_line(monkeypatch, lines):
    put(monkeypatch, Kernel(raises, raises))
    for choice in ("auto", "compiled"):
        assert place(DeltaRule(), example(torch.float64), choice=choice).kernel is None
    assert lines() == []


def test_rules_without_a_slot_or_with_kernels_of_their_own_stay():
    ridge, own = RidgeRule(), DeltaRule(kernel=RIGHT)
    assert place(ridge, example()) is ridge
    assert place(own, example()) is own
    placed = place(DeltaRule(), example())
    assert place(placed, example(), choice="torch").kernel is None


def test_a_probe_leaves_no_trace(monkeypatch):
    put(monkeypatch, RIGHT)
    before = torch.get_rng_state()
    for i, context in enumerate([torch.no_grad(), torch.inference_mode(), nullcontext()]):
        with context:
            assert fast_dtypes(place(DeltaRule(), example(dim=8 + i))) == {torch.float32}
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
    assert place(DeltaRule(), example(), choice="fla").kernel is None


def test_unknown_names_and_devices_are_refused():
    with pytest.raises(ConfigError, match=r"backend='cuda' must be one of \('auto'"):
        backend_choice.check("cuda")
    with pytest.raises(ConfigError, match="computes on the CPU, and the model is on meta"):
        place(DeltaRule(), example(), choice="compiled", device=torch.device("meta"))


def test_torch_kernels_are_what_no_kernel_means():
    assert backend_choice.TORCH[DeltaRule] is delta.TORCH
    assert backend_choice.TORCH[AdditiveRule] is additive.TORCH
