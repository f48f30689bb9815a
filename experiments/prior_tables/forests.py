"""Test accuracy of a forest and of a linear model on tasks of each prior.

    python -m experiments.prior_tables.forests --tables 60

Tables of 4, 8 and 16 columns, 500 context and 300 query rows, up to 10 classes.
"""

import argparse
import sys
from collections.abc import Sequence

import numpy as np
import torch
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from tabicl_linear.priors import (
    ClusterPrior,
    Prior,
    RelationPrior,
    TabPFNv1Prior,
    TaskShape,
    TreePrior,
)
from tabicl_linear.priors.relations import KINDS

WIDTHS, CONTEXT, ROWS = (4, 8, 16), 500, 800
AHEAD = 0.02


def scores(prior: Prior, tables: int, seed: int) -> np.ndarray:
    """Accuracy of forest, linear model and largest class, [table 3]."""
    accuracies = []
    for width in WIDTHS:
        generator = torch.Generator().manual_seed(seed)
        shape = TaskShape(tables // len(WIDTHS), ROWS, CONTEXT, width, 10)
        tasks = prior.sample_tasks(shape, generator)
        for x, y in zip(tasks.x.nan_to_num().numpy(), tasks.y.numpy(), strict=True):
            forest = RandomForestClassifier(60, random_state=0)
            linear = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000))
            fitted = [model.fit(x[:CONTEXT], y[:CONTEXT]) for model in (forest, linear)]
            largest = np.mean(y[CONTEXT:] == np.bincount(y[:CONTEXT]).argmax())
            accuracies.append([*(m.score(x[CONTEXT:], y[CONTEXT:]) for m in fitted), largest])
    return np.array(accuracies)


def main(argv: Sequence[str] | None = None) -> int:
    """Print a table with a row for each prior."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", type=int, default=60, help="of each prior")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args(argv)
    priors: dict[str, Prior] = {
        "TabPFNv1Prior": TabPFNv1Prior(),
        "TreePrior": TreePrior(),
        "ClusterPrior": ClusterPrior(),
        "RelationPrior": RelationPrior(),
    }
    priors |= {f"RelationPrior, {kind}": RelationPrior([kind]) for kind in KINDS}
    print("| prior | forest | linear model | largest class | ahead | behind |\n" + "|---" * 6 + "|")
    for name, prior in priors.items():
        accuracies = scores(prior, arguments.tables, arguments.seed)
        forest, linear, largest = accuracies.mean(0)
        ahead = np.mean(accuracies[:, 0] > accuracies[:, 1] + AHEAD)
        behind = np.mean(accuracies[:, 0] < accuracies[:, 1] - AHEAD)
        cells = f"{forest:.3f} | {linear:.3f} | {largest:.3f} | {ahead:.0%} | {behind:.0%}"
        print(f"| {name} | {cells} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
