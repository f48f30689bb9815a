"""`tabicl-linear bench start`: the first tables of a person, beside trees on the same rows."""

from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits
from torch import get_num_threads

from tabicl_linear.bench.cases import Case, Options, Role, measure
from tabicl_linear.bench.report import Report, Target, case_table
from tabicl_linear.estimator.classifier import TabICLLinearClassifier
from tabicl_linear.evaluation.baselines import BASELINES

OURS, TREES = "TabICLLinearClassifier", ("random_forest", "catboost", "hist_gradient_boosting")
SIZES, COLUMNS, QUERIES, MOST_MS = (200, 1000, 5000), 10, 200, 8.0


def run(options: Options) -> Report:
    """Fit and predict, and predict one row, at every size."""
    threads, tables, entries, ratio, one_row = get_num_threads(), [], [], np.nan, np.nan
    models: dict[str, Any] = {name: BASELINES[name].make(threads) for name in TREES}
    models = {OURS: TabICLLinearClassifier(n_jobs=threads, device=str(options.device)), **models}
    for rows in SIZES[:1] if options.quick else SIZES:
        title = f"{rows:,} rows x {COLUMNS} columns"
        numbers = np.random.default_rng(rows).normal(size=(rows + QUERIES, COLUMNS))
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
        if rows in (SIZES[1], SIZES[0] * options.quick):
            ratio = measured.ratio((whole, OURS), (whole, "catboost")).median
            one_row = measured.spread((one, OURS)).median * 1000
    targets = [
        Target("1,000 rows, in times of CatBoost", 1.0, ratio, False, not options.quick),
        Target("one row, ms", MOST_MS, one_row, False, not options.quick),
    ]
    return Report("start", {"threads": threads}, tables, targets, {"cases": entries})


def _fit_and_predict(model: Any, x: Any, y: Any, queries: Any) -> None:
    model.fit(x, y).predict_proba(queries)
