"""`make gpu-check` on a machine without a GPU: what it says, and that every row of it runs."""

import json
import sys
import zipfile
from pathlib import Path

import pytest
import torch
from forked import run_program

from tools.gpu_check import results, units, wheels
from tools.gpu_check.__main__ import main, run
from tools.gpu_check.results import Result
from tools.gpu_check.units import Job, Options

ROOT = Path(__file__).parents[1]
QUICK = Options("cpu", quick=True)


@pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA device is here")
def test_a_machine_without_a_gpu_is_told_so(capsys):
    assert main([]) == 0
    assert capsys.readouterr().out.startswith("gpu-check: no CUDA device (")


def run_or_fork(job, options, folder, deadline):
    """As `run`; what is measured after another, in a process that need not import anything."""
    if job.units[0] == "environment":
        return run(job, options, folder, deadline)
    path = folder / "measured"
    work = json.dumps({"units": job.units, "options": options, "path": str(path)})
    done = run_program([sys.executable, "-m", "tools.gpu_check", "--worker", work])
    assert done.returncode == 0, done.stdout
    return results.read(path).results


def test_every_row_runs_in_small_on_the_cpu(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("tools.gpu_check.__main__.run", run_or_fork)
    path = tmp_path / "new" / "table.md"
    assert main(["--device", "cpu", "--quick", "--output", str(path)]) == 0
    table = path.read_text()
    assert capsys.readouterr().out == table
    rows = [[cell.strip() for cell in line.split("|")[1:4]] for line in table.splitlines()[2:-2]]
    verdicts = {name: verdict for name, verdict, _ in rows}
    for path in (ROOT / "configs").glob("*.yaml"):
        assert path.stem == "smoke" or verdicts[f"step of {path.stem}"] == "ok"
    for mixer in units.MIXERS:
        for precision in ("float32", "bfloat16"):
            assert verdicts[f"{mixer}, {precision}: PyTorch"] == "ok"
    kernels = [name for name in verdicts if name.endswith(": FLA")]
    assert len(kernels) == 10
    assert {verdicts[name] for name in kernels} == {"skipped"}
    assert verdicts["prior"] == verdicts["environment"] == "ok"
    assert sum(name.startswith("train ") for name in verdicts) == 3
    assert sum(name.startswith("fit ") for name in verdicts) == 2
    ours = ["tree prior", "mixture prior", "cells axis", "Muon"]
    ours += [f"ridge inputs, {calibration}" for calibration in ("confidence", "logistic")]
    assert {verdicts[name] for name in ours} == {"ok"}
    assert table.endswith("0 FAIL, 10 skipped\n")


def test_a_missing_package_costs_the_rows_that_need_it(tmp_path):
    (tmp_path / "scipy").mkdir()
    (tmp_path / "scipy" / "__init__.py").write_text("raise ModuleNotFoundError(name='scipy')\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(tmp_path))
        rows = run(Job(("prior", "environment"), 60), QUICK, tmp_path, float("inf"))
    assert [(row.name, row.status) for row in rows] == [("prior", "skipped"), ("environment", "ok")]
    assert rows[0].detail.startswith("scipy is missing")


def test_a_failure_ends_its_unit_alone(tmp_path):
    units.run(("agreement/Nothing/float32", "environment"), QUICK, tmp_path / "rows")
    failed, fine = results.read(tmp_path / "rows").results
    assert (failed.status, failed.detail) == ("FAIL", "KeyError: 'Nothing'")
    assert fine.status == "ok"


@pytest.mark.parametrize(("compiles", "status"), [(False, "FAIL"), (True, "skipped")])
def test_a_process_out_of_time_is_stopped_and_said(tmp_path, compiles, status):
    with pytest.MonkeyPatch.context() as patch:
        # A package that never finishes importing, as a kernel that never finishes compiling.
        (tmp_path / "jaxtyping.py").write_text("import time\ntime.sleep(100)\n")
        patch.setenv("PYTHONPATH", str(tmp_path))
        job = Job(("agreement/DeltaNet/float32",), 1, compiles)
        (row,) = run(job, QUICK, tmp_path, float("inf"))
    assert row.status == status
    assert row.detail.startswith("not done after 1 s")


def test_a_process_that_dies_is_told_with_its_last_line(tmp_path):
    with pytest.MonkeyPatch.context() as patch:
        (tmp_path / "jaxtyping.py").write_text("import os\nprint('bad access')\nos.abort()\n")
        patch.setenv("PYTHONPATH", str(tmp_path))
        patch.setenv("PYTHONUNBUFFERED", "1")
        (row,) = run(Job(("prior",), 60), QUICK, tmp_path, float("inf"))
    assert row == Result("prior", "FAIL", "its process ended with code -6: bad access")


def test_no_time_left_starts_nothing(tmp_path):
    assert run(Job(("prior",), 60), QUICK, tmp_path, 0.0) == [
        Result("prior", "skipped", "no time was left")
    ]


def test_rows_that_were_cut_off_are_left_out(tmp_path):
    row = Result("a", "ok", "1")
    results.append(tmp_path / "rows", result=row)
    with (tmp_path / "rows").open("a") as file:
        file.write(json.dumps(row._asdict())[:-3])
    assert results.read(tmp_path / "rows").results == [row]


def test_wheels_are_unpacked_where_they_fit(tmp_path):
    this = f"cp{sys.version_info.major}{sys.version_info.minor}"
    for name in ("one-1.0-py3-none-any", "two-1.0-cp27-cp27m-any", f"three-2-{this}-{this}-any"):
        with zipfile.ZipFile(tmp_path / f"{name}.whl", "w") as archive:
            archive.writestr(f"{name[:3]}/__init__.py", "x = 1\n")
            program = zipfile.ZipInfo(f"{name[:3]}/program")
            program.external_attr = 0o755 << 16
            archive.writestr(program, "")
    fitting = wheels.unpack(tmp_path, tmp_path / "site")
    assert fitting == ["one-1.0-py3-none-any.whl", f"three-2-{this}-{this}-any.whl"]
    assert sorted(path.name for path in (tmp_path / "site").iterdir()) == ["one", "thr"]
    assert (tmp_path / "site" / "one" / "program").stat().st_mode & 0o111
    assert wheels.unpack(tmp_path / "none", tmp_path / "site") == []
