"""What docs/extending.md promises of every prior of the package, found by walking it."""

import random

import numpy as np
import pytest
import torch
from contract.variants import defined_in

import tabicl_linear.priors
from tabicl_linear.errors import DataError
from tabicl_linear.priors import (
    GaussianUniformPrior,
    Prior,
    TabPFNv1Prior,
    Tasks,
    TaskShape,
    TreePrior,
    WithTableEffects,
)

PRIORS: dict[str, Prior] = {
    **{cls.__name__: cls() for cls in defined_in(tabicl_linear.priors, Prior)},
    "TabPFNv1Prior+batch": TabPFNv1Prior(sharing="batch"),
    "TreePrior+effects": WithTableEffects(
        TreePrior(),
        irrelevant=1.0,
        redundant=1.0,
        identifiers=1.0,
        imbalanced=1.0,
        distorted=1.0,
        recoded=1.0,
        missing=1.0,
    ),
}
SHAPES = [
    TaskShape(8, 60, 20, 5, 10),
    TaskShape(1, 4, 2, 1, 2),
    TaskShape(3, 30, 29, 20, 3),
    TaskShape(2, 300, 10, 2, 10),
]
ROOMY = SHAPES[0]
IMPOSSIBLE = ROOMY._replace(num_context=ROOMY.num_rows)


def draw(prior: Prior, shape: TaskShape = ROOMY, seed: int = 0) -> Tasks:
    return prior.sample_tasks(shape, torch.Generator().manual_seed(seed))


def assert_shapes_and_dtypes(prior: Prior) -> None:
    for shape in SHAPES:
        x, y, categorical = draw(prior, shape)
        b, n, _, m, _ = shape
        assert (x.shape, y.shape, categorical.shape) == ((b, n, m), (b, n), (b, m))
        assert (x.dtype, y.dtype) == (torch.float32, torch.int64)
        assert categorical.dtype == torch.bool
        assert not x.isinf().any()
        assert x.isfinite().any()


def assert_classes(prior: Prior) -> None:
    """0..K-1, each in the context, at least two and no more than asked for."""
    for shape in SHAPES:
        for seed in range(5):
            for labels in draw(prior, shape, seed).y:
                result = labels.unique().tolist()
                assert result == list(range(len(result)))
                assert result == labels[: shape.num_context].unique().tolist()
                assert 2 <= len(result) <= shape.num_classes


def assert_the_generator_alone_decides(prior: Prior) -> None:
    first = draw(prior)
    before = generators()
    again = draw(prior)
    assert generators() == before, "a global generator was drawn from"
    torch.manual_seed(1), np.random.seed(1), random.seed(1)  # noqa: NPY002
    for other_globals in (again, draw(prior)):
        assert all(map(same, other_globals, first))
    assert not same(draw(prior, seed=1).x, first.x)
    one = torch.Generator().manual_seed(0)
    both = [prior.sample_tasks(ROOMY, one) for _ in range(2)]
    assert same(both[0].x, first.x)
    assert not same(both[1].x, first.x)


def generators() -> list:
    # Not Python's own: the checks of shapes while testing draw from it.
    return [torch.get_rng_state().tolist(), str(np.random.get_state()[1:3])]  # noqa: NPY002


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.equal(a.nan_to_num(nan=1e9), b.nan_to_num(nan=1e9))


def assert_on_the_generator_s_device(prior: Prior, device: str = "cpu") -> None:
    """Whatever the default device is: here one on which nothing can be computed."""
    with torch.device("meta"):
        tasks = prior.sample_tasks(ROOMY, torch.Generator(device).manual_seed(0))
    assert {tensor.device.type for tensor in tasks} == {device}


def assert_tasks_that_cannot_be_are_refused(prior: Prior) -> None:
    with pytest.raises(DataError, match=f"num_context={ROOMY.num_rows}") as error:
        draw(prior, IMPOSSIBLE)
    assert "\n" not in str(error.value)


CONTRACT = [
    assert_shapes_and_dtypes,
    assert_classes,
    assert_the_generator_alone_decides,
    assert_on_the_generator_s_device,
    assert_tasks_that_cannot_be_are_refused,
]


def test_every_prior_is_found():
    assert {"GaussianUniformPrior", "Mixture", "TreePrior", "WithTableEffects"} <= set(PRIORS)


@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("promise", CONTRACT, ids=lambda f: f.__name__)
def test_it_keeps(promise, prior):
    promise(PRIORS[prior])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("prior", PRIORS)
def test_it_draws_where_a_gpu_s_generator_is(prior):
    assert_on_the_generator_s_device(PRIORS[prior], "cuda")


class Broken(Prior):
    """A good prior, and something done to what it draws."""

    def __init__(self, change):
        self.change = change

    def sample_tasks(self, shape, generator):
        return self.change(GaussianUniformPrior().sample_tasks(shape, generator))


class Careless(Prior):
    """Takes whatever shape it is given."""

    def sample_tasks(self, shape, generator):
        x = torch.randn(shape.batch_size, shape.num_rows, shape.num_features, generator=generator)
        return Tasks(x, (x[..., 0] > 0).long(), torch.zeros(x.shape[::2], dtype=torch.bool))


def noisy(noise):
    return Broken(lambda tasks: tasks._replace(x=tasks.x + noise()))


def relabelled(change):
    return Broken(lambda tasks: tasks._replace(y=change(tasks.y)))


def late_class(y: torch.Tensor) -> torch.Tensor:
    return torch.cat([y[:, :-1], y.amax(1, keepdim=True) + 1], dim=1)


@pytest.mark.parametrize(
    ("prior", "promise"),
    [
        (Broken(lambda tasks: tasks._replace(x=tasks.x[..., :1])), assert_shapes_and_dtypes),
        (Broken(lambda tasks: tasks._replace(x=tasks.x.double())), assert_shapes_and_dtypes),
        (Broken(lambda tasks: tasks._replace(x=tasks.x / 0)), assert_shapes_and_dtypes),
        (relabelled(late_class), assert_classes),
        (relabelled(lambda y: y + 1), assert_classes),
        (relabelled(lambda y: y * 2), assert_classes),
        (relabelled(torch.zeros_like), assert_classes),
        (noisy(lambda: torch.rand(())), assert_the_generator_alone_decides),
        (noisy(lambda: np.random.rand()), assert_the_generator_alone_decides),  # noqa: NPY002
        (noisy(random.random), assert_the_generator_alone_decides),
        (Broken(lambda tasks: draw(GaussianUniformPrior())), assert_the_generator_alone_decides),
        (Broken(lambda tasks: tasks._replace(x=tasks.x.new_zeros(8, 60, 5))), CONTRACT[2]),
        (
            Broken(lambda tasks: tasks._replace(categorical=torch.zeros(8, 5))),
            assert_on_the_generator_s_device,
        ),
    ],
)
def test_a_prior_that_breaks_a_promise_is_found_out(prior, promise):
    with pytest.raises(AssertionError):
        promise(prior)


def test_a_prior_that_takes_any_shape_is_found_out():
    with pytest.raises(pytest.fail.Exception):
        assert_tasks_that_cannot_be_are_refused(Careless())
