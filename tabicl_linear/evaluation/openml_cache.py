"""A cache of tables from OpenML, with one Parquet file for each table.

A file in the cache is complete and is not requested again, so that an evaluation can continue
without a network. It carries a digest: a file that is damaged, or was written by a version without
digests, is reported and read again. Requests are made by `openml_fetch`, in a process that is ended
when it hangs.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from tabicl_linear.errors import ConfigError, DamagedFile, DataError
from tabicl_linear.evaluation.benchmarks import Source
from tabicl_linear.evaluation.openml_lists import FETCHED, METADATA, TABLES
from tabicl_linear.files import read_sealed, write_sealed
from tabicl_linear.parquet import DELETE, check_file

PAUSES: tuple[float, ...] = (2.0, 10.0)
"""Seconds before each repetition of a request. The last one avoids OpenML's Parquet files, which
have no checksum."""
SCRATCH = ".reading-"
"""Prefix of the names of temporary folders."""
TIME_LIMIT = 600.0
"""Most seconds that a request may take."""


class OpenMLFault(DataError):
    """A request to OpenML failed.

    Attributes:
        silent: Whether the server did not answer at all.
    """

    def __init__(self, message: str, *, silent: bool) -> None:
        super().__init__(message)
        self.silent = silent


class OpenMLCache:
    """A folder of tables from OpenML.

    Args:
        folder: Folder of the files; if None, `tabicl_linear/openml` in `XDG_CACHE_HOME`, or in
            `~/.cache` if that is not set.
        offline: Whether to use only what is in the cache.
        say: Called with lines about what is read.
    """

    def __init__(self, folder: Path | None, *, offline: bool, say: Callable[[str], None]) -> None:
        self.folder = folder or default_folder()
        self.offline = offline
        self._say = say

    def sources(self, benchmark: str, suite: str | None) -> tuple[Source, ...]:
        """The tables of a benchmark, fetched if need be; those that cannot be have a fault.

        Args:
            benchmark: Name of a benchmark of the paper.
            suite: Number of an OpenML suite that replaces the benchmark's own tables.

        Raises:
            ConfigError: `suite` is not a number.
            DataError: OpenML does not answer, or has no such suite.
        """
        listed = TABLES[benchmark] if suite is None else self._suite(suite)
        absent = [number for number in listed if not self._is_whole(self._path(number))]
        faults: dict[int, str] = {}
        self._sweep()
        for count, number in enumerate(absent, start=1):
            if self.offline:
                faults[number] = f"not in the cache {self.folder}, and --offline was given"
                continue
            self._say(f"reading {listed[number]} from OpenML ({count} of {len(absent)})")
            try:
                self._fetch_table(number)
            except OpenMLFault as fault:
                if fault.silent:
                    raise
                faults[number] = str(fault)
        names = Counter(listed.values())
        return tuple(
            self._source(number, name if names[name] == 1 else f"{name}-{number}", faults)
            for number, name in listed.items()
        )

    def _source(self, number: int, name: str, faults: dict[int, str]) -> Source:
        path = self._path(number)
        if number in faults:
            return Source(name, path, "", number, faults[number])
        try:
            about = json.loads(pq.read_schema(path).metadata[METADATA])
        except (ValueError, KeyError) as error:
            raise DataError(
                f"{path} is no table of the cache ({error}); delete it to read it again."
            ) from error
        return Source(name, path, about["target"], number)

    def _is_whole(self, path: Path) -> bool:
        """Whether a table's file exists and is intact; a damaged one is reported."""
        if not path.exists():
            return False
        try:
            check_file(path)
        except DamagedFile as error:
            self._say(f"{path} is damaged ({error.reason})")
            return False
        return True

    def _suite(self, suite: str) -> dict[int, str]:
        if not suite.isdecimal():
            raise ConfigError(f"--suite {suite}: give the number of a suite at OpenML, such as 99.")
        path = self.folder / f"suite-{suite}.json"
        tables = self._read_suite(path)
        if tables is None:
            if self.offline:
                raise DataError(
                    f"suite {suite} is not in the cache {self.folder}; read it once without "
                    "--offline."
                )
            self._say(f"reading suite {suite} from OpenML")
            with self._scratch() as scratch:
                answer = self._ask({"suite": int(suite)}, f"suite {suite}", scratch)["tables"]
            tables = {str(number): name for number, name in answer.items()}
            write_sealed(path, {"tables": tables})
        try:
            # Ids become file names, so they have to be numbers.
            return {int(number): str(name) for number, name in tables.items()}
        except ValueError as error:
            raise DataError(
                f"{path} is no list of tables ({error}); delete it to read it again."
            ) from error

    def _read_suite(self, path: Path) -> dict[str, str] | None:
        """The names of a suite's tables by id, from the cache; None if missing or damaged."""
        try:
            content = read_sealed(path, DELETE)
            if content is not None and not isinstance(content.get("tables"), dict):
                raise DamagedFile(path, "it lists no tables", DELETE)
        except DamagedFile as error:
            self._say(f"{path} is damaged ({error.reason})")
            return None
        return None if content is None else content["tables"]

    def _fetch_table(self, number: int) -> None:
        with self._scratch() as scratch:
            self._ask({"table": number}, f"table {number}", scratch)
            os.replace(Path(scratch) / FETCHED, self._path(number))

    def _ask(self, request: dict[str, Any], what: str, scratch: str) -> dict[str, Any]:
        """Make a request, a few times until there is an answer.

        Raises:
            OpenMLFault: All attempts failed.
        """
        for attempt, pause in enumerate((0.0, *PAUSES)):
            time.sleep(pause)
            with tempfile.TemporaryDirectory(dir=scratch) as client:
                environment = {"OPENML_CACHE_DIR": client}
                if attempt and attempt == len(PAUSES):
                    environment["OPENML_SKIP_PARQUET"] = "true"
                answer = _answer(request | {"folder": scratch}, environment)
            if "fault" not in answer:
                return answer
        server = answer.get("server", "the server")
        if answer["silent"]:
            raise OpenMLFault(
                f"OpenML ({server}) does not answer for {what} ({answer['fault']}): try again "
                f"later, with --offline evaluate what has been read into {self.folder}, or give "
                "tables of your own, --benchmark folder:PATH.",
                silent=True,
            )
        raise OpenMLFault(f"OpenML ({server}) has no {what} ({answer['fault']})", silent=False)

    def _scratch(self) -> "tempfile.TemporaryDirectory[str]":
        """A temporary folder in the cache."""
        self.folder.mkdir(parents=True, exist_ok=True)
        return tempfile.TemporaryDirectory(dir=self.folder, prefix=SCRATCH)

    def _sweep(self) -> None:
        """Delete temporary folders of killed processes: those too old to be in use."""
        for left in self.folder.glob(f"{SCRATCH}*"):
            if time.time() - left.stat().st_mtime > 2 * TIME_LIMIT:
                shutil.rmtree(left, ignore_errors=True)

    def _path(self, number: int) -> Path:
        return self.folder / f"{number}.parquet"


def default_folder() -> Path:
    """The default folder of the cache."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "tabicl_linear" / "openml"


def _answer(request: dict[str, Any], environment: dict[str, str]) -> dict[str, Any]:
    """The answer of an `openml_fetch` process; a fault if it fails or exceeds the time limit."""
    try:
        process = subprocess.run(
            [sys.executable, "-m", "tabicl_linear.evaluation.openml_fetch"],
            input=json.dumps(request),
            env=os.environ | environment,
            capture_output=True,
            text=True,
            timeout=TIME_LIMIT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"fault": f"no answer within {TIME_LIMIT:g} s", "silent": True}
    if process.returncode:
        last = (process.stderr.strip().splitlines() or ["no reason"])[-1]
        return {
            "fault": f"the client ended with code {process.returncode}: {last}",
            "silent": False,
        }
    answer: dict[str, Any] = json.loads(process.stdout)
    return answer
