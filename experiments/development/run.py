"""Score models and baselines on the development tables, and compare them table by table.

    python -m experiments.development.run --model default --model new=runs/new/last.ckpt \
        --baseline random_forest --output runs/development

`--large` adds a folder of tables with thousands of rows, which have their own protocol. If stopped,
the same command continues; results that exist (for the checksum of the model's file or the version
of the baseline, table and split) are not computed again. Changes of the code are not detected: use
a new output folder after one.
"""

import argparse
import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path

from experiments.development.baselines import BASELINES, VERSIONS
from experiments.development.comparison import by_table, markdown
from experiments.development.results import Candidate, Results
from experiments.development.tables import (
    LARGE,
    VARIABLE,
    Table,
    folder_from_environment,
    load_tables,
    with_context_rows,
)
from tabicl_linear import TabICLLinearClassifier
from tabicl_linear.errors import CheckpointError, ConfigError, DataError
from tabicl_linear.evaluation.arguments import identified, read_arguments
from tabicl_linear.evaluation.baselines import baseline_version
from tabicl_linear.files import written_whole
from tabicl_linear.shipped import WEIGHTS, checkpoint_path


def model_candidate(named: str) -> Candidate:
    """Return the candidate of "default" (or another shipped name) or "NAME=PATH".

    Raises:
        ConfigError: The text has another form, or the file does not exist.
    """
    name, _, file = named.partition("=")
    if not file and name not in WEIGHTS:
        raise ConfigError(f"--model {named}: give {', '.join(WEIGHTS)}, or NAME=PATH.")
    path = checkpoint_path(file or named)
    if not path.is_file():
        raise ConfigError(f"--model {named}: there is no file {path}.")
    identity = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    weights = file or named
    if weights not in WEIGHTS:
        return Candidate(name, identity, TabICLLinearClassifier(path))
    # Shipped weights by name predict with trees as well; a path means the network alone.
    described = identified(identity, {"trees": "auto"})
    return Candidate(name, described, TabICLLinearClassifier(weights))


def with_arguments(candidate: Candidate, texts: Sequence[str]) -> Candidate:
    """Return a candidate with changed arguments of its classifier.

    Args:
        candidate: The candidate.
        texts: Arguments as NAME=VALUE; a value is JSON (true, 4, 0.9), otherwise a text.

    Raises:
        ConfigError: The text has another form, or the classifier has no such argument.
    """
    parameters = candidate.estimator.get_params(deep=False)
    values = read_arguments(candidate.name, texts, parameters)
    described = identified(candidate.identity, values)
    return Candidate(candidate.name, described, candidate.estimator.set_params(**values))


def baseline_candidate(name: str) -> Candidate:
    """A baseline by its name."""
    return Candidate(name, f"{name} {baseline_version(VERSIONS[name])}", BASELINES[name]())


def _parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = ", ".join(WEIGHTS)
    parser.add_argument(
        "--model", action="append", default=[], help=f"{names} or NAME=PATH; can be repeated"
    )
    parser.add_argument("--baseline", nargs="+", choices=list(BASELINES), default=[])
    parser.add_argument(
        "--arguments",
        action="append",
        nargs="+",
        default=[],
        metavar=("MODEL", "NAME=VALUE"),
        help="arguments of the classifier for one of the models; can be repeated",
    )
    parser.add_argument("--against", help="compare with this model, instead of the first")
    parser.add_argument("--tables", type=Path, help=f"folder of tables, instead of {VARIABLE}")
    parser.add_argument("--large", type=Path, help="folder of larger tables, beside the others")
    parser.add_argument("--only", nargs="+", help="names of tables")
    parser.add_argument("--without", nargs="+", default=[], help="names of tables to leave out")
    parser.add_argument("--context-rows", type=int, help="learn from at most as many rows")
    parser.add_argument("--output", type=Path, default=Path("runs/development"))
    return parser.parse_args(argv)


def _tables(arguments: argparse.Namespace) -> list[Table]:
    """Load the tables of both folders, or only the larger ones if no other folder is named."""
    if arguments.large is None:
        return load_tables(arguments.tables, arguments.only)
    tables = load_tables(arguments.tables) if arguments.tables or folder_from_environment() else []
    tables += load_tables(arguments.large, protocol=LARGE)
    names = [table.name for table in tables]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigError(
            f"--large {arguments.large}: tables {', '.join(twice)} are in both folders."
        )
    unknown = sorted(set(arguments.only or ()) - set(names))
    if unknown:
        raise ConfigError(f"--only {', '.join(unknown)}: there are {', '.join(names)}.")
    return [table for table in tables if arguments.only is None or table.name in arguments.only]


def _without(tables: list[Table], names: Sequence[str]) -> list[Table]:
    unknown = sorted(set(names) - {table.name for table in tables})
    if unknown:
        there = ", ".join(table.name for table in tables)
        raise ConfigError(f"--without {', '.join(unknown)}: there are {there}.")
    return [table for table in tables if table.name not in names]


def run(arguments: argparse.Namespace) -> str:
    """Score the candidates that the arguments name; return the comparison as markdown.

    Raises:
        ConfigError: There are no candidates, two have the same name, or a name is unknown.
        DataError: Tables cannot be read.
    """
    candidates = [model_candidate(named) for named in arguments.model]
    candidates += [baseline_candidate(name) for name in arguments.baseline]
    names = [candidate.name for candidate in candidates]
    if not names or len(set(names)) < len(names):
        raise ConfigError(f"Models {names}: name at least one, and each by another name.")
    for name, *texts in arguments.arguments:
        if name not in names:
            raise ConfigError(f"--arguments {name}: give one of {', '.join(names)}.")
        place = names.index(name)
        candidates[place] = with_arguments(candidates[place], texts)
    against = arguments.against or names[0]
    if against not in names:
        raise ConfigError(f"--against {against}: give one of {', '.join(names)}.")
    tables = _without(_tables(arguments), arguments.without)
    tables = with_context_rows(tables, arguments.context_rows)
    output: Path = arguments.output
    output.mkdir(parents=True, exist_ok=True)
    scores = Results(output / "results.csv").complete(candidates, tables)
    wide = by_table(scores)
    wide.columns = [f"{model} {metric}" for metric, model in wide.columns]
    text = markdown(scores, against)
    with written_whole(output / "tables.csv") as partial:
        wide.to_csv(partial, float_format="%.6f")
    with written_whole(output / "summary.md") as partial:
        partial.write_text(text + "\n")
    return text


def main(argv: list[str] | None = None) -> int:
    """Print the comparison; 2 for input that cannot be used."""
    arguments = _parse(argv)
    try:
        text = run(arguments)
    except (CheckpointError, ConfigError, DataError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    print(f"{text}\n\ntables  {arguments.output / 'tables.csv'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
