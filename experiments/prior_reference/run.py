"""Compares the TabPFN v1 prior with statistics of datasets drawn by the authors' own code.

Prints, as markdown, the Kolmogorov-Smirnov distance of every statistic and the mean accuracies by
number of classes and by share of the majority class.
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from scipy import stats
from sklearn.linear_model import RidgeClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.tree import DecisionTreeClassifier

from tabicl_linear.pages import markdown
from tabicl_linear.priors import TabPFNv1Prior, TaskShape

NUM_ROWS = 1000
NUM_TRAIN = 800
BATCH_SIZE = 8
ACCURACIES = ["acc_majority", "acc_knn5", "acc_tree4", "acc_ridge"]


def label_statistics(y: np.ndarray) -> dict[str, float]:
    """Return class counts and shares of one dataset's labels."""
    share = np.bincount(y)
    share = share[share > 0] / len(y)
    return {
        "num_classes": len(share),
        "max_label": y.max(),
        "majority": share.max(),
        "minority": share.min(),
        "class_entropy": -(share * np.log(share)).sum(),
    }


def column_statistics(x: np.ndarray) -> tuple[dict[str, float], np.ndarray]:
    """Return statistics of one dataset's columns `[n, m]`, and its z-scored columns."""
    missing = np.isnan(x)
    filled = np.where(missing, 0.0, x)
    std = filled.std(0)
    varied = std >= 1e-9
    z = (filled - filled.mean(0)) / np.where(varied, std, 1.0)
    unique = np.array([len(np.unique(column)) for column in filled.T])
    rest = z[:, varied]
    eigenvalues = np.linalg.eigvalsh(np.atleast_2d(np.cov(z.T))).clip(0)
    weights = eigenvalues[eigenvalues > 0] / max(eigenvalues.sum(), 1e-300)
    pairs = np.triu_indices(rest.shape[1], 1)
    correlation = np.abs(np.atleast_2d(np.corrcoef(rest.T))[pairs]) if len(pairs[0]) else None
    result = {
        "nan_share": missing.mean(),
        "constant_share": 1 - varied.mean(),
        "few_unique_share": (unique <= 10).mean(),
        "median_unique": np.median(unique),
        "mean_abs_skew": np.abs(stats.skew(rest)).mean() if varied.any() else 0.0,
        "mean_kurtosis": stats.kurtosis(rest).mean() if varied.any() else 0.0,
        "max_abs": np.abs(filled).max(),
        "mean_abs_corr": 0.0 if correlation is None else correlation.mean(),
        "effective_rank": np.exp(-(weights * np.log(weights)).sum()) if len(weights) else 0.0,
    }
    return result, z


def accuracies(z: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """Return accuracies on the last rows of simple models fitted on the first ones."""
    y_train, y_test = y[:NUM_TRAIN], y[NUM_TRAIN:]
    result = {"acc_majority": (y_test == np.bincount(y_train).argmax()).mean()}
    models = {
        "acc_knn5": KNeighborsClassifier(5),
        "acc_tree4": DecisionTreeClassifier(max_depth=4, random_state=0),
        "acc_ridge": RidgeClassifier(),
    }
    for name, model in models.items():
        result[name] = model.fit(z[:NUM_TRAIN], y_train).score(z[NUM_TRAIN:], y_test)
    return result


def draw_table(sharing: str, num_datasets: int, measured: int, seed: int) -> pd.DataFrame:
    """Draw minibatches of 8 and return statistics of the first `measured` datasets of each.

    The number of features cycles through 2..20. Values have five digits, as in the reference, where
    rounding creates ties in columns that became ranks.
    """
    prior = TabPFNv1Prior(sharing)
    generator = torch.Generator().manual_seed(seed)
    rows = []
    for minibatch in range(-(-num_datasets // measured)):
        shape = TaskShape(BATCH_SIZE, NUM_ROWS, NUM_TRAIN, 2 + minibatch % 19, 10)
        tasks = prior.sample_tasks(shape, generator)
        for x, y, categorical in zip(*(field[:measured] for field in tasks), strict=True):
            of_columns, z = column_statistics(x.double().numpy())
            rows.append(
                {"minibatch": minibatch, "num_features": shape.num_features}
                | {"categorical_share": categorical.double().mean().item()}
                | label_statistics(y.numpy())
                | of_columns
                | accuracies(z, y.numpy())
            )
    return pd.DataFrame(rows).map(lambda value: float(f"{value:.5g}"))


def distances(ours: pd.DataFrame, reference: pd.DataFrame) -> pd.DataFrame:
    """Return the KS distance and both means of every statistic."""
    rows = []
    for name in reference.columns.drop("minibatch"):
        a, b = ours[name].dropna(), reference[name].dropna()
        rows.append((name, stats.ks_2samp(a, b).statistic, a.mean(), b.mean()))
    return pd.DataFrame(rows, columns=["statistic", "ks", "mean ours", "mean reference"])


def relations(ours: pd.DataFrame, reference: pd.DataFrame) -> pd.DataFrame:
    """Return mean accuracies by number of classes and majority share, ours and the reference."""
    parts, edges = [], [0, 0.2, 0.35, 0.5, 0.65, 0.8, 1]
    for name, key in (("classes", "num_classes"), ("majority", "majority")):
        columns = []
        for label, table in (("ours", ours), ("reference", reference)):
            group = table[key].astype(int) if key == "num_classes" else pd.cut(table[key], edges)
            means = table.groupby(group, observed=True)[ACCURACIES].mean()
            means.insert(0, "share", table.groupby(group, observed=True).size() / len(table))
            columns.append(means.add_suffix(f" {label}"))
        part = pd.concat(columns, axis=1)
        parts.append(part.set_axis([f"{name} {value}" for value in part.index]))
    joined = pd.concat(parts)
    return joined[[f"{c} {s}" for c in ["share", *ACCURACIES] for s in ("ours", "reference")]]


def to_markdown(table: pd.DataFrame) -> str:
    """Return a table as markdown, three decimals."""
    cells = table.map(lambda v: f"{v:.3f}" if isinstance(v, float) else str(v)).to_numpy()
    return markdown(list(table.columns), cells.tolist())


def main() -> None:
    """Draw, compare and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reference", required=True, help="csv of the authors' statistics")
    parser.add_argument("--datasets", type=int, default=2000)
    parser.add_argument("--measured", type=int, default=8, help="datasets of each minibatch of 8")
    parser.add_argument("--sharing", choices=["dataset", "batch"], default="dataset")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    if not Path(args.reference).is_file():
        parser.error(f"--reference {args.reference}: no such file; it is not in the repository")
    reference = pd.read_csv(args.reference)
    ours = draw_table(args.sharing, args.datasets, args.measured, args.seed)
    print(f"sharing={args.sharing}, {len(ours)} datasets, seed {args.seed}\n")
    print(to_markdown(distances(ours, reference)), end="\n\n")
    print(to_markdown(relations(ours, reference).rename_axis("group").reset_index()))


if __name__ == "__main__":
    main()
