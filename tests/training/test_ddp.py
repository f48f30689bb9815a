"""Several processes: the same step as one with the joined batch, and resumed bit-identically."""

import os
import signal
import subprocess
import sys

import pytest
import torch
from command_line import CONFIGS
from lightning.pytorch import Trainer
from lightning.pytorch.utilities.rank_zero import rank_zero_only
from resumed_runs import UNLOGGED, assert_same
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from tabicl_linear import build_task
from tabicl_linear.__main__ import main
from tabicl_linear.cli.launch import completed
from tabicl_linear.config import build_data
from tabicl_linear.training.scores import cross_entropy

pytestmark = [
    # Python 3.12 and newer warn when processes are forked beside TensorBoard's writer thread.
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:GPU available but not used"),
    pytest.mark.skipif(
        torch.cuda.is_available(), reason="a process that uses CUDA must not be forked"
    ),
]
CPU = ("--trainer.accelerator", "cpu")
FORKED = (*CPU, "--trainer.devices", 2, "--trainer.strategy", "ddp_fork")
KEPT = ("--trainer.max_steps", 3, "--checkpoint.keep_every_n_steps", 1, *UNLOGGED)


def differ(first, second):
    return any(not torch.equal(v, second["state_dict"][n]) for n, v in first["state_dict"].items())


class TestGradient:
    """One step of plain gradient descent at rate 1 takes the gradient off the weights."""

    DESCENT = (
        "model.optimizer=torch.optim.SGD",
        "model.optimizer.init_args.lr=1",
        "model.optimizer.init_args.weight_decay=0",
        "model.schedule.init_args.warmup=0",
        "data.shapes.batch_size=3",
    )

    def test_two_ranks_take_the_gradient_of_the_joined_batch(self, fit, load, tiny, tmp_path):
        """Over a window of two batches, which differ in shape."""
        options = [part for option in self.DESCENT for part in f"--{option}".split("=")]
        options += ["--trainer.gradient_clip_val", "null", "--trainer.precision", "64-true"]
        assert fit(*FORKED, *options, "--trainer.max_steps", 1) == 0
        checkpoint = load(tmp_path / "runs" / "version_0" / "last.ckpt")
        assert checkpoint["provenance"]["datasets"] == 2 * 2 * 3

        task = build_task(*tiny[1:6:2], overrides=[*self.DESCENT, "model.architecture.depth=1"])
        model = task.model.double()
        data = build_data(*tiny[1:6:2], overrides=self.DESCENT)
        for index in range(2):
            ranks = [data.stream("train", rank=rank).batch(index) for rank in range(2)]
            assert ranks[0].x.shape == ranks[1].x.shape
            assert ranks[0].num_context == ranks[1].num_context
            assert not torch.equal(ranks[0].x, ranks[1].x)
            fields = [(rank.x, rank.y, rank.categorical) for rank in ranks]
            x, y, categorical = (torch.cat(parts) for parts in zip(*fields, strict=True))
            joined = ranks[0]._replace(x=x.double(), y=y, categorical=categorical)
            logits = model.train_pass(joined)[0]
            loss = cross_entropy(logits, y[:, joined.num_context :]).mean()
            (loss / 2).backward()
        for name, parameter in model.named_parameters():
            taken = parameter.detach() - checkpoint["state_dict"][f"model.{name}"]
            assert taken.dtype == torch.float64
            torch.testing.assert_close(taken, parameter.grad, rtol=1e-9, atol=1e-12, msg=name)
            assert parameter.grad.abs().sum() > 0, name


CONFIGURED = sorted(path for path in CONFIGS.glob("*.yaml") if path.stem != "smoke")


@pytest.fixture(scope="module")
def batch(tiny):
    return build_data(*tiny[1:6:2]).stream("train").batch(0)


@pytest.mark.parametrize("path", CONFIGURED, ids=lambda path: path.stem)
def test_no_parameter_of_a_config_is_unused(path, batch):
    """DDP waits for the gradient of each: `find_unused_parameters` is not needed."""
    task = build_task(path, CONFIGS / "smoke.yaml")
    task.model.train_pass(batch)[0].square().sum().backward()
    unused = [name for name, p in task.named_parameters() if p.grad is None]
    assert not unused


@pytest.fixture(scope="module")
def whole(tiny, tmp_path_factory):
    """An uninterrupted run of two processes."""
    root = tmp_path_factory.mktemp("ddp")
    command = ["fit", *tiny, *map(str, (*FORKED, *KEPT)), "--trainer.default_root_dir", str(root)]
    assert main(command) == 0
    return root / "version_0"


class TestResume:
    def test_by_two_processes_it_is_bit_identical(self, fit, load, whole, tmp_path):
        path = whole / "step_0000001.ckpt"
        assert load(path)["provenance"]["processes"] == 2
        assert fit("--ckpt_path", path, root="same", base=[]) == 0
        final, same = load(whole / "last.ckpt"), load(tmp_path / "same/version_0/last.ckpt")
        assert final["global_step"] == 3
        assert_same(final, same)
        # The twin that must fail: other data after the same checkpoint.
        assert fit("--ckpt_path", path, "--seed_everything", 1, root="other", base=[]) == 0
        assert differ(final, load(tmp_path / "other/version_0/last.ckpt"))

    def test_by_another_number_it_is_refused_unless_asked_for(
        self, fit, load, whole, tmp_path, capfd
    ):
        path = whole / "step_0000001.ckpt"
        alone = ("--ckpt_path", path, "--trainer.devices", 1, "--trainer.strategy", "auto")
        capfd.readouterr()
        assert fit(*alone, root="alone", base=[]) == 2
        error = capfd.readouterr().err.splitlines()[-1]
        assert "a run with 2 processes and this one has 1" in error
        assert not (tmp_path / "alone").exists()
        assert fit(*alone, "--checkpoint.other_processes", "true", root="alone", base=[]) == 0
        assert load(tmp_path / "alone/version_0/last.ckpt")["provenance"]["processes"] == 1


def test_a_loss_of_a_forked_process_that_is_not_finite_is_one_line(fit, capfd):
    """The first process knows it as the text of a traceback."""
    options = ("--model.optimizer.init_args.lr", 1e30, "--model.schedule.init_args.warmup", 0)
    assert fit(*FORKED, *options) == 1
    said = capfd.readouterr().err.splitlines()
    assert not any("Traceback" in line for line in said)
    assert said[-1].startswith("tabicl-linear fit: The loss is ")


def test_a_signal_to_the_process_that_has_forked_the_others_stops_all(forked, tiny, load, tmp_path):
    def command(words):
        return main(["fit", *words])

    options = ("--trainer.max_steps", 100_000, "--trainer.default_root_dir", tmp_path)
    run = forked(command, *tiny, *FORKED, *options, "--checkpoint.every_n_steps", 1)
    last = tmp_path / "version_0" / "last.ckpt"
    run.wait_until(last.exists)
    os.kill(run.pid, signal.SIGTERM)
    assert run.wait() == 143
    assert not any("Traceback" in line or "spawn.py" in line for line in run.said())
    step = load(last)["global_step"]
    assert run.said()[-1].endswith(
        f"SIGTERM after step {step}; resume with: tabicl-linear fit --ckpt_path {last}"
    )


def fit_by_torchrun(arguments):
    """`tabicl-linear fit` in two processes of torchrun's launcher, which are forked.

    `torchrun` itself would start three interpreters; the launcher sets the same environment.
    """
    here = {"rdzv_backend": "c10d", "rdzv_endpoint": "localhost:0", "start_method": "fork"}
    return max(elastic_launch(LaunchConfig(1, 1, 2, **here), fit_of_torchrun)(arguments).values())


def fit_of_torchrun(arguments):
    # As in `fit_as_task`.
    rank_zero_only.rank = int(os.environ["RANK"])
    return main(["fit", *arguments])


JOB = {
    **{"SLURM_JOB_NAME": "train", "SLURM_JOB_ID": "4711", "SLURM_NNODES": "1"},
    **{"SLURM_NTASKS": "2", "SLURM_NTASKS_PER_NODE": "2"},
    **{"SLURM_NODEID": "0", "SLURM_NODELIST": "127.0.0.1"},
}
"""Of the environment of a job of two tasks on one node."""


@pytest.mark.parametrize("started", [{"SLURM_STEP_ID": "0"}, {}], ids=["srun", "batch script"])
def test_only_srun_has_started_the_other_tasks_of_a_job(started, monkeypatch):
    """And nothing is requeued behind the batch script's back, with it or without."""
    variables = JOB | {"SLURM_PROCID": "0", "SLURM_LOCALID": "0"} | started
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    options = {"accelerator": "cpu", "devices": 2, "strategy": "ddp", "num_nodes": 1}
    trainer = Trainer(**completed({**options, "plugins": None}), logger=False)
    environment = trainer.strategy.cluster_environment
    assert environment.creates_processes_externally == bool(started)
    assert not vars(environment).get("auto_requeue")


def fit_as_task(arguments):
    """`tabicl-linear fit` in the environment of one task of SLURM, whose rank comes first."""
    rank, port, *options = arguments
    os.environ |= JOB | {"SLURM_STEP_ID": "0", "MASTER_PORT": port}
    os.environ |= {"SLURM_PROCID": rank, "SLURM_LOCALID": rank}
    # Lightning read it from there when it was imported, which was before this process was forked.
    rank_zero_only.rank = int(rank)
    return main(["fit", *options])


@pytest.fixture
def tasks(forked, tiny, tmp_path):
    """Start a run that does not end as srun would, here without SLURM; when both have begun."""

    def run(*options):
        port = 20_000 + os.getpid() % 20_000
        options = (*tiny, *CPU, *options, "--trainer.max_steps", 100_000)
        options += ("--trainer.default_root_dir", tmp_path)
        started = [forked(fit_as_task, rank, port, *options) for rank in range(2)]
        started[0].wait_until((tmp_path / "version_0" / "last.ckpt").exists)
        return started

    return run


@pytest.mark.slow
def test_a_process_that_hangs_ends_the_others_after_the_limit(tasks, tmp_path):
    """It is stopped, not killed: nothing tells the other one but the time."""
    first, other = tasks("--rank_timeout_minutes", 0.15)
    os.kill(other.pid, signal.SIGSTOP)
    assert first.wait() == 1
    assert not any("Traceback" in line for line in first.said())
    assert "did not answer within --rank_timeout_minutes" in first.said()[-1]
    assert first.said()[-1].endswith(f"--ckpt_path {tmp_path / 'version_0' / 'last.ckpt'}")


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_a_process_that_is_alone_at_the_start_says_so_in_one_line(forked, tiny, rank, tmp_path):
    """It advises no checkpoint, as there is none, and leaves no folder of a run."""
    port = 20_000 + os.getpid() % 20_000
    options = (*tiny, *CPU, "--rank_timeout_minutes", 0.03)
    options += ("--trainer.default_root_dir", tmp_path / "runs")
    run = forked(fit_as_task, rank, port, *options)
    assert run.wait() == 1
    assert run.said()[-1].startswith("tabicl-linear fit: Another process ended, or did not answer")
    assert run.said()[-1].endswith("end the remaining ones, and start all of them again.")
    assert not any("frame #" in line for line in run.said())
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
class TestLaunched:
    """All three ways end with the very weights of the processes that were forked."""

    def test_by_lightning(self, load, tiny, whole, tmp_path):
        pair = ("--trainer.devices", 2, "--trainer.strategy", "ddp")
        command = [sys.executable, "-m", "tabicl_linear", "fit", *tiny, *CPU, *pair, *KEPT]
        command += ["--trainer.default_root_dir", tmp_path]
        done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=180)
        assert done.returncode == 0, done.stderr
        assert_same(load(whole / "last.ckpt"), load(tmp_path / "version_0" / "last.ckpt"))

    def test_by_torchrun_without_flags(self, forked, load, tiny, whole, tmp_path):
        root = ("--trainer.default_root_dir", tmp_path)
        launcher = forked(fit_by_torchrun, *tiny, *CPU, *KEPT, *root)
        assert launcher.wait() == 0, launcher.said()
        assert [path.name for path in tmp_path.iterdir()] == ["version_0"]
        assert_same(load(whole / "last.ckpt"), load(tmp_path / "version_0" / "last.ckpt"))

    def test_by_srun_without_flags_stopped_by_the_scheduler_and_resumed(
        self, fit, load, tasks, tmp_path
    ):
        """A signal to one of them."""
        last, started = tmp_path / "version_0" / "last.ckpt", tasks()
        os.kill(started[1].pid, signal.SIGTERM)
        assert [task.wait() for task in started] == [143, 143]
        assert started[0].said()[-1].endswith(str(last))
        assert not any("Stopped" in line for line in started[1].said())
        assert [path.name for path in tmp_path.iterdir()] == ["version_0"]
        stored = load(last)
        assert stored["provenance"]["processes"] == 2
        assert stored["PriorDataModule"]["next_index"] == 2 * stored["global_step"]
        assert stored["config"]["trainer"]["devices"] == "auto"
        steps = ("--trainer.max_steps", stored["global_step"] + 1)
        assert fit("--ckpt_path", last, *FORKED, *steps, root=None, base=[]) == 0
        assert load(last)["global_step"] == stored["global_step"] + 1
