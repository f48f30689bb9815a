"""Score the default weights and baselines on real tables, and write docs/results/benchmarks.md.

    python -m experiments.results.run --tables FOLDER [--demo CHECKPOINT] --output runs/results

If stopped, the same command continues where it was. What is scored whole is kept in the repository
(`experiments/results/measured`) and not scored again until its folder is deleted: after a change
of code that changes scores, delete those of its models. Weights, and baselines with options of
this project, have a folder for each checksum, so that new ones are scored beside what is there
already. `network` is the default without its trees.
"""

import argparse
import hashlib
import json
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from experiments.results.page import MACHINE, Made, page
from tabicl_linear.cli.evaluate import main as evaluate
from tabicl_linear.errors import CheckpointError, ConfigError, DataError
from tabicl_linear.evaluation.baselines import BASELINES as KNOWN
from tabicl_linear.evaluation.baselines import options_checksum
from tabicl_linear.evaluation.benchmarks import folder_benchmark
from tabicl_linear.evaluation.evaluation import RESULTS
from tabicl_linear.evaluation_file import NAME as EVALUATION
from tabicl_linear.files import folder_written_whole, written_whole
from tabicl_linear.machine import describe
from tabicl_linear.shipped import DEFAULT, checkpoint_path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "results" / "benchmarks.md"
MEASURED = Path(__file__).parent / "measured"
NETWORK = "network"
SUITES = {"openml-cc18-30": "cc18", "tabarena": "tabarena"}
"""Suites of the folder of tables, and the folders of their results."""
BASELINES = (
    *("logistic_regression", "random_forest", "hist_gradient_boosting"),
    *("random_feature_ridge", "catboost", "xgboost"),
)


class Evaluation(NamedTuple):
    """One call of `tabicl-linear evaluate`: its folder, and its arguments."""

    suite: str
    folder: Path
    arguments: list[str]


def evaluations(arguments: argparse.Namespace) -> list[Evaluation]:
    """The calls, models before baselines.

    Raises:
        CheckpointError: A file of weights that does not exist.
        ConfigError: A baseline that is not known.
    """
    models = {DEFAULT: DEFAULT, NETWORK: DEFAULT}
    models |= {"demo": str(arguments.demo)} if arguments.demo else {}
    suites = []
    for suite, name in SUITES.items():
        shared = ["--benchmark", f"folder:{arguments.tables}", "--suite", suite]
        for model, source in models.items():
            folder = arguments.output / f"{name}-{model}-{_checksum(source)}"
            option = ["--model", source if model == source else f"{model}={source}"]
            option += ["--arguments", model, "trees=false"] if model != DEFAULT else []
            suites.append(Evaluation(suite, folder, [*shared, *option]))
        for baseline in arguments.baseline:
            if baseline.partition(":")[0] not in KNOWN:
                raise ConfigError(f"--baseline {baseline}: give one of {', '.join(KNOWN)}.")
            checksum = options_checksum(baseline) if baseline in KNOWN else None
            folder = arguments.output / "-".join(filter(None, (name, baseline, checksum)))
            suites.append(Evaluation(suite, folder, [*shared, "--baseline", baseline]))
    resources = ["--jobs", str(arguments.jobs)]
    resources += ["--threads", str(arguments.threads)] if arguments.threads else []
    return [
        one._replace(arguments=[*one.arguments, "--output", str(one.folder), *resources])
        for one in suites
    ]


def _checksum(source: str) -> str:
    path = checkpoint_path(source)
    if not path.is_file():
        raise CheckpointError(f"there is no file of weights {path}; make it, or leave it out.")
    return hashlib.sha256(path.read_bytes()).hexdigest()[:8]


def run(arguments: argparse.Namespace, command: str) -> int:
    """Evaluate what is missing, write the page; return 1 if any trial failed, else 0.

    Raises:
        ConfigError: Options that do not fit, or a folder of results in use.
        CheckpointError: Weights that cannot be loaded.
        DataError: Tables or results that cannot be read, or no results at all.
    """
    calls = evaluations(arguments)
    # Before hours of work, and before the page itself changes the checkout.
    benchmarks = [folder_benchmark(arguments.tables, suite) for suite in SUITES]
    made = Made(command, [x.arguments for x in calls])
    codes = [0] if arguments.page_only else [_score(one, arguments.measured) for one in calls]
    kept = {one.folder: arguments.measured / one.folder.name for one in calls}
    places = [kept[one] if (kept[one] / RESULTS).is_file() else one for one in kept]
    folders = [place for place in places if (place / RESULTS).is_file()]
    if not folders:
        raise DataError(f"{arguments.output} holds no results yet; run without --page-only.")
    models = [DEFAULT, NETWORK, *(["demo"] if arguments.demo else [])]
    files = page(folders, benchmarks, models=models, baselines=arguments.baseline, made=made)
    target: Path = arguments.page
    target.parent.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        path = target if name == "page" else target.parent / name
        with written_whole(path) as partial:
            partial.write_text(text, encoding="utf-8", newline="\n")
    print(f"wrote {target} and {len(files) - 1} files beside it")
    return max(codes)


def _score(one: Evaluation, measured: Path) -> int:
    """Score what is not kept, and keep it; 1 if any trial failed, else 0."""
    kept = measured / one.folder.name
    if (kept / RESULTS).is_file():
        print(f"kept: {kept}")
        return 0
    code = evaluate(one.arguments)
    if code == 0:
        measured.mkdir(parents=True, exist_ok=True)
        with folder_written_whole(kept) as partial:
            for name in (RESULTS, EVALUATION):
                shutil.copy(one.folder / name, partial)
            machine = describe(torch.device("cpu"))
            (partial / MACHINE).write_text(json.dumps(machine, indent=1) + "\n", encoding="utf-8")
    return code


def main(argv: Sequence[str] | None = None) -> int:
    """Return 0 with the page written, 1 if trials failed; 2 for input that cannot be used."""
    argv = sys.argv[1:] if argv is None else list(argv)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--tables", type=Path, required=True, help=f"folder with the suites {', '.join(SUITES)}"
    )
    parser.add_argument("--demo", type=Path, help="checkpoint of `make demo`")
    parser.add_argument("--baseline", nargs="+", default=list(BASELINES), metavar="NAME")
    parser.add_argument("--output", type=Path, default=Path("runs/results"))
    parser.add_argument("--measured", type=Path, default=MEASURED, help="what is scored whole")
    parser.add_argument("--page", type=Path, default=PAGE, help="figures and numbers lie beside it")
    parser.add_argument(
        "--page-only", action="store_true", help="from the results that are there; score nothing"
    )
    parser.add_argument("--jobs", type=int, default=1, help="as in `tabicl-linear evaluate`")
    parser.add_argument("--threads", type=int, help="as in `tabicl-linear evaluate`")
    arguments = parser.parse_args(argv)
    command = shlex.join(["python", "-m", "experiments.results.run", *argv])
    try:
        return run(arguments, command)
    except (ConfigError, CheckpointError, DataError) as error:
        sys.stderr.write(f"{error}\n")
        return 2


if __name__ == "__main__":
    sys.exit(main())
