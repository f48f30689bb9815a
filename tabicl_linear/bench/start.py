"""`tabicl-linear bench start`: small tables, as in a first try, against trees on the same rows."""

from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits
from torch import get_num_threads

from tabicl_linear.bench.cases import Case, Options, Role, measure
from tabicl_linear.bench.measurement_tables import Report, Target, case_table
from tabicl_linear.estimator.classifier import TabICLLinearClassifier
from tabicl_linear.evaluation.baselines import BASELINES

OURS, TREES = "TabICLLinearClassifier", ("random_forest", "catboost", "hist_gradient_boosting")
SIZES = {200: 10, 1000: 10, 5000: 20}
"""Number of columns of each table, by its number of rows."""
QUICK = {60: 4}
"""The same for quick runs, which only show that the code works."""
QUERIES, MOST_MS = 200, 8.0


def run(options: Options) -> Report:
    """Time fitting with predicting, and predicting a single row, at every size."""
    threads, tables, entries = get_num_threads(), [], []
    ratios, one_row = dict[int, float](), dict[int, float]()
    models: dict[str, Any] = {name: BASELINES[name].make(threads) for name in TREES}
    models = {OURS: TabICLLinearClassifier(n_jobs=threads, device=str(options.device)), **models}
    sizes = QUICK if options.quick else SIZES
    for rows, columns in sizes.items():
        title = f"{rows:,} rows x {columns} columns"
        numbers = np.random.default_rng(rows).normal(size=(rows + QUERIES, columns))
        x = pd.DataFrame(numbers).add_prefix("x")
        y = (x["x0"] + x["x1"] ** 2 + x["x2"] > 1).to_numpy(int)
        whole, one = f"{rows:,} rows, fit and predict {QUERIES}", f"{rows:,} rows, predict one"
        field = []
        for name, model in models.items():
            model.fit(x[:rows], y[:rows])  # rows may be predicted first
            role: Role = "ours" if name == OURS else "baseline"
            both = partial(_fit_and_predict, model, x[:rows], y[:rows], x[rows:])
            field.append(Case(name, both, role, whole, 1))
            field.append(Case(name, partial(model.predict_proba, x[rows : rows + 1]), role, one, 1))
        with threadpool_limits(threads):
            measured = measure(field, options, f"bench start, {title}")
        tables.append(case_table(title, "calls/s", measured, slower=True))
        entries += measured.records()
        ratios[rows] = measured.ratio((whole, OURS), (whole, "catboost")).median
        one_row[rows] = measured.spread((one, OURS)).median * 1000
    counts = not options.quick
    judged = list(sizes)[-2:]
    targets = [
        Target(f"{rows:,} rows, in times of CatBoost", 1.0, ratios[rows], False, counts)
        for rows in judged
    ]
    targets.append(Target("one row, ms", MOST_MS, one_row[judged[0]], False, counts))
    return Report("start", {"threads": threads}, tables, targets, {"cases": entries})


def _fit_and_predict(model: Any, x: Any, y: Any, queries: Any) -> None:
    model.fit(x, y).predict_proba(queries)
