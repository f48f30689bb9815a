"""The batch scripts, with stand-ins for the scheduler's commands and for Python."""

import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROGRAM = """#!/bin/bash
echo "$@" >> "$LOG"
if [ -n "$CODE" ]; then exit "$CODE"; fi
trap 'sleep 0.3; echo saved >> "$LOG"; exit 143' TERM
while true; do sleep 0.05; done
"""
"""Takes a while to end after SIGTERM, as a run that finishes its step and writes a checkpoint."""


@pytest.fixture
def batch(tmp_path):
    """Starts a batch script; `.log` has all that it called, `.errors` what it said."""
    programs = {"python": PROGRAM, "scontrol": '#!/bin/bash\necho "$@" >> "$LOG"\n'}
    programs["srun"] = (
        '#!/bin/bash\nshift\necho "cpus $SRUN_CPUS_PER_TASK" >> "$LOG.srun"\nexec "$@"\n'
    )
    for name, text in programs.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    log = tmp_path / "log"
    slurm = {"JOB_ID": "7", "ARRAY_JOB_ID": "7", "ARRAY_TASK_ID": "1", "ARRAY_TASK_COUNT": "8"}
    slurm |= {"ARRAY_TASK_MIN": "1", "ARRAY_TASK_MAX": "8", "CPUS_PER_TASK": "2"}

    def start(name, **more):
        environment = {"LOG": str(log), "PYTHON": str(tmp_path / "python")}
        environment |= {f"SLURM_{key}": value for key, value in slurm.items()} | more
        environment["PATH"] = f"{tmp_path}:{os.environ['PATH']}"
        command = ["bash", f"slurm/{name}"]
        with start.errors.open("w") as errors:
            return subprocess.Popen(command, cwd=ROOT, env=environment, stderr=errors)

    start.log = log
    start.errors = tmp_path / "errors"
    return start


def test_a_study_that_is_stopped_is_requeued_after_it_has_saved(batch):
    job = batch("study.sbatch", SEEDS="0 1")
    while not batch.log.exists():
        time.sleep(0.01)
    job.send_signal(signal.SIGTERM)
    assert job.wait() == 143
    called = batch.log.read_text().splitlines()
    assert called[0].endswith("--seeds 0 1 --shard 1/8")
    assert called[1:] == ["saved", "requeue 7_1"]


@pytest.mark.parametrize(("code", "is_requeued"), [(0, False), (1, False), (3, True)])
def test_a_study_is_requeued_only_if_it_was_stopped(batch, code, is_requeued):
    assert batch("study.sbatch", CODE=str(code)).wait() == code
    assert ("requeue 7_1" in batch.log.read_text().splitlines()) == is_requeued


@pytest.mark.parametrize("part", ["3", "1", "1,8", "0-7"])
def test_a_part_of_an_array_is_a_part_of_the_whole_that_is_named(batch, part):
    """Its own number of tasks divides the units in another way than the whole did."""
    parts = {"3": "3 3 1", "1": "1 1 1", "1,8": "1 8 2", "0-7": "0 7 8"}
    least, most, count = parts[part].split()
    array = {"TASK_ID": least, "TASK_MIN": least, "TASK_MAX": most, "TASK_COUNT": count}
    array = {f"SLURM_ARRAY_{key}": value for key, value in array.items()}
    if part != "1":  # --array=1 is a whole of one task as well as a part
        assert batch("study.sbatch", **array, CODE="0").wait() == 1
        assert "such as SHARDS=8 sbatch" in batch.errors.read_text()
        assert not batch.log.exists()
    assert batch("study.sbatch", **array, CODE="0", SHARDS="9").wait() == 0
    assert batch.log.read_text().endswith(f"--shard {least}/9\n")


def test_a_training_goes_on_from_its_newest_checkpoint(batch, tmp_path):
    root = tmp_path / "runs"
    common = {"ROOT": str(root), "CONFIG": "configs/gla.yaml"}
    assert batch("a5000.sbatch", **common, CODE="143").wait() == 143  # nothing to go on from
    for number in (0, 1):
        folder = root / f"version_{number}"
        folder.mkdir(parents=True)
        (folder / "last.ckpt").touch()
        os.utime(folder / "last.ckpt", (number, number))
    assert batch("rtx2080ti.sbatch", **common, CODE="143").wait() == 143
    assert batch("a5000.sbatch", **common, CODE="0").wait() == 0
    first, second, requeue, third = batch.log.read_text().splitlines()
    assert "--config configs/gla.yaml" in first
    assert "--ckpt_path" not in first
    assert second.endswith(f"--ckpt_path {root / 'version_1' / 'last.ckpt'}")
    assert "--trainer.precision 16-mixed" in second
    assert requeue == "requeue 7"
    assert third.endswith("last.ckpt")
    assert set((tmp_path / "log.srun").read_text().splitlines()) == {"cpus 2"}


@pytest.mark.parametrize("name", ["a5000.sbatch", "rtx2080ti.sbatch", "study.sbatch"])
def test_the_log_lies_in_a_folder_that_a_fresh_clone_has(name):
    """SLURM makes no folder for it: the job would fail, and there would be no log to say so."""
    script = (ROOT / "slurm" / name).read_text()
    (log,) = re.findall(r"^#SBATCH --output=(.*)$", script, re.MULTILINE)
    assert Path(log).parent == Path("slurm")


@pytest.mark.parametrize("name", ["a5000.sbatch", "rtx2080ti.sbatch", "study.sbatch"])
def test_gpus_are_asked_for_in_a_way_that_sbatch_takes(name):
    """It refuses `--gpus-per-task` without `--ntasks`."""
    script = (ROOT / "slurm" / name).read_text()
    assert "#SBATCH --nodes=1\n" in script
    assert re.search(r"^#SBATCH --gpus-per-node=\d$", script, re.MULTILINE)
    assert "--gpus-per-task" not in script
