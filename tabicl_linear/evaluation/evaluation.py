"""A whole evaluation: computes the trials that a folder lacks, and describes what it holds."""

import platform
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any

from tabicl_linear import evaluation_file
from tabicl_linear._version import __version__
from tabicl_linear.errors import ConfigError, DamagedFile, DataError, differing
from tabicl_linear.estimator.plan import EnsembleName
from tabicl_linear.evaluation import trials
from tabicl_linear.evaluation.benchmarks import Benchmark, Source
from tabicl_linear.evaluation.candidates import Candidate
from tabicl_linear.evaluation.protocol import rare_classes
from tabicl_linear.evaluation.remaining_time import Progress
from tabicl_linear.evaluation.trials import Result, Task
from tabicl_linear.evaluation.workers import Death, finished
from tabicl_linear.files import sweep, write_sealed, written_whole
from tabicl_linear.shards import WHOLE, Shard

RESULTS = "results.csv"
TRIALS = "trials"
LIBRARIES = ("numpy", "pandas", "scikit-learn", "scipy", "torch")


@dataclass(frozen=True)
class Evaluation:
    """What to evaluate, and how.

    Attributes:
        benchmark: Tables and protocol.
        candidates: Classifiers.
        ensemble: Ensemble preset of the models among them.
        shard: The part of the trials to run.
        jobs: Number of processes.
        threads: Threads of each process; None leaves that to the libraries.
        again: Whether to repeat trials that failed.
    """

    benchmark: Benchmark
    candidates: tuple[Candidate, ...]
    ensemble: EnsembleName = "default"
    shard: Shard = WHOLE
    jobs: int = 1
    threads: int | None = None
    again: bool = False

    def tasks(self) -> list[Task]:
        """The trials of this shard, table by table."""
        tasks = [
            Task(candidate, self.benchmark, source, fold, self.threads)
            for source in self.benchmark.sources
            for candidate in self.candidates
            for fold in range(self.benchmark.protocol.folds)
        ]
        return [tasks[index] for index in self.shard.of(len(tasks))]

    def settings(self) -> dict[str, Any]:
        """The settings that all results in one folder must share."""
        return {
            "benchmark": self.benchmark.name,
            "protocol": asdict(self.benchmark.protocol),
            "ensemble": self.ensemble,
        }


def plan(
    evaluation: Evaluation, folder: Path, say: Callable[[str], None]
) -> tuple[Evaluation, dict[str, Any]]:
    """Check an evaluation against its tables and folder. Reads every table, writes nothing.

    Args:
        evaluation: What to evaluate.
        folder: Folder of the results, which may hold some.
        say: Called with a line about each table in which classes are rare.

    Returns:
        The evaluation, with a fault for each table that cannot be used; and the content for
        `evaluation.json`.

    Raises:
        DataError: No table can be used, or one cannot in a benchmark that is not forgiving; or the
            folder's `evaluation.json` cannot be used.
        ConfigError: The folder holds results of another protocol, or of other models or tables
            with the same names.
    """
    benchmark = evaluation.benchmark
    before = evaluation_file.read(folder)
    models = _models(evaluation, before, folder)
    described = [_described(benchmark, source, say) for source in benchmark.sources]
    sources = tuple(source for source, _ in described)
    if all(source.fault is not None for source in sources):
        raise DataError(
            f"None of the {len(sources)} tables of {benchmark.name} can be used; "
            f"{sources[0].name}: {sources[0].fault}."
        )
    versions = {name: metadata.version(name) for name in LIBRARIES}
    datasets = [sizes for _, sizes in described]
    content = evaluation.settings() | {
        "models": models,
        "versions": {"python": platform.python_version(), "tabicl_linear": __version__, **versions},
        "datasets": _datasets(before.get("datasets", []), datasets, folder),
    }
    return replace(evaluation, benchmark=replace(benchmark, sources=sources)), content


def run(
    evaluation: Evaluation, content: dict[str, Any], folder: Path, say: Callable[[str], None]
) -> int:
    """Run the trials that the folder lacks, and write `evaluation.json` and `results.csv`.

    Args:
        evaluation: From `plan`.
        content: From `plan`, for `evaluation.json`.
        folder: Folder of the results.
        say: Called with lines about progress and about damaged results.

    Returns:
        The number of failed trials among those of the evaluation.

    Raises:
        OSError: The folder cannot be written.
    """
    (folder / TRIALS).mkdir(parents=True, exist_ok=True)
    if evaluation.shard == WHOLE:  # otherwise other shards may be writing
        sweep(folder)
        sweep(folder / TRIALS)
    write_sealed(folder / evaluation_file.NAME, content)
    results = {task: _earlier(task, folder, content, say) for task in evaluation.tasks()}
    missing = [
        task
        for task, result in results.items()
        # Trials that failed since their table could not be used may succeed now.
        if result is None or result.unread or (result.error and evaluation.again)
    ]
    progress = Progress(
        [task.candidate.name for task in missing], len(results), evaluation.jobs, say
    )
    try:
        for task, result in finished(missing, trials.run, evaluation.jobs):
            if isinstance(result, Death):
                result = trials.outcome(task, error=str(result))
            result.write(task.path(folder / TRIALS))
            results[task] = result
            progress.done(task.candidate.name, seconds=result.seconds, failed=bool(result.error))
    finally:
        gather(folder, content, say)
    return sum(bool(result.error) for result in results.values() if result is not None)


def _earlier(
    task: Task, folder: Path, content: dict[str, Any], say: Callable[[str], None]
) -> Result | None:
    """The result of a task in the folder; None if there is none or it is damaged."""
    try:
        return trials.read(task.path(folder / TRIALS), content)
    except DamagedFile as error:
        say(f"{error.path} is damaged ({error.reason}) and is scored again")
        return None


def gather(folder: Path, content: dict[str, Any], say: Callable[[str], None]) -> None:
    """Write `results.csv` from the files of all trials that the folder holds.

    Damaged files, such as those of trials of other commands, are reported and left out.
    """
    results = []
    for path in sorted((folder / TRIALS).glob("*.json")):
        try:
            results.append(trials.read(path, content))
        except DamagedFile as error:
            say(f"{error} Until then {RESULTS} is without it.")
    rows = [result for result in results if result is not None]
    with written_whole(folder / RESULTS) as partial:
        trials.frame(rows, list(content["models"])).to_csv(
            partial, index=False, lineterminator="\n"
        )


def _described(
    benchmark: Benchmark, source: Source, say: Callable[[str], None]
) -> tuple[Source, dict[str, Any]]:
    """A table, with a fault if it cannot be used, and its sizes under the protocol.

    Raises:
        DataError: The table cannot be used, and the benchmark is not forgiving.
    """
    about: dict[str, Any] = {"name": source.name, "openml_id": source.openml_id}
    unknown = about | {"rows": None, "columns": None, "classes": None, "checksum": None}
    if source.fault is not None:
        return source, unknown
    try:
        table = benchmark.table(source)
    except DataError as error:
        if not benchmark.forgiving:
            raise
        return replace(source, fault=str(error).rstrip(".")), unknown
    if rare := rare_classes(table, benchmark.protocol):
        say(rare)
    return source, about | {
        "rows": len(table.y),
        "columns": table.x.shape[1],
        "classes": len(set(table.y)),
        "checksum": source.checksum(),
    }


def _models(evaluation: Evaluation, before: dict[str, Any], folder: Path) -> dict[str, str]:
    """Identities of all models in the folder, earlier and present ones, by name.

    Raises:
        ConfigError: The folder holds results of another protocol or of other models.
    """
    for name, value in evaluation.settings().items():
        if before and before[name] != value:
            raise ConfigError(
                f"{folder} holds results of another {name} ({_difference(before[name], value)}); "
                "name another folder."
            )
    models: dict[str, str] = dict(before.get("models", {}))
    for candidate in evaluation.candidates:
        if models.setdefault(candidate.name, candidate.identity) != candidate.identity:
            remedy = ", or the model by NAME=PATH" if candidate.kind == "model" else ""
            raise ConfigError(
                f"{folder} holds results of another {candidate.name} ({models[candidate.name]}, "
                f"and here {candidate.identity}); name another folder{remedy}."
            )
    return models


def _difference(before: Any, now: Any) -> str:
    if not (isinstance(before, dict) and isinstance(now, dict)):
        return f"{before}, and here {now}"
    keys = differing(before, now)
    return "; ".join(f"{key}: {before.get(key)}, and here {now.get(key)}" for key in keys)


def _datasets(
    before: Sequence[dict[str, Any]], now: Sequence[dict[str, Any]], folder: Path
) -> list[dict[str, Any]]:
    """Merge the tables of earlier runs and of this one, some of which either could not read.

    Raises:
        ConfigError: A table differs from the one of the same name in the folder.
    """
    tables = {table["name"]: table for table in before}
    for table in now:
        old = tables.setdefault(table["name"], table)
        if None not in (old["checksum"], table["checksum"]) and old != table:
            raise ConfigError(
                f"The table {table['name']} is not the one whose results {folder} holds; name "
                "another folder."
            )
        if table["checksum"] is not None:
            tables[table["name"]] = table
    return list(tables.values())
