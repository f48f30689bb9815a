import numpy as np
import pytest

from tabicl_linear.errors import ConfigError
from tabicl_linear.priors.shapes import TaskShapes


def test_draws_cover_the_paper_s_ranges_uniformly():
    rng = np.random.default_rng(0)
    shapes = [TaskShapes().sample(rng) for _ in range(20000)]
    assert {s[:2] + s[4:] for s in shapes} == {(8, 1000, 10)}
    features = np.bincount([s.num_features for s in shapes], minlength=21)
    assert features[:2].sum() == 0
    np.testing.assert_allclose(features[2:] / 20000, 1 / 19, atol=0.008)
    context = np.array([s.num_context for s in shapes])
    assert (context.min(), context.max()) == (64, 999)
    np.testing.assert_allclose(np.histogram(context, 8, (64, 1000))[0] / 20000, 1 / 8, atol=0.01)


def test_draws_depend_on_the_generator_alone():
    first, second = (np.random.default_rng(7) for _ in range(2))
    draws = [[TaskShapes().sample(rng) for _ in range(5)] for rng in (first, second)]
    assert draws[0] == draws[1]
    assert len(set(draws[0])) == 5


def test_bounds_are_kept():
    shapes = TaskShapes(3, 40, 20, 4, 4, 5, max_context=20)
    assert shapes.sample(np.random.default_rng(0)) == (3, 40, 20, 4, 5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size=0"),
        ({"max_classes": 1}, "max_classes=1"),
        ({"min_features": 5, "max_features": 4}, "min_features=5, max_features=4"),
        ({"min_features": 0}, "min_features=0"),
        ({"min_context": 5}, "min_context=5 with max_classes=10"),
        ({"num_rows": 64}, "leaves no query"),
        ({"max_context": 1000}, "max_context=1000"),
        ({"max_context": 63}, "max_context=63"),
    ],
)
def test_impossible_bounds_are_refused_at_construction(options, message):
    with pytest.raises(ConfigError, match=message) as error:
        TaskShapes(**options)
    assert "\n" not in str(error.value)
