"""Runs every check in a process of its own and prints one table; see the package's docstring.

A process that hangs is stopped, one that crashes (an illegal memory access in a kernel ends a CUDA
process) does not affect the others, and kernels are compiled on all cores.
"""

import argparse
import ctypes.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

from tools.gpu_check import results, units, wheels
from tools.gpu_check.results import Result
from tools.gpu_check.units import Job, Options

TOTAL_SECONDS = 465.0
"""Maximum seconds of the whole check."""

AGREEMENT_SECONDS = 225.0
"""Seconds of these for compiling."""

PROCESS_BYTES = 3 * 2**29
"""Device memory for each of several concurrent processes."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Check, print the table, and return 1 if anything failed."""
    parser = argparse.ArgumentParser(prog="python -m tools.gpu_check", description=__doc__)
    parser.add_argument("--device", default="cuda", help="device; cpu is for testing this tool")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, takes seconds")
    parser.add_argument("--output", type=Path, help="file to write the table to as well")
    parser.add_argument("--wheels", type=Path, default=units.ROOT / ".whl", help="folder of wheels")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.worker is not None:
        work = json.loads(options.worker)
        units.run(work["units"], Options(*work["options"]), Path(work["path"]))
        return 0
    if options.device == "cuda":
        reason = no_device()
        if reason is not None:
            sys.stdout.write(f"gpu-check: no CUDA device ({reason}); nothing to check.\n")
            return 0
    with tempfile.TemporaryDirectory(prefix="gpu_check_") as folder:
        unpacked = wheels.unpack(options.wheels, Path(folder) / "site")
        if unpacked:
            sys.stderr.write(f"gpu-check: uses {', '.join(unpacked)}\n")
        outcomes = check(Options(options.device, options.quick), Path(folder))
    text = results.table(outcomes)
    sys.stdout.write(text + "\n")
    if options.output is not None:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(text + "\n")
    return 1 if any(result.status == "FAIL" for result in outcomes) else 0


def no_device() -> str | None:
    """Why there is no CUDA device, or None if there is one."""
    if find_spec("torch") is None:
        if ctypes.util.find_library("cuda") is None:
            return "no NVIDIA driver, and torch is missing too"
        sys.exit(f"gpu-check: torch is missing for {sys.executable}; set PYTHON=... to one with it")
    import torch

    return None if torch.cuda.is_available() else f"torch {torch.__version__} finds none"


def check(options: Options, folder: Path) -> list[Result]:
    """All rows: agreement on all cores first, then timings one after the other."""
    start = time.monotonic()
    compiled_by, deadline = start + AGREEMENT_SECONDS, start + TOTAL_SECONDS
    with ThreadPoolExecutor(_at_once(options.device)) as pool:
        jobs = units.agreement_jobs(quick=options.quick)
        outcomes = list(pool.map(lambda job: run(job, options, folder, compiled_by), jobs))
    rows = [row for part in outcomes for row in part]
    agreed = {row.name.partition(",")[0] for row in rows if _agreed_in_16_bit(row)}
    options = options._replace(verified=tuple(sorted(agreed)))
    for job in units.measuring_jobs(quick=options.quick):
        rows += run(job, options, folder, deadline)
    return rows


def _at_once(device: str) -> int:
    """Number of concurrent processes that cores and device memory allow."""
    cores = max(1, (os.cpu_count() or 2) - 1)
    if device != "cuda":
        return cores
    import torch

    return max(1, min(cores, torch.cuda.get_device_properties(0).total_memory // PROCESS_BYTES))


def _agreed_in_16_bit(row: Result) -> bool:
    return row.status == "ok" and row.name.endswith(": FLA") and "float32" not in row.name


def run(job: Job, options: Options, folder: Path, deadline: float) -> list[Result]:
    """The rows of a process, and one for each unit that it did not finish."""
    left = deadline - time.monotonic()
    if left < 5:
        return [Result(unit, "skipped", "no time was left") for unit in job.units]
    stem = job.units[0].replace("/", "_")
    path, log = folder / f"{stem}.jsonl", folder / f"{stem}.log"
    seconds = min(job.seconds, left)
    work = {"units": job.units, "options": options, "path": str(path)}
    command = [sys.executable, "-m", "tools.gpu_check", "--worker", json.dumps(work)]
    inherited = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    where = os.pathsep.join([str(folder / "site"), *filter(None, inherited)])
    with log.open("w") as output:
        process = subprocess.Popen(
            command,
            cwd=units.ROOT,
            env={**os.environ, "PYTHONPATH": where},
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = process.wait(seconds)
            reason = f"its process ended with code {code}: {_last_line(log)}"
        except subprocess.TimeoutExpired:
            code, reason = None, f"not done after {seconds:.0f} s"
        finally:
            _stop(process)
    report = results.read(path)
    late = code is None and job.compiles
    unfinished = [
        Result(unit, "skipped", f"{reason}, Triton compiles")
        if late
        else Result(unit, "FAIL", reason)
        for unit in job.units
        if unit not in report.finished
    ]
    rows = [*report.results, *unfinished]
    for row in rows:
        sys.stderr.write(f"gpu-check: {row.name}: {row.status}, {row.detail}\n")
    return rows


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End a process and those it started, such as compilers."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").split("\n")
    return next((line.strip()[:200] for line in reversed(lines) if line.strip()), "no output")


if __name__ == "__main__":
    sys.exit(main())
