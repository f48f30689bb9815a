"""The figure of drawn tables."""

from experiments.prior_tables import run


def test_it_draws_the_same_tables_again(tmp_path):
    for name in ("first.png", "again.png"):
        run.draw(tmp_path / name, tables=2, rows=40, seed=0)
    first, again = ((tmp_path / name).read_bytes() for name in ("first.png", "again.png"))
    assert first.startswith(b"\x89PNG")
    assert first == again
