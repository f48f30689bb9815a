import numpy as np
import pytest
import torch
from command_line import CONFIGS, SMALL
from sklearn.linear_model import LogisticRegression

from tabicl_linear.config import build_data
from tabicl_linear.errors import ConfigError, DataError
from tabicl_linear.priors import ClusterPrior, TaskShape, clusters

COUNT = 60


def draw(shape, seed=0, **arguments):
    return ClusterPrior(**arguments).sample_tasks(shape, torch.Generator().manual_seed(seed))


def drawn_clusters(num_features=4, seed=0, num_classes=5, max_clusters=4, count=COUNT):
    rng, generator = np.random.default_rng(seed), torch.Generator().manual_seed(seed)
    p = clusters.draw_parameters(rng, count, num_features, num_classes, max_clusters)
    return p, clusters.draw_clusters(p, num_features, rng, generator), generator


@pytest.fixture(scope="module")
def many():
    return draw(TaskShape(300, 400, 200, 5, 10))


def test_classes_are_two_to_ten_evenly(many):
    classes = torch.bincount(many.y.amax(1) + 1, minlength=11)
    assert classes[:2].sum() == 0
    # A rare class may not occur, so that a task has one class less than it was drawn with.
    expected = torch.tensor([300 / 9] * 9)
    assert (classes[2:] > 0.4 * expected).all()
    assert (classes[2:] < 1.9 * expected).all()


def test_columns_are_z_scores_or_codes(many):
    columns = many.x.transpose(1, 2)
    codes, numbers = columns[many.categorical], columns[~many.categorical]
    assert torch.equal(codes, codes.round())
    assert (codes.min(), codes.max()) == (0, clusters.MOST_CATEGORIES - 1)
    assert numbers.mean(1).abs().max() < 1e-3
    assert numbers.std(1).sub(1).abs().max() < 1e-2
    assert 0.05 < many.categorical.float().mean() < 0.3


def test_a_class_has_several_clusters_and_all_of_them_rows():
    p, drawn, generator = drawn_clusters()
    counts = torch.zeros(COUNT, 5, dtype=torch.long).scatter_add_(
        1, drawn.owner, (drawn.weights > 0).long()
    )
    assert np.array_equal(counts.numpy(), p.num_clusters)
    assert set(np.unique(p.num_clusters)) == {0, 1, 2, 3, 4}
    torch.testing.assert_close(drawn.weights.sum(1), torch.ones(COUNT))
    _, y = drawn.rows(3000, torch.zeros(COUNT, dtype=torch.bool), generator)
    share = torch.nn.functional.one_hot(y, 5).float().mean(1)
    expected = torch.zeros(COUNT, 5).scatter_add_(1, drawn.owner, drawn.weights)
    torch.testing.assert_close(share, expected, atol=0.05, rtol=0)


def test_rows_of_a_cluster_have_its_mean_and_covariance():
    _, drawn, generator = drawn_clusters(max_clusters=1, num_classes=2)
    light = torch.zeros(COUNT, dtype=torch.bool)
    z, y = drawn.rows(20_000, light, generator)
    for task in range(COUNT):
        for g in range(2):
            rows = z[task][:, y[task] == g].T.double()
            if len(rows) < 2000:
                continue
            first, second = drawn.first[task, g].double(), drawn.second[task, g].double()
            one = torch.eye(4, dtype=torch.float64)
            turn = (one - 2 * second.outer(second)) @ (one - 2 * first.outer(first))
            expected = turn @ drawn.scales[task, g].double().square().diag() @ turn.T
            size = expected.diagonal().max()
            assert (rows.T.cov() - expected).abs().max() < 0.15 * size
            error = (rows.mean(0) - drawn.centres[task, g]).abs().max()
            assert error < 6 * (size / len(rows)).sqrt()


def test_covariances_are_shared_or_own():
    p, drawn, _ = drawn_clusters()
    is_same = drawn.scales.eq(drawn.scales[:, :1]).all(2).all(1).numpy()
    assert np.array_equal(is_same, ~p.has_own)
    assert 0.3 < p.has_own.mean() < 0.7


def test_scores_are_the_densities_of_the_classes():
    p, drawn, generator = drawn_clusters(num_features=3)
    z, _ = drawn.rows(20, torch.zeros(COUNT, dtype=torch.bool), generator)
    scores = drawn.scores(z, 5)
    for task in range(5):
        density = torch.zeros(20, 5, dtype=torch.float64)
        for g, owner in enumerate(drawn.owner[task]):
            first, second = drawn.first[task, g].double(), drawn.second[task, g].double()
            one = torch.eye(3, dtype=torch.float64)
            turn = (one - 2 * second.outer(second)) @ (one - 2 * first.outer(first))
            covariance = turn @ drawn.scales[task, g].double().square().diag() @ turn.T
            normal = torch.distributions.MultivariateNormal(
                drawn.centres[task, g].double(), covariance
            )
            density[:, owner] += drawn.weights[task, g] * normal.log_prob(z[task].T.double()).exp()
        density *= (2 * np.pi) ** 1.5
        torch.testing.assert_close(scores[task].double().exp(), density, rtol=1e-3, atol=1e-6)
    assert torch.equal(scores.isinf().all(1), torch.from_numpy(p.num_clusters == 0))


def test_the_best_classifier_beats_chance_and_a_linear_model():
    _, drawn, generator = drawn_clusters()
    z, y = drawn.rows(600, torch.zeros(COUNT, dtype=torch.bool), generator)
    z, y, drawn = z[:20], y[:20], clusters.Clusters(*(part[:20] for part in drawn))
    best = (drawn.scores(z, 5).argmax(2) == y).float().mean(1)
    majority = torch.nn.functional.one_hot(y, 5).float().mean(1).amax(1)
    assert (best >= majority - 0.03).all()
    assert (best - majority).mean() > 0.15
    linear = []
    for rows, labels in zip(z.mT.numpy(), y.numpy(), strict=True):
        fitted = LogisticRegression(max_iter=1000).fit(rows[:300], labels[:300])
        linear.append(fitted.score(rows[300:], labels[300:]))
    ahead = best.numpy() - np.array(linear)
    assert ahead.mean() > 0.05
    assert ahead.min() > -0.05


def test_rows_lie_on_surfaces_of_few_dimensions():
    shape = TaskShape(COUNT, 300, 150, 12, 3)
    numbers = draw(shape, max_clusters=2).x.double()
    spectrum = torch.linalg.svdvals(numbers - numbers.mean(1, keepdim=True)).square()
    explained = (spectrum.cumsum(1) / spectrum.sum(1, keepdim=True))[:, 3]
    assert (explained > 0.95).float().mean() > 0.1
    assert (explained < 0.7).float().mean() > 0.2


def test_the_number_of_clusters_is_bounded():
    _, drawn, _ = drawn_clusters(max_clusters=1)
    assert drawn.owner.shape[1] == 5
    for wrong in (0, 10_001):
        with pytest.raises(ConfigError, match=f"max_clusters={wrong}: use 1 to 10000"):
            ClusterPrior(max_clusters=wrong)


def test_a_shape_that_makes_no_task_is_refused():
    with pytest.raises(DataError, match="num_context=5 with num_classes=10"):
        draw(TaskShape(1, 50, 5, 3, 10))


def test_a_stream_of_the_wide_mixture_goes_on_where_it_stopped():
    data = build_data(CONFIGS / "prior" / "wide.yaml", overrides=SMALL)
    parts = data.prior.prior
    names = ["TabPFNv1Prior", "TreePrior", "ClusterPrior", "RelationPrior"]
    assert [type(part).__name__ for part in parts.priors] == names
    assert parts.weights == [0.25] * 4
    shape = TaskShape(8, 60, 30, 5, 10)

    def batches(first, last):
        return [
            data.prior.sample_tasks(shape, torch.Generator().manual_seed(i)).y
            for i in range(first, last)
        ]

    at_once, later = batches(0, 4), batches(2, 4)
    assert all(map(torch.equal, at_once[2:], later))
    assert isinstance(
        build_data(CONFIGS / "prior" / "clusters.yaml", overrides=SMALL).prior, ClusterPrior
    )
