"""The notebook of the minimal failure runs from top to bottom."""

from pathlib import Path

from forked import forked
from notebooks import printed

__all__ = ["forked"]

NOTEBOOK = Path(__file__).parents[2] / "experiments" / "study" / "minimal_length_failure.ipynb"


def test_every_cell_runs_at_a_tiny_size(forked):
    lines = printed(NOTEBOOK, forked, "STUDY_TINY=1", "MPLBACKEND=Agg")
    names = [line.split()[0].rstrip(":") for line in lines]
    assert names == 2 * ["linear_causal", "linear_noncausal"]
    assert "nan" not in "".join(lines)
