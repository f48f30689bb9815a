"""The battery: fixed synthetic problems with a known answer, every model beside the truth.

    OMP_NUM_THREADS=1 python -m experiments.battery.run --output docs/results/battery

Prints the log-loss of each model above that of the true probabilities (0 is perfect), and the CPU
time of each: less than five minutes of one core in all. Stopped anywhere, the same command goes on;
scores are kept by problem and model, so use a new folder after a change of code.
"""

import argparse
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.base import ClassifierMixin
from tqdm import tqdm

from experiments.battery.problems import PROBLEMS, Problem, Sample, sample
from experiments.development.baselines import NativeCatBoost
from experiments.development.rows import completed
from tabicl_linear import RandomFeatureRidge, TabICLLinearClassifier, pages
from tabicl_linear.evaluation.baselines import BASELINES
from tabicl_linear.evaluation.metrics import mean_log_loss
from tabicl_linear.evaluation.timed_fit import try_out
from tabicl_linear.files import written_whole

MODELS: dict[str, Callable[[], ClassifierMixin]] = {
    "default": TabICLLinearClassifier,
    "closed form": lambda: RandomFeatureRidge(trees=False),
    "network": lambda: TabICLLinearClassifier(trees=False),
    "random forest": lambda: BASELINES["random_forest"].make(1),
    "CatBoost": NativeCatBoost,
    "logistic regression": lambda: BASELINES["logistic_regression"].make(1),
}


def measure(model: str, rows: Sample) -> dict[str, float]:
    """Log-loss of the queries above that of the truth, in nats, and CPU seconds of the model."""
    trial = try_out(MODELS[model](), rows.x, rows.y.astype(object), rows.queries)
    result = mean_log_loss(trial.probabilities, rows.labels.astype(object), trial.classes)
    best = -np.log(rows.truth[np.arange(len(rows.labels)), rows.labels]).mean()
    seconds = trial.fit_cpu_seconds + trial.predict_cpu_seconds
    return {"excess": result - float(best), "seconds": seconds}


def markdown(scores: pd.DataFrame) -> str:
    """A row for each problem, a column for each model; CPU seconds of all problems below."""
    wide = scores.pivot(index="problem", columns="model", values="excess")
    wide = wide.reindex(index=scores["problem"].unique(), columns=scores["model"].unique())
    rows = [[str(name), *(f"{value:+.3f}" for value in row)] for name, row in wide.iterrows()]
    seconds = scores.groupby("model")["seconds"].sum()
    rows.append(["CPU seconds", *(f"{seconds[name]:.1f}" for name in wide)])
    return pages.markdown(["problem", *wide], rows)


def _work(
    problems: Sequence[Problem], models: Sequence[str]
) -> Iterator[tuple[dict[str, object], Callable[[], dict[str, float]]]]:
    for problem in tqdm(problems, unit="problem", disable=None):
        rows = sample(problem)
        for model in models:
            yield {"problem": problem.name, "model": model}, partial(measure, model, rows)


def run(output: Path, problems: Sequence[Problem], models: Sequence[str]) -> str:
    """Score what is missing; return the table."""
    scores = completed(output / "scores.csv", _work(problems, models))
    names = {problem.name for problem in problems}
    text = markdown(scores[scores["problem"].isin(names) & scores["model"].isin(models)])
    with written_whole(output / "battery.md") as whole:
        whole.write_text(text + "\n")
    return text


def main(argv: list[str] | None = None) -> int:
    """Run all that is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = [problem.name for problem in PROBLEMS]
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="PROBLEM")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--output", type=Path, default=Path("runs/battery"))
    arguments = parser.parse_args(argv)
    problems = [problem for problem in PROBLEMS if problem.name in arguments.only]
    print(run(arguments.output, problems, arguments.models))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
