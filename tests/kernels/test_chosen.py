"""What is in force where."""

from contextlib import suppress

import pytest
import torch

from tabicl_linear.kernels.chosen import chosen, using
from tabicl_linear.kernels.rule import computed_in
from tabicl_linear.kernels.streams import Streams


def plain(x):
    return x


def fast(x):
    return x + 1


def faster(x):
    return x + 2


def test_a_choice_holds_inside_its_context_alone():
    assert chosen(plain) is plain
    with using({plain: fast}):
        assert chosen(plain)(1) == 2
        assert chosen(fast) is fast
        with using({plain: faster}):
            assert chosen(plain)(1) == 3
        with using({}):
            assert chosen(plain) is plain
        assert chosen(plain) is fast
    with suppress(ZeroDivisionError), using({plain: fast}):
        raise ZeroDivisionError
    assert chosen(plain) is plain


def test_torch_compile_is_shown_the_function_itself(monkeypatch):
    with using({plain: fast}):
        assert chosen(plain) is fast
        monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
        assert chosen(plain) is plain


@pytest.mark.parametrize(
    ("dtypes", "narrowest"),
    [
        ((torch.float32, torch.float32, torch.float32), torch.float32),
        ((torch.float32, torch.float32, torch.bfloat16), torch.bfloat16),
        ((torch.float16, torch.float32, torch.float32), torch.float16),
        ((torch.float64, torch.float64, torch.float64), torch.float64),
    ],
)
def test_kernels_compute_in_the_narrowest_dtype(dtypes, narrowest):
    assert computed_in(Streams(*(torch.zeros(1, 1, 1, 2, dtype=d) for d in dtypes))) == narrowest
