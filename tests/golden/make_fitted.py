"""What classifiers make of small tables, by every way of fitting. Made anew, after a change that
means to alter predictions, by

OMP_NUM_THREADS=1 PYTHONPATH=.:tests .venv/bin/python -m golden.make_fitted

Version 0.2.0 saved the `.state` files beside it, which have to load for good and are left alone.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import tiny_model

from tabicl_linear import RandomFeatureRidge, TabICLLinearClassifier
from tabicl_linear.model import InContextModel
from tabicl_linear.ridge_inputs import RidgeOptions

FOLDER = Path(__file__).parent
FITTED = FOLDER / "fitted.npz"
STATES = {name: FOLDER / f"fitted_{name}.state" for name in ("model", "causal", "closed_form")}
"""Classifiers of the table "mixed" in files of version 0.2.0."""
FEW = RidgeOptions(num_tanh=4, num_cosine=4, num_trees=2, calibration="logistic")
ROWS, QUERIES = 72, 12
SIZES = {"dim": 8, "depth": 1, "num_heads": 1, "hidden_dim": 8, "decoder_dim": 8}
SIZES |= {"num_features": 4, "num_classes": 3}
TRAINED_ROWS = [4, 30]


def models() -> dict[str, InContextModel]:
    """Tiny models of seeded weights in float64, which round alike everywhere."""
    made = {}
    for name, readout in (("model", "FinalState"), ("causal", "Causal")):
        made[name] = tiny_model.untrained(readout=readout, **SIZES).double()
        made[name].provenance = {"trained_rows": TRAINED_ROWS}
    return made


def tables() -> dict[str, tuple[pd.DataFrame, np.ndarray]]:
    """Numbers, more columns or classes than the models take, and columns of every kind."""
    rng = np.random.default_rng(0)
    y = np.arange(ROWS) % 3
    numbers = pd.DataFrame(rng.normal(size=(ROWS, 3)) + y[:, None], columns=list("abc"))
    wide = pd.DataFrame(rng.normal(size=(ROWS, 9)) + y[:, None] * np.arange(9) / 8)
    many = pd.DataFrame(rng.normal(size=(ROWS, 3)) + np.arange(ROWS)[:, None] % 7)
    mixed = numbers[["a", "b"]].mask(rng.random((ROWS, 2)) < 0.2)
    days = pd.to_timedelta(np.arange(ROWS) % 31, unit="D")
    mixed["day"] = (pd.Timestamp("2024-01-05") + days).strftime("%d/%m/%Y")
    mixed["price"] = [f"${value:,.2f}" for value in np.exp(rng.normal(size=ROWS) + 6)]
    city = np.where(rng.random(ROWS) < 0.6, y, rng.integers(0, 20, ROWS))
    mixed["city"] = np.array([f"city {number}" for number in range(20)])[city]
    mixed.loc[3, "city"] = None
    names = np.array(["no", "yes", "maybe"])[y]
    return {
        "numbers": (numbers, names),
        "wide": (wide, y == 1),
        "many": (many, np.arange(ROWS) % 7),
        "mixed": (mixed, names),
    }


def cases() -> dict[str, Callable[[], tuple[TabICLLinearClassifier | RandomFeatureRidge, str]]]:
    """For each name a function that gives a fitted classifier and the name of its table."""
    examples, made = tables(), models()

    def fitted(model: str, table: str, cuts: tuple[int, ...] = (), **arguments):
        x, y = examples[table]
        options = {"n_estimators": 2, "device": "cpu"} | arguments
        if model == "closed_form":
            classifier = RandomFeatureRidge(FEW, **options)
        else:
            classifier = TabICLLinearClassifier(made[model], **options)
        return (classifier.fit(_pieces(x, y, cuts)) if cuts else classifier.fit(x, y)), table

    def grown(table: str, cuts: tuple[int, ...]):
        x, y = examples[table]
        classifier = TabICLLinearClassifier(made["causal"], n_estimators=2, device="cpu")
        for rows, labels in _pieces(x, y, cuts):
            classifier.partial_fit(rows, labels, np.unique(y), prequential=True)
        return classifier, table

    named = {
        f"{model} {table}": lambda model=model, table=table: fitted(model, table)
        for model in ("model", "causal", "closed_form")
        for table in examples
    }
    for name, arguments in {
        "blocks": {"long_context": "blocks"},
        "long context by evidence": {"long_context": "auto"},
        "temperature": {"softmax_temperature": "auto"},
        "weights": {"class_weight": "balanced", "average_logits": False},
        "refined": {"refine": True},
        "two threads": {"n_jobs": 2},
        "few rows at a time": {"rows_per_batch": 20},
    }.items():
        named[name] = lambda arguments=arguments: fitted("model", "mixed", **arguments)
    for model in ("model", "causal", "closed_form"):
        named[f"pieces {model}"] = lambda model=model: fitted(model, "mixed", (30, 50))
    named["grown"] = lambda: grown("mixed", (30, 50))
    return named


def _pieces(x, y, cuts: tuple[int, ...]) -> Iterator[tuple[pd.DataFrame, np.ndarray]]:
    for start, end in zip((0, *cuts), (*cuts, len(y)), strict=True):
        yield x[start:end], y[start:end]


def answers(classifier, table: str) -> dict[str, np.ndarray]:
    """The encoded queries and their probabilities."""
    queries = tables()[table][0][:QUERIES]
    return {
        "matrix": classifier.preprocessor_.transform(queries),
        "probabilities": classifier.predict_proba(queries),
    }


def main() -> None:
    """Write the file."""
    arrays = {}
    for name, case in cases().items():
        arrays |= {f"{name}: {what}": array for what, array in answers(*case()).items()}
    np.savez_compressed(FITTED, **arrays)


if __name__ == "__main__":
    main()
