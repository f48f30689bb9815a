"""`tabicl-linear predict --dask`: the workers of a cluster score a partitioned table."""

import argparse
import logging
import re
from collections.abc import Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from tqdm import tqdm

from tabicl_linear._version import __version__
from tabicl_linear.cli.extras import DASK, require
from tabicl_linear.cli.outputs import writing_to
from tabicl_linear.cli.predict_tables import feature_names, summary, with_predictions
from tabicl_linear.cli.table_output import write_table
from tabicl_linear.errors import ConfigError, DataError, one_line
from tabicl_linear.estimator.partitions import broadcast
from tabicl_linear.estimator.rows.frames import WITH_GAPS
from tabicl_linear.estimator.rows.table_file import PARQUET, TableFile
from tabicl_linear.files import folder_written_whole, try_writing

if TYPE_CHECKING:
    from distributed import Client

    from tabicl_linear.estimator.classifier import TabICLLinearClassifier

LOCAL = re.compile(r"local:([1-9]\d*)")
ADDRESS = re.compile(r"[a-z]+://\S+")
TIMEOUT = 10
"""Seconds to wait for a scheduler."""


class PartNotWritten(OSError):
    """A worker cannot write a part, for example because the disk is full by now."""


def check_cluster(options: argparse.Namespace) -> None:
    """Check what `--dask` needs before anything is computed.

    Raises:
        ConfigError: Dask is missing, or the option names no cluster.
        DataError: The table is neither a Parquet file nor a folder, or the output exists or cannot
            be written.
    """
    require(DASK, "predict --dask")
    if not (LOCAL.fullmatch(options.dask) or ADDRESS.fullmatch(options.dask)):
        raise ConfigError(
            f"--dask {options.dask}: give local:N for N processes of this machine, or the address "
            "of a scheduler, such as tcp://10.0.0.1:8786."
        )
    test, output = options.test, options.output
    if not (test.is_dir() or (test.is_file() and test.suffix.lower() == PARQUET)):
        raise DataError(f"{test}: --dask reads a {PARQUET} file, or a folder of them.")
    if output.exists():
        raise DataError(f"--output {output} exists; name a new folder, which gets the parts.")
    with writing_to(output):
        try_writing(output.absolute())


def predict_on_cluster(options: argparse.Namespace, classifier: "TabICLLinearClassifier") -> str:
    """Fit in this process, let workers score the partitions of TEST, and return a summary.

    Raises:
        ConfigError: There is no scheduler at the address, it has no workers, or they have another
            version of this package.
        DataError: A table cannot be read, used or written; no output is left behind.
    """
    from dask import dataframe

    train = TableFile(options.train)
    try:
        table = dataframe.read_parquet(
            options.test.resolve(), arrow_to_pandas={"types_mapper": WITH_GAPS.get}
        )
    except (OSError, ValueError) as error:
        raise DataError(
            f"{options.test} is not readable as Parquet ({one_line(error)})."
        ) from error
    names = feature_names(train, options.target, table.columns, str(options.test))
    with (
        _cluster(options.dask) as client,
        writing_to(options.output),
        folder_written_whole(options.output) as folder,
    ):
        _check_folder(client, folder, options.output)
        classifier.fit(train.path, options.target)
        parts = table[names].to_delayed()
        label_type = train.labels(options.target).dtype
        rows = _score(client, parts, classifier, label_type, folder, show=not options.quiet)
        if rows == 0:
            raise DataError(f"{options.test} has no rows; give at least one.")
    return f"{summary(train.name, classifier, options.output, rows)} in {len(parts)} parts"


def why_not_writable(path: Path) -> str | None:
    """The reason why this process cannot write a file at a path; None if it can."""
    try:
        try_writing(path)
    except OSError as error:
        return error.strerror or one_line(error)
    return None


def write_part(
    rows: pd.DataFrame, classifier: "TabICLLinearClassifier", label_type: Any, path: Path
) -> int:
    """Score a partition, write its predictions to `path`, and return the number of rows.

    If its worker is lost, Dask computes the partition again and the same file is replaced.

    Raises:
        PartNotWritten: The file cannot be written.
        DataError: The rows cannot be used.
    """
    if len(rows):
        probabilities = classifier.predict_proba(rows)
        output = with_predictions(rows[[]], classifier.classes_, probabilities, label_type)
        try:
            write_table(output, path)
        except DataError as error:
            cause = error.__cause__
            assert isinstance(cause, OSError), "the suffix is one that can be written"
            # Its message names a temporary path, which the user did not choose and which is deleted
            # by the time the message is read.
            raise PartNotWritten(cause.errno, cause.strerror) from error
    return len(rows)


def _score(
    client: "Client",
    parts: list[Any],
    classifier: "TabICLLinearClassifier",
    label_type: Any,
    folder: Path,
    *,
    show: bool,
) -> int:
    """Write a file for each partition that has rows; return the number of rows."""
    import dask
    from dask import delayed
    from distributed import KilledWorker, as_completed

    task, state = delayed(write_part, pure=False), broadcast(classifier)
    tasks = [
        task(part, state, label_type, folder / f"part-{number:06d}{PARQUET}")
        for number, part in enumerate(parts)
    ]
    rows = 0
    bar = tqdm(total=len(tasks), desc="predict", unit="part", leave=False, disable=not show or None)
    try:
        # Dask warns of large graphs, and the states of all members exceed its default limit.
        with bar, dask.config.set({"distributed.admin.large-graph-warning-threshold": "1GB"}):
            for future in as_completed(client.compute(tasks)):
                rows += future.result()
                bar.update()
    except KilledWorker as error:
        raise DataError(
            f"A part was given up, as workers died of it repeatedly ({one_line(error)}): make "
            "smaller partitions, or give workers more memory."
        ) from error
    except PartNotWritten:
        raise
    except (OSError, CancelledError) as error:
        raise DataError(
            f"The cluster failed ({one_line(error)}): workers must reach the scheduler, and the "
            f"table and {folder.parent} under the same names as this process."
        ) from error
    return rows


@contextmanager
def _cluster(place: str) -> Iterator["Client"]:
    """A client of the scheduler at an address, or of new local processes (`local:N`)."""
    from distributed import Client, LocalCluster
    from distributed.comm import parse_address
    from distributed.comm.registry import get_backend

    local = LOCAL.fullmatch(place)
    if local is None:
        try:
            # A client with an unknown protocol would fail, yet stay Dask's default client, for
            # which later calls would wait: so the protocol is checked first.
            get_backend(parse_address(place)[0])
            client = Client(place, timeout=TIMEOUT)
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"--dask {place}: no scheduler answers ({one_line(error)})."
            ) from error
        with client:
            _check_workers(client, place)
            yield client
        return
    with (
        LocalCluster(
            n_workers=int(local[1]),
            threads_per_worker=1,
            dashboard_address=":0",
            silence_logs=logging.CRITICAL,
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


def _check_workers(client: "Client", place: str) -> None:
    """Check that there are workers, and that they run this version of the package."""
    try:
        client.wait_for_workers(1, timeout=TIMEOUT)
    except TimeoutError as error:
        raise ConfigError(f"--dask {place}: the scheduler has no workers; start some.") from error
    package = "tabicl-linear"
    versions: Any = client.get_versions(packages=[package])
    for address, worker in versions["workers"].items():
        version = worker["packages"][package]
        if version != __version__:
            raise ConfigError(
                f"--dask {place}: the worker {address} has {package} {version or '(not installed)'}"
                f", and this is {__version__}: install the same version there."
            )


def _check_folder(client: "Client", folder: Path, output: Path) -> None:
    """Check, before any work, that every present worker can write to the folder of the parts."""
    for address, reason in client.run(why_not_writable, folder / "part").items():
        if reason is not None:
            raise DataError(
                f"--output {output}: the worker {address} cannot write in {folder.parent} "
                f"({reason}); name a folder with room that all workers have under this name."
            )
