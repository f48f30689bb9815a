"""Ridge regressions on small tables, solved by an inverse and rows left out one by one."""

import numpy as np
import torch

from tabicl_linear.ridge_inputs.solve import Part

KINDS = (Part(slice(0, 3), 0.5), Part(slice(5, 9), 2.0))
"""Of 9 features: those in between belong to no kind of the set."""
VARIANCE = 0.5**2 + 2.0**2
"""Of the features of a row of the set, which penalties are in units of."""
PENALTIES = (0.01, 0.1, 1.0, 10.0)


def table(rows: int, *, tasks: int = 2, classes: int = 3, seed: int = 0):
    """Features of unlike location and size, and one-hot labels; the last class never occurs."""
    g = torch.Generator().manual_seed(seed)
    f = torch.randn(tasks, rows, 9, generator=g, dtype=torch.float64)
    f = 3 * f * torch.arange(1, 10) + torch.arange(9)
    y = torch.randint(0, classes - 1, (tasks, rows), generator=g)
    return f, torch.nn.functional.one_hot(y, classes).double()


def scaling(f: np.ndarray) -> np.ndarray:
    """The diagonal of D: one number for each feature of the set, from all rows."""
    factors = []
    for place, deviation in KINDS:
        kind = f[:, place] - f[:, place].mean(0)
        factors.append(np.full(kind.shape[1], deviation * (kind**2).sum(1).mean() ** -0.5))
    return np.concatenate(factors)


def chosen(f: np.ndarray) -> np.ndarray:
    return np.concatenate([f[:, part.place] for part in KINDS], axis=1)


def plain_solution(f: np.ndarray, r: np.ndarray, scale: np.ndarray, penalty: float):
    """Mean, class shares and weights, by an inverse and a matrix D that are written out."""
    mean, shares = f.mean(0), r.mean(0)
    centred = (f - mean) @ np.diag(scale)
    gram = centred.T @ centred + penalty * VARIANCE * np.eye(len(scale))
    return mean, shares, np.linalg.inv(gram) @ centred.T @ (r - shares)


def left_out_by_hand(f: np.ndarray, r: np.ndarray, penalty: float) -> np.ndarray:
    """Solve without each row, under the scaling of all rows, and predict it."""
    scale, f = scaling(f), chosen(f)
    predictions = []
    for i in range(len(f)):
        others = np.arange(len(f)) != i
        mean, shares, weights = plain_solution(f[others], r[others], scale, penalty)
        predictions.append(shares + (f[i] - mean) * scale @ weights)
    return np.stack(predictions)


def by_hand(f, r, penalties=PENALTIES) -> torch.Tensor:
    tasks = list(zip(f.numpy(), r.numpy(), strict=True))
    return torch.tensor(
        np.stack([[left_out_by_hand(*task, penalty) for task in tasks] for penalty in penalties])
    )
