"""Makes lines of the package wrong, one at a time, and says which of them the tests notice.

    python tests/mutations.py [WORDS]

WORDS: only lines whose file, text or tests hold one of them. Wrong lines are those of
`mutations.csv`: a file below `tabicl_linear`, a text that it holds once, the wrong text, the test
files that should notice, and, for lines that none can notice, why. Everything happens in a
temporary copy of the repository.
"""

import csv
import importlib
import multiprocessing
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
TABLE = Path(__file__).with_name("mutations.csv")
COPIED = ("configs", "docs", "experiments", "tabicl_linear", "tests", "tools")
LOADED = ("lightning", "pandas", "scipy.stats", "sklearn.model_selection", "statsmodels", "torch")
"""What takes seconds to import and has no wrong lines: imported once, before processes fork."""
LIMIT = 300
"""Seconds after which tests of a wrong line hang, which is noticed."""
PASSED, FAILED = pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED


class Mutation(NamedTuple):
    """A line made wrong.

    Attributes:
        file: Path below `tabicl_linear`.
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
        found = text.count(self.right)
        if found != 1:
            raise ValueError(
                f"{self.file} holds {self.right!r} {found} times and should hold it once: change "
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


def run_tests(folder: Path, tests: Sequence[str]) -> None:
    """End this process with the exit code of pytest on some tests of a copy."""
    with (folder / "output").open("w") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    os.chdir(folder)
    arguments = ["-x", "-p", "no:cacheprovider", *(f"tests/{test}" for test in tests)]
    sys.exit(pytest.main(arguments))


def fails(folder: Path, tests: Sequence[str], limit: float | None = LIMIT) -> bool:
    """Whether some tests of a copy fail, or hang for longer than a limit in seconds.

    Raises:
        RuntimeError: They did not run.
    """
    process = multiprocessing.get_context("fork").Process(target=run_tests, args=(folder, tests))
    process.start()
    process.join(limit)
    if process.is_alive():
        process.kill()
        process.join()
        return True
    if process.exitcode not in (PASSED, FAILED):
        said = (folder / "output").read_text()
        raise RuntimeError(f"pytest did not run {' '.join(tests)}:\n{said}")
    return process.exitcode == FAILED


def noticed(folder: Path, chosen: Sequence[Mutation]) -> Iterator[tuple[Mutation, bool]]:
    """Each mutation, and whether its tests fail; the copy is whole again after each."""
    for number, mutation in enumerate(chosen, start=1):
        path = folder / "tabicl_linear" / mutation.file
        whole, changed = path.read_text(), path.stat().st_mtime
        path.write_text(mutation.applied(whole))
        # Compiled files are renewed where the second of the change differs, or the length.
        os.utime(path, (changed + number, changed + number))
        try:
            yield mutation, fails(folder, mutation.tests.split())
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
        folder = copy_of_the_repository(Path(name))
        tests = sorted({test for mutation in chosen for test in mutation.tests.split()})
        if fails(folder, tests, limit=None):
            print(f"The tests fail without a wrong line:\n{(folder / 'output').read_text()}")
            return 1
        for mutation, is_noticed in noticed(folder, chosen):
            what = "noticed" if is_noticed else "left" if mutation.left else "NOT NOTICED"
            counts[what] += 1
            print(f"{what:<12} {mutation.file}: {mutation.right} -> {mutation.wrong}", flush=True)
    print(", ".join(f"{count} {what}" for what, count in counts.items()), f"of {len(chosen)}")
    return int(counts["NOT NOTICED"] > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
