"""Predictions from earlier rows as a loop over rows, which solves from scratch by an inverse."""

import numpy as np
import torch
from ridge_inputs.ridge_models import logistic_regression
from scipy.special import logsumexp

from tabicl_linear.ridge_inputs import RidgePredictions, recent_rows
from tabicl_linear.ridge_inputs.earlier_rows import Rules
from tabicl_linear.ridge_inputs.predictions import ABSENT_LOGIT, CONFIDENCES


def solved(features: np.ndarray, targets: np.ndarray, kinds, penalty: float):
    """The function that a regression on these rows is, by an inverse."""
    columns = np.concatenate([np.arange(part.place.start, part.place.stop) for part in kinds])
    mean, shares, scale = features.mean(0), targets.mean(0), np.zeros(features.shape[1])
    for part in kinds:
        deviation = np.sqrt(((features - mean)[:, part.place] ** 2).sum(1).mean())
        scale[part.place] = part.deviation / deviation
    centred = ((features - mean) * scale)[:, columns]
    added = penalty * sum(part.deviation**2 for part in kinds)
    gram = centred.T @ centred + added * np.eye(len(columns))
    weights = np.linalg.inv(gram) @ centred.T @ (targets - shares)
    return lambda row: shares + ((row - mean) * scale)[columns] @ weights


def quarters() -> list[tuple[int, int, int]]:
    """Mixtures of three sets, the most even first."""
    every = [(i, j, 4 - i - j) for i in range(4, -1, -1) for j in range(4 - i, -1, -1)]
    return sorted(every, key=lambda parts: sum(part**2 for part in parts))


class Loop:
    """What is known about one task, row by row; solved from all rows before when it is due."""

    def __init__(self, rules: Rules, classes: int) -> None:
        self.rules, self.classes, self.next = rules, classes, 16
        nothing = [lambda row: np.zeros(classes)] * len(rules.options.penalties)
        self.functions = [nothing] * len(rules.sets)
        self.best = [0] * len(rules.sets)
        self.f, self.r, self.wrong = [], [], []
        self.errors = np.zeros((len(rules.sets), len(nothing)))
        self.losses, self.scatter = np.zeros(len(CONFIDENCES)), 0.0
        count = len(rules.sets)
        self.about = np.ones(count), np.full(count, 1 / count), np.array([CONFIDENCES[0]])
        self.map = CONFIDENCES[0] * np.eye(classes, classes + 1)
        self.judged = []  # of every row its shares, as a state keeps them, and whether it counts

    def predict(self, row: np.ndarray) -> tuple[np.ndarray, ...]:
        """Shares, prior, errors, mixture, confidence and scores."""
        counts = np.sum(self.r, axis=0) if self.r else np.zeros(self.classes)
        pairs = zip(self.functions, self.best, strict=True)
        shares = np.stack([every[i](row) for every, i in pairs])
        scores = self.map @ [*(self.about[1] @ shares), 1]
        return shares, counts / max(counts.sum(), 1), *self.about, scores

    def add(self, row: np.ndarray, label: np.ndarray) -> None:
        shares, prior, _, mixture, *_ = self.predict(row)
        for i, every in enumerate(self.functions):
            for j, function in enumerate(every):
                self.errors[i, j] += ((function(row) - label) ** 2).sum()
        self.wrong.append(shares - label)
        self.scatter += ((prior - label) ** 2).sum()
        is_known = prior @ label > 0  # its class has been seen
        self.judged.append((np.float32(mixture @ shares), is_known and len(self.r) >= 16))
        if is_known:
            for i, confidence in enumerate(CONFIDENCES):
                logits = np.where(prior > 0, confidence * (mixture @ shares), ABSENT_LOGIT)
                self.losses[i] += logsumexp(logits) - logits @ label
        self.f.append(row)
        self.r.append(label)
        if len(self.r) == self.next:
            self.solve()
            self.next = max(self.next + 16, int(self.next * self.rules.options.growth))

    def solve(self) -> None:
        features, targets, options = np.stack(self.f), np.stack(self.r), self.rules.options
        self.functions = [
            [solved(features, targets, kinds, penalty) for penalty in options.penalties]
            for kinds in self.rules.sets
        ]
        self.best = self.errors.argmin(1)
        wrong = np.stack(self.wrong)
        losses = [
            (np.tensordot(np.array(parts) / 4, wrong, axes=(0, 1)) ** 2).sum()
            for parts in quarters()
        ]
        least = next(i for i, loss in enumerate(losses) if loss <= min(losses) * (1 + 1e-9))
        confidence = CONFIDENCES[self.losses.argmin()]
        errors = self.errors.min(1) / self.scatter
        self.about = errors, np.array(quarters()[least]) / 4, np.array([confidence])
        self.map = confidence * np.eye(self.classes, self.classes + 1)
        if options.calibration == "logistic":
            self.fit_map(confidence)

    def fit_map(self, confidence: float) -> None:
        """Of the classes so far, on the last rows."""
        present = np.flatnonzero(np.sum(self.r, axis=0))
        every = zip(self.judged, self.r, strict=True)
        judged, labels = zip(*list(every)[-recent_rows.MOST :], strict=True)
        shares, counts = (np.array(part) for part in zip(*judged, strict=True))
        shares, y = shares[counts][:, present], np.array(labels)[counts][:, present].argmax(1)
        result = logistic_regression(
            torch.from_numpy(shares).double(), torch.from_numpy(y), confidence
        )
        self.map[np.ix_(present, [*present, self.classes])] = result.numpy()


def by_loop(features, targets, rules: Rules) -> tuple[RidgePredictions, list[Loop]]:
    """Predictions of all rows of all tasks."""
    result, loops = [], [Loop(rules, targets.shape[2]) for _ in features]
    for task, labels, loop in zip(features.numpy(), targets.numpy(), loops, strict=True):
        rows = []
        for row, label in zip(task, labels, strict=True):
            rows.append(loop.predict(row))
            loop.add(row, label)
        result.append([np.stack(part) for part in zip(*rows, strict=True)])
    parts = zip(*result, strict=True)
    return RidgePredictions(*(torch.from_numpy(np.stack(part)) for part in parts)), loops
