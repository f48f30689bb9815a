"""What each step of the classifier gains on the development tables, with baselines beside.

    python -m experiments.steps.run --tables FOLDER --output runs/steps

The first step gives the model ordinal codes and numbers; each further one adds a part, to the last
(`experiments.steps.classifiers`). Where a step shows the model the same numbers as the one before,
nothing is computed. A table that a step refuses counts as if the shares of the classes had been
predicted for every row. Protocol and resuming are those of `experiments.development`.
"""

import argparse
import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from sklearn.dummy import DummyClassifier

from experiments.development.baselines import BASELINES
from experiments.development.comparison import TITLES, by_table, difference
from experiments.development.results import Candidate, Results
from experiments.development.run import baseline_candidate, model_candidate, with_arguments
from experiments.development.scoring import METRICS
from experiments.development.tables import VARIABLE, Table, load_tables
from experiments.steps.classifiers import STEPS, PartialClassifier, Refused, seen
from tabicl_linear import pages
from tabicl_linear.checkpoint import load_model
from tabicl_linear.errors import ConfigError, DataError
from tabicl_linear.files import written_whole
from tabicl_linear.model import InContextModel
from tabicl_linear.shipped import DEFAULT, WEIGHTS, checkpoint_path

BESIDE = ("logistic_regression", "random_forest", "hist_gradient_boosting")


def candidates(base: Candidate, model: InContextModel, table: Table) -> list[Candidate]:
    """A candidate for each step; those that see the same of the table have one identity."""
    steps = []
    parts, arguments = frozenset[str](), dict[str, Any]()
    idle = set[str]() if _is_longer(table, model) else {"long_context"}
    for step in STEPS:
        parts |= {step.part} if step.part else set()
        arguments |= step.arguments
        try:
            digest = hashlib.sha256()
            for context, queries in table.splits():
                rows = table.x.iloc[context], table.y[context], table.x.iloc[queries]
                digest.update(seen(parts, model, *rows).encode())
        except Refused:
            steps.append(Candidate(step.name, "refused", DummyClassifier()))
            continue
        given = base.estimator.get_params(deep=False) | arguments
        acting = sorted(arguments.keys() - idle)
        what = " ".join(f"{name}={arguments[name]!r}" for name in acting)
        identity = f"{base.identity} sees {digest.hexdigest()[:12]} {what}".strip()
        steps.append(Candidate(step.name, identity, PartialClassifier(parts, given)))
    return steps


def _is_longer(table: Table, model: InContextModel) -> bool:
    """Whether contexts of the table are longer than those of pretraining."""
    longest = model.longest_context
    return longest is None or len(table.splits()[0][0]) > longest


def scored(
    base: Candidate, others: Sequence[Candidate], tables: Sequence[Table], results: Results
) -> tuple[pd.DataFrame, dict[str, int]]:
    """A row for each step or other candidate, table and split; and on how many tables steps act.

    Args:
        base: The classifier, from a file.
        others: What is scored beside.
        tables: The tables.
        results: Where scores are kept.

    Returns:
        The rows as of `Results.complete`, and for each step the number of tables on which the model
        sees or does something else than in the step before; all for the first.
    """
    model = load_model(base.estimator.model)
    rows = []
    acts = dict.fromkeys((step.name for step in STEPS), 0)
    for table in tables:
        steps = candidates(base, model, table)
        identities = [candidate.identity for candidate in steps]
        for before, candidate in zip(["", *identities], steps, strict=False):
            acts[candidate.name] += candidate.identity != before
        # Of steps with one identity only the first is computed.
        distinct = {candidate.identity: candidate for candidate in reversed(steps)}
        results.complete([*reversed(distinct.values())], [table])
        rows.append(results.complete([*steps, *others], [table]))
    return pd.concat(rows, ignore_index=True), acts


def markdown(scores: pd.DataFrame, acts: dict[str, int]) -> str:
    """A row for each step, with its paired difference from the one before, and for baselines."""
    wide = by_table(scores)
    seconds = wide["fit_seconds"] + wide["predict_seconds"]
    header = [f"{len(wide)} tables", *TITLES.values(), "CPU seconds a split", "changes"]
    header.append("ROC-AUC minus the row before [95 % interval] wins:losses")
    rows, before = [], ""
    for model in dict.fromkeys(scores["model"]):
        means = [f"{wide[metric, model].mean():.4f}" for metric in METRICS]
        gain = tables = ""
        if before and acts.get(model):
            gain = str(difference(wide, "roc_auc", model, before))
        if before and model in acts:
            tables = f"{acts[model]} table{'s' * (acts[model] != 1)}"
        rows.append([model, *means, f"{seconds[model].mean():.2f}", tables, gain])
        before = model
    return pages.markdown(header, rows)


def run(arguments: argparse.Namespace) -> str:
    """Score steps and baselines; return the table as markdown.

    Raises:
        ConfigError: The model, an argument or a table has no such name.
        DataError: Tables cannot be read.
    """
    named = arguments.model
    # The steps are those of the network: shipped weights by their path have no trees beside it.
    named = f"{named}={checkpoint_path(named)}" if named in WEIGHTS else named
    base = with_arguments(model_candidate(named), arguments.arguments)
    names = {text.partition("=")[0] for text in arguments.arguments}
    for step in STEPS:
        if clash := names & step.arguments.keys():
            raise ConfigError(f"--arguments {clash.pop()}: a step sets it; give another argument.")
    others = [baseline_candidate(name) for name in arguments.baseline]
    tables = load_tables(arguments.tables, arguments.only)
    output: Path = arguments.output
    output.mkdir(parents=True, exist_ok=True)
    scores, acts = scored(base, others, tables, Results(output / "results.csv"))
    with written_whole(output / "scores.csv") as partial:
        scores.to_csv(partial, index=False, float_format="%.6f")
    text = markdown(scores, acts)
    with written_whole(output / "steps.md") as partial:
        partial.write_text(text + "\n")
    return text


def main(argv: list[str] | None = None) -> int:
    """Print the table; 2 for input that cannot be used."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default=DEFAULT, help=f"{DEFAULT}, or NAME=PATH")
    parser.add_argument(
        "--arguments",
        nargs="+",
        default=[],
        metavar="NAME=VALUE",
        help="arguments of the classifier in all steps",
    )
    parser.add_argument("--baseline", nargs="*", choices=list(BASELINES), default=[*BESIDE])
    parser.add_argument("--tables", type=Path, help=f"folder of tables, instead of {VARIABLE}")
    parser.add_argument("--only", nargs="+", help="names of tables")
    parser.add_argument("--output", type=Path, default=Path("runs/steps"))
    arguments = parser.parse_args(argv)
    try:
        text = run(arguments)
    except (ConfigError, DataError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    print(f"{text}\n\nscores  {arguments.output / 'scores.csv'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
