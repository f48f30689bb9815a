"""Print how large fitted classifiers are: MB of their states (`state_nbytes_`).

python -m experiments.sizes.run --rows 100 1000 3000 20000

Tables are those of scikit-learn's `make_classification`: two classes and 20 columns of numbers, of
which 2 or 20 tell the class, or none, where labels are in random order. Trees have other leaves on
each, so there is a least and a most.
"""

import argparse
from collections.abc import Callable, Sequence

import numpy as np
from sklearn.datasets import make_classification

from tabicl_linear import TabICLLinearClassifier
from tabicl_linear.estimator.arrays import FloatArray, IntArray
from tabicl_linear.pages import markdown

NUM_COLUMNS = 20
INFORMATIVE = (2, NUM_COLUMNS, 0)
"""How many columns tell the class, in each of the tables."""
Fit = Callable[[FloatArray, IntArray], TabICLLinearClassifier]
FITS: dict[str, Fit] = {
    "default": lambda x, y: TabICLLinearClassifier().fit(x, y),
    "trees=True": lambda x, y: TabICLLinearClassifier(trees=True).fit(x, y),
    "trees=False": lambda x, y: TabICLLinearClassifier(trees=False).fit(x, y),
    "partial_fit": lambda x, y: TabICLLinearClassifier().partial_fit(x, y),
    "streaming": lambda x, y: TabICLLinearClassifier("streaming").partial_fit(x, y),
}


def table(rows: int, informative: int) -> tuple[FloatArray, IntArray]:
    """Features and labels of a table."""
    x, y = make_classification(
        rows,
        NUM_COLUMNS,
        n_informative=informative or NUM_COLUMNS,
        n_redundant=0,
        n_clusters_per_class=1,
        random_state=0,
    )
    return x, y if informative else np.random.default_rng(0).permutation(y)


def megabytes(fit: Fit, rows: int) -> str:
    """The least and the most on the tables of so many rows."""
    sizes = [fit(*table(rows, each)).state_nbytes_ / 1e6 for each in INFORMATIVE]
    least, most = f"{min(sizes):.2f}", f"{max(sizes):.2f}"
    return least if least == most else f"{least} to {most}"


def sizes(rows: Sequence[int], names: Sequence[str]) -> str:
    """The table, as markdown."""
    lines = [[name, *(megabytes(FITS[name], count) for count in rows)] for name in names]
    return markdown(["MB", *(f"{count:,} rows" for count in rows)], lines)


def main() -> None:
    """Read the command line, fit and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--rows", type=int, nargs="+", default=[100, 1000, 3000, 20_000], help="of the tables")
    add("--only", nargs="+", choices=FITS, default=list(FITS), help="these classifiers")
    arguments = parser.parse_args()
    print(sizes(arguments.rows, arguments.only))


if __name__ == "__main__":
    main()
