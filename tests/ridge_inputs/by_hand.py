"""Ridge regressions on small tables, solved by an inverse and rows left out one by one."""

import numpy as np
import torch

from tabicl_linear.ridge_inputs.feature_sets import Part

KINDS = (Part(slice(0, 3), 0.5), Part(slice(5, 9), 2.0))
"""Of 9 features: those in between belong to no kind of the set."""
VARIANCE = 0.5**2 + 2.0**2
"""Of the features of a row of the set, which penalties are in units of."""
PENALTIES = (0.01, 0.1, 1.0, 10.0)


def table(rows: int, *, tasks: int = 2, classes: int = 3, seed: int = 0):
    """Features of unlike location and size, and one-hot labels; the last class never occurs."""
    g = torch.Generator().manual_seed(seed)
    features = torch.randn(tasks, rows, 9, generator=g, dtype=torch.float64)
    features = 3 * features * torch.arange(1, 10) + torch.arange(9)
    y = torch.randint(0, classes - 1, (tasks, rows), generator=g)
    return features, torch.nn.functional.one_hot(y, classes).double()


def scaling(features: np.ndarray) -> np.ndarray:
    """The diagonal of D: one number for each feature of the set, from all rows."""
    factors = []
    for place, deviation in KINDS:
        kind = features[:, place] - features[:, place].mean(0)
        factors.append(np.full(kind.shape[1], deviation * (kind**2).sum(1).mean() ** -0.5))
    return np.concatenate(factors)


def chosen(features: np.ndarray) -> np.ndarray:
    return np.concatenate([features[:, part.place] for part in KINDS], axis=1)


def plain_solution(features: np.ndarray, targets: np.ndarray, scale: np.ndarray, penalty: float):
    """Mean, class shares and weights, by an inverse and a matrix D that are written out."""
    mean, shares = features.mean(0), targets.mean(0)
    centred = (features - mean) @ np.diag(scale)
    gram = centred.T @ centred + penalty * VARIANCE * np.eye(len(scale))
    return mean, shares, np.linalg.inv(gram) @ centred.T @ (targets - shares)


def left_out_by_hand(features: np.ndarray, targets: np.ndarray, penalty: float) -> np.ndarray:
    """Solve without each row, under the scaling of all rows, and predict it."""
    scale, features = scaling(features), chosen(features)
    predictions = []
    for i in range(len(features)):
        others = np.arange(len(features)) != i
        mean, shares, weights = plain_solution(features[others], targets[others], scale, penalty)
        predictions.append(shares + (features[i] - mean) * scale @ weights)
    return np.stack(predictions)


def by_hand(features, targets, penalties=PENALTIES) -> torch.Tensor:
    tasks = list(zip(features.numpy(), targets.numpy(), strict=True))
    return torch.tensor(
        np.stack([[left_out_by_hand(*task, penalty) for task in tasks] for penalty in penalties])
    )
