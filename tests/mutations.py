"""Makes lines of the package wrong, one at a time, and says which of them the tests notice.

    python tests/mutations.py [WORDS]

WORDS: only lines whose file, text or tests hold one of them. Wrong lines are those of
`mutations.csv`: a file from `tabicl_linear` on, a text that it holds once, the wrong text, the test
files that should notice, and, for lines that none can notice, why. Everything happens in a
temporary copy of the repository.
"""

import csv
import importlib
import multiprocessing
import os
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
TABLE = Path(__file__).with_name("mutations.csv")
COPIED = ("configs", "docs", "experiments", "tabicl_linear", "tests", "tools")
LOADED = (
    *("beartype", "jsonargparse", "lightning.pytorch", "matplotlib.pyplot"),
    *("pandas", "pyarrow.parquet", "scipy.optimize", "scipy.stats", "sklearn.ensemble"),
    *("sklearn.linear_model", "sklearn.model_selection", "scikit_posthocs", "torchmetrics"),
)
"""What takes seconds to import and has no wrong lines: imported once, before processes fork."""
LIMIT = 900
"""Seconds after which tests of a wrong line hang, which is noticed."""
HANGS = "one that hangs"
COLLECTING = "one that is not collected"
PASSED, FAILED = pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED


class Mutation(NamedTuple):
    """A line made wrong.

    Attributes:
        file: Path from `tabicl_linear`.
        right: Text that the file holds once.
        wrong: What takes its place.
        tests: Paths below `tests`, or pytest's names of single tests, divided by spaces.
        left: Why no test notices; empty for those that one should.
    """

    file: str
    right: str
    wrong: str
    tests: str
    left: str

    def applied(self, text: str) -> str:
        """The file with the wrong text.

        Raises:
            ValueError: The file does not hold the right text once.
        """
        result = text.count(self.right)
        if result != 1:
            raise ValueError(
                f"{self.file} holds {self.right!r} {result} times and should hold it once: change "
                f"the line of {TABLE.name} with the file."
            )
        return text.replace(self.right, self.wrong)


def mutations() -> list[Mutation]:
    """All of the table."""
    with TABLE.open(newline="") as file:
        return [Mutation(**row) for row in csv.DictReader(file)]


def copy_of_the_repository(folder: Path) -> Path:
    """What the tests need of the repository, in a new folder."""
    for name in COPIED:
        shutil.copytree(ROOT / name, folder / name, symlinks=True)
    for path in ROOT.iterdir():
        if path.is_file():
            shutil.copy(path, folder)
    return folder


class FirstFailure:
    """A plugin of pytest that writes down which test failed."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.path.write_text(report.nodeid.removeprefix("tests/"))


def run_tests(folder: Path, tests: Sequence[str]) -> None:
    """End this process with the exit code of pytest on some tests of a copy."""
    with (folder / "output").open("w") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    os.chdir(folder)
    options = ["-x", "-p", "no:cacheprovider", "-o", "timeout=0"]
    named = [f"tests/{test}" for test in tests]
    sys.exit(pytest.main([*options, *named], plugins=[FirstFailure(folder / "failed")]))


def failure(folder: Path, tests: Sequence[str]) -> str | None:
    """The first of some tests of a copy that fails, or `HANGS` or `COLLECTING`; None if all pass.

    Raises:
        RuntimeError: They did not run.
    """
    failed = folder / "failed"
    failed.unlink(missing_ok=True)
    process = multiprocessing.get_context("fork").Process(target=run_tests, args=(folder, tests))
    process.start()
    process.join(LIMIT)
    if process.is_alive():
        process.kill()
        process.join()
        return HANGS
    if process.exitcode == pytest.ExitCode.INTERRUPTED:
        return COLLECTING
    # Code 1 is that of a process that ends with an error as well.
    if process.exitcode != PASSED and not (process.exitcode == FAILED and failed.exists()):
        said = (folder / "output").read_text()
        raise RuntimeError(f"pytest did not run {' '.join(tests)}:\n{said}")
    return failed.read_text() if process.exitcode == FAILED else None


def noticed(
    folder: Path, chosen: Sequence[Mutation]
) -> Iterator[tuple[Mutation, str | None, float]]:
    """Each mutation, which of its tests fails, and seconds; the copy is whole after each."""
    for number, mutation in enumerate(chosen, start=1):
        path = folder / "tabicl_linear" / mutation.file
        whole, changed, start = path.read_text(), path.stat().st_mtime, time.monotonic()
        path.write_text(mutation.applied(whole))
        # Compiled files are renewed where the second of the change differs, or the length.
        os.utime(path, (changed + number, changed + number))
        try:
            yield mutation, failure(folder, mutation.tests.split()), time.monotonic() - start
        finally:
            path.write_text(whole)
            os.utime(path, (changed, changed))


def main(words: Sequence[str]) -> int:
    """Print what is noticed and what is not; the exit code is that something unexpected is not."""
    chosen = [m for m in mutations() if not words or any(w in " ".join(m) for w in words)]
    for name in LOADED:
        importlib.import_module(name)
    counts = {"noticed": 0, "left": 0, "NOT NOTICED": 0}
    with TemporaryDirectory() as name:
        folder, failed = copy_of_the_repository(Path(name)), set()
        for mutation, test, seconds in noticed(folder, chosen):
            what = "noticed" if test else "left" if mutation.left else "NOT NOTICED"
            counts[what] += 1
            line = f"{mutation.file}: {mutation.right} -> {mutation.wrong}"
            print(f"{what:<12} {line} by {test} ({seconds:.0f} s)", flush=True)
            failed |= {test} - {None, HANGS, COLLECTING}
        # What fails without a wrong line has noticed none.
        if failed and failure(folder, sorted(failed)):
            print(f"Fails without a wrong line too:\n{(folder / 'output').read_text()}")
            return 1
    print(", ".join(f"{count} {what}" for what, count in counts.items()), f"of {len(chosen)}")
    return int(counts["NOT NOTICED"] > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
