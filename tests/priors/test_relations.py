import numpy as np
import pytest
import torch
from command_line import CONFIGS, SMALL
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression

from tabicl_linear.config import build_data
from tabicl_linear.errors import ConfigError, DataError
from tabicl_linear.priors import RelationPrior, TaskShape, relations

SEEN = torch.tensor([[[1.0, -1.0, 2.0, 0.5, -0.7], [2.0, 1.0, -1.0, 3.0, 0.2]]])


def draw(shape, seed=0, **arguments):
    return RelationPrior(**arguments).sample_tasks(shape, torch.Generator().manual_seed(seed))


def parameters(kind, count=200, num_features=3, num_classes=2):
    rng = np.random.default_rng(0)
    return relations.draw_parameters(rng, count, num_features, num_classes, [kind])


def terms(kind, seen):
    p = parameters(kind, count=len(seen), num_features=seen.shape[1])
    return relations.terms(seen, p, torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def many():
    return draw(TaskShape(200, 400, 200, 6, 10))


def test_tasks_are_of_all_kinds(many):
    classes = many.y.amax(1) + 1
    assert set(classes.tolist()) == set(range(2, 11))
    numeric = many.x.transpose(1, 2)[~many.categorical]
    assert numeric.mean(1).abs().max() < 1e-3
    values, share = zip(*(row.unique(return_counts=True) for row in numeric), strict=True)
    most = torch.tensor([counts.max().item() / 400 for counts in share])
    # Zeros and counts beside numbers of which each is another.
    assert 0.1 < (most > 0.2).float().mean() < 0.5
    assert np.mean([len(row) == 400 for row in values]) > 0.3
    assert (numeric.abs().amax(1) > 6).float().mean() > 0.05


def test_nominal_columns_have_many_categories_that_bear_the_target():
    x, y, categorical = draw(TaskShape(60, 4000, 2000, 3, 2), kinds=["category"])
    assert categorical.any(1).all()
    gained = []
    for rows, labels, is_code in zip(x, y, categorical, strict=True):
        gains = []
        for code in rows[:, is_code].long().T:
            assert code.max() < relations.CATEGORIES[1]
            sums = torch.zeros(500, 2).index_put_(
                (code[:2000], labels[:2000]), torch.ones(2000), accumulate=True
            )
            right = sums.argmax(1)[code[2000:]] == labels[2000:]
            gains.append(right.float().mean() - labels[2000:].bincount().max() / 2000)
        gained.append(max(gains))
    assert torch.stack(gained).mean() > 0.05


def test_what_targets_see_of_counts_is_in_the_column():
    p = parameters("count", count=20)
    rng, generator = np.random.default_rng(0), torch.Generator().manual_seed(0)
    x, seen = relations.draw_columns(p, 200, rng, generator)
    is_count = torch.from_numpy(p.column == relations.COLUMNS.index("count"))
    assert is_count.any(1).all()
    for column, view in zip(x[is_count], seen[is_count], strict=True):
        assert len(column.unique()) < 200
        order = column.argsort()
        assert (view[order].diff() >= 0).all()
        assert column.unique().shape == view.unique().shape or view.max() == relations.LARGEST


@pytest.mark.parametrize("kind", ["oblique", "compared", "parity"])
def test_some_terms_have_two_values(kind):
    seen = torch.randn(30, 3, 200, generator=torch.Generator().manual_seed(1))
    values = terms(kind, seen)
    assert all(len(term.unique()) <= 2 for term in values.flatten(0, 1))
    assert (values.std(2) > 0.5).float().mean() > 0.9


def test_terms_are_centred_and_a_constant_one_is_nothing():
    seen = torch.randn(30, 3, 200, generator=torch.Generator().manual_seed(1))
    for kind in relations.KINDS:
        values = terms(kind, seen)
        assert values.shape == (30, relations.MOST_TERMS, 200)
        assert values.isfinite().all()
        assert values.mean(2).abs().max() < 0.1
    assert terms("compared", torch.zeros(3, 2, 50)).eq(0).all()


@pytest.mark.parametrize(
    ("kind", "ahead"), [("compared", 0.0), ("parity", 0.06), ("periodic", 0.1)]
)
def test_a_forest_finds_what_a_linear_model_does_not(kind, ahead):
    shape = TaskShape(12, 500, 350, 4, 3)
    x, y, _ = (field.numpy() for field in draw(shape, kinds=[kind]))
    scores = []
    for rows, labels in zip(x, y, strict=True):
        rows = (rows - rows.mean(0)) / (rows.std(0) + 1e-6)
        models = RandomForestClassifier(20, random_state=0), LogisticRegression(max_iter=1000)
        fitted = [model.fit(rows[:350], labels[:350]) for model in models]
        scores.append([model.score(rows[350:], labels[350:]) for model in fitted])
    forest, linear = np.array(scores).T
    assert (forest - linear).mean() > ahead
    assert forest.mean() > 0.6


def test_one_column_is_enough_for_every_kind():
    for kind in relations.KINDS:
        x, y, _ = draw(TaskShape(20, 60, 30, 1, 4), kinds=[kind])
        assert x.isfinite().all()
        assert (y.amax(1) >= 1).all()


def test_kinds_that_are_none_are_refused_in_one_line():
    for kinds in ([], ["parity", "odd"]):
        with pytest.raises(ConfigError, match="use one or more of oblique, compared") as error:
            RelationPrior(kinds)
        assert "\n" not in str(error.value)


def test_a_shape_that_makes_no_task_is_refused():
    with pytest.raises(DataError, match="num_context=5 with num_classes=10"):
        draw(TaskShape(1, 50, 5, 3, 10))


def test_it_is_named_in_a_config():
    prior = build_data(CONFIGS / "prior" / "relations.yaml", overrides=SMALL).prior
    assert isinstance(prior, RelationPrior)
    assert prior.kinds == relations.KINDS
