"""The figure of drawn tables."""

from experiments.prior_tables import forests, run
from tabicl_linear.priors import GaussianUniformPrior


def test_it_draws_the_same_tables_again(tmp_path):
    for name in ("first.png", "again.png"):
        run.draw(tmp_path / name, tables=2, rows=40, seed=0)
    first, again = ((tmp_path / name).read_bytes() for name in ("first.png", "again.png"))
    assert first.startswith(b"\x89PNG")
    assert first == again


def test_forests_are_compared_on_the_same_tables_each_time():
    first, again = (forests.scores(GaussianUniformPrior(), 3, seed=0) for _ in range(2))
    assert first.shape == (3, 3)
    assert (first == again).all()
    assert ((first >= 0) & (first <= 1)).all()
