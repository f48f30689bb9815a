"""What cannot be used is one line and exit code 2, and leaves nothing behind."""

import errno
import os

import pytest
import torch
from forked import limit_files

from tabicl_linear.__main__ import main
from tabicl_linear.cli.lock import LOCK
from tabicl_linear.training.task import InContextTask


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--model.architecture.dimm=3"], ["model.architecture.dimm", "model.architecture.dim?"]),
        (["--config", '{"model": {"architekture": {"dim": 3}}}'], ["model.architekture.dim"]),
        (["--model.mixer=Nope"], ["model.mixer=Nope", "tabicl_linear.mixers.delta.DeltaNet"]),
        (["--model.mixer=tabicl_linear.mixers.delta.Nope"], ["model.mixer", "Nope", "class path"]),
        (["--model.mixer=tabicl_linear.readouts.Causal"], ["Causal", "SequenceMixer"]),
        (["--model.schedule=torch.optim.AdamW"], ["no subclass of LRScheduler", "WarmupCosine"]),
        (
            ["--config", "model: {schedule: 3}"],
            ["=3: no subclass of LRScheduler", "Warmup"],
        ),
        (["--data.prior=[3]"], ["data.prior=[3]: no subclass of Prior; give a class path"]),
        (
            ["--config", "model: {strategy: {class_path: json.Nope}}"],
            ["=json.Nope: no such"],
        ),
        (
            ["--config", "model: {mixer: {class_path: 5}}"],
            ["--config: model.mixer.class_path is 5", "DeltaNet"],
        ),
        (
            ["--config", "trainer: {callbacks: [{class_path: }]}"],
            ["callbacks.0.class_path is None"],
        ),
        (["--trainer.callbacks+=json.Nope"], ["callbacks: there is no class json.Nope; mend"]),
        (["--model.mixer.init_args.foo=3"], ["model.mixer: ", "no argument 'foo'", "conv_size"]),
        (["--model.architecture.dim=abc"], ["model.architecture.dim=abc", "int"]),
        (["--model.architecture.dim=10000000"], ["Memory ran out", "tried", "smaller model"]),
        (["--model.architecture.dim=33"], ["dim=33", "num_heads=4"]),
        (["--model.architecture.num_classes=4"], ["data.shapes.max_classes"]),
        (["--model.schedule.init_args.floor=1"], ["floor=1.0", "0.001"]),
        (["--data.shapes.max_context=48"], ["max_context=48", "num_rows"]),
        (["--data.shapes.min_context=48"], ["min_context=48", "query"]),
        (["--config", "/nowhere.yaml"], ["/nowhere.yaml", "no such file"]),
        (["--config", "{a: [1"], ["YAML"]),
        (["--config", "[1, 2]"], ["no config"]),
        (["--config", "{trainer: , data: {}}"], ["--config: trainer is empty", "leave it out"]),
        (["--config", "model: {architecture: 3}"], ["model.architecture is 3 and no section"]),
        (["--ckpt_path", "/nowhere.ckpt"], ["/nowhere.ckpt", "no such file"]),
        (["--ckpt_path", "/"], ["--ckpt_path /: it is a folder", "last.ckpt"]),
        (["--config", '{"ckpt_path": "a.ckpt"}'], ["--ckpt_path a.ckpt"]),
        (["--trainer.max_steps=-1"], ["trainer.max_steps=-1"]),
        (["--trainer.accumulate_grad_batches=0"], ["accumulate_grad_batches=0"]),
        (["--trainer.barebones=true"], ["barebones=True", "--trainer.logger false"]),
        (["--trainer.gradient_clip_val=-1"], ["gradient_clip_val=-1", "null"]),
        (["--trainer.precision=foo"], ["trainer.precision=foo", "bf16-mixed"]),
        (["--model.optimizer.init_args.lr=-1"], ["learning rate: -1", "lr 3e-5"]),
        (["--config", "a: &a {b: *a}"], ["alias"]),
        (["--model.mixer.class_path=tabicl_linear.Nope"], ["model.mixer=tabicl_linear.Nope: no"]),
        (["--model.mixer=&a {b: *a}"], ["--model.mixer", "alias"]),
        (["--seed_everything=-1"], ["seed_everything=-1"]),
        (["--seed_everything=true"], ["seed_everything=True"]),
        (["--data.device=cuda", "--data.num_workers=1"], ["data.num_workers=0"]),
        (["--model.backend=fla"], ["backend='fla'", "torch"]),
        (["--checkpoint.every_n_steps=0"], ["every_n_steps=0"]),
        (["--trainer.strategy=ddpp"], ["trainer: ", "ddpp"]),
        (["--trainer.strategy=ddp_spawn"], ["trainer.strategy=ddp_spawn", "pickled", "=ddp."]),
        (["--trainer.accelerator=gpuu"], ["trainer: ", "gpuu", "cpu"]),
        (["--trainer.devices=two", "--trainer.accelerator=cpu"], ["trainer: ", "devices"]),
        (["--trainer.val_check_interval=0"], ["trainer.val_check_interval=0"]),
        (["--trainer.check_val_every_n_epoch=0"], ["check_val_every_n_epoch=0", "null"]),
        (["--trainer.limit_train_batches=0"], ["limit_train_batches=0", "number of batches"]),
        (["--trainer.limit_train_batches=0.5"], ["limit_train_batches=0.5", "no end"]),
        (["--trainer.overfit_batches=0.5"], ["overfit_batches=0.5", "no end"]),
        (["--trainer.max_epochs=0"], ["max_epochs=0", "-1"]),
        (["--rank_timeout_minutes=1"], ["rank_timeout_minutes=1.0", "trainer.strategy=ddp"]),
        (["--rank_timeout_minutes=0"], ["rank_timeout_minutes=0.0", "above 0"]),
        (
            [
                "--trainer.callbacks+=EarlyStopping",
                "--trainer.callbacks.monitor=val_loss",
            ],
            ["EarlyStopping: monitor=val_loss", "val/loss"],
        ),
        (
            [
                "--trainer.callbacks+=ModelCheckpoint",
                "--trainer.callbacks.monitor=loss",
            ],
            ["ModelCheckpoint: monitor=loss", "train/loss"],
        ),
        (
            [
                "--trainer.callbacks+=StochasticWeightAveraging",
                "--trainer.callbacks.swa_lrs=1e-3",
            ],
            ["StochasticWeightAveraging", "tabicl_linear.callbacks.weight_averaging.WeightAverage"],
        ),
        (["--trainer.callbacks+=EMAWeightAveraging"], ["weight_averaging.WeightAverage"]),
        (
            [
                "--trainer.callbacks+=GradientAccumulationScheduler",
                "--trainer.callbacks.scheduling={0: 1, 1: 2}",
            ],
            ["GradientAccumulationScheduler", "trainer.accumulate_grad_batches"],
        ),
        (
            ["--trainer.callbacks+=LearningRateFinder"],
            ["LearningRateFinder", "model.optimizer.init_args.lr"],
        ),
        (
            ["--trainer.callbacks+=BatchSizeFinder"],
            ["BatchSizeFinder", "data.shapes.batch_size"],
        ),
        (["--trainer.callbacks+=BackboneFinetuning"], ["BackboneFinetuning", "backbone"]),
        (
            [
                "--model.mixer=tabicl_linear.mixers.ridge.Ridge",
                "--model.readout=tabicl_linear.readouts.Causal",
            ],
            ["prefix reads", "RidgeRule", "tabicl_linear.readouts.FinalState"],
        ),
        (
            [
                "--model.mixer=tabicl_linear.mixers.softmax.Softmax",
                "--model.readout=tabicl_linear.readouts.Bidirectional",
            ],
            ["SoftmaxRule", "tabicl_linear.readouts.FinalState"],
        ),
        (
            ["--model.strategy.init_args.target=multi"],
            ["tabicl_linear.readouts.Causal", "single"],
        ),
    ],
)
def test_bad_input_is_one_line_exit_code_2_and_no_folder(fit, tmp_path, capfd, options, words):
    assert fit(*options) == 2
    # The line that says which kernels were taken is no complaint.
    said = capfd.readouterr().err.splitlines()
    lines = [line for line in said if " by cpp" not in line]
    assert len(lines) == 1
    assert lines[0].startswith("tabicl-linear fit: ")
    assert all(word in lines[0] for word in words), lines[0]
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            [
                "--trainer.max_epochs=1",
                "--trainer.limit_train_batches=3",
                "--trainer.check_val_every_n_epoch=1",
            ],
            ["`val_check_interval` (20)"],
        ),
        (
            ["--trainer.callbacks+=DeviceStatsMonitor", "--trainer.callbacks.cpu_stats=true"],
            ["psutil"],
        ),
    ],
)
def test_what_only_lightning_finds_out_is_one_line_and_no_folder(
    fit, tmp_path, capfd, monkeypatch, options, words
):
    """It is found after the trainer has said what devices there are."""
    monkeypatch.setattr("lightning.pytorch.accelerators.cpu._PSUTIL_AVAILABLE", False)
    assert fit(*options) == 2
    line = capfd.readouterr().err.splitlines()[-1]
    assert line.startswith("tabicl-linear fit: trainer: ")
    assert all(word in line for word in words), line
    assert not (tmp_path / "runs").exists()


def test_a_root_that_was_there_stays_and_hides_no_reason(fit, tmp_path, capfd):
    """As a link to a larger disk, which cannot be removed as a folder."""
    (tmp_path / "scratch").mkdir()
    (tmp_path / "runs").symlink_to("scratch")
    assert fit("--trainer.devices=0") == 2
    line = capfd.readouterr().err.splitlines()[-1]
    assert "devices" in line, line
    (tmp_path / "runs").unlink()
    (tmp_path / "scratch").rename(tmp_path / "runs")
    assert fit("--trainer.devices=0") == 2
    assert list((tmp_path / "runs").iterdir()) == []


@pytest.mark.parametrize("accelerator", ["gpu", "cuda"])
def test_an_accelerator_that_is_not_here_is_told_with_a_remedy(
    fit, tmp_path, capfd, monkeypatch, accelerator
):
    """As where a run of a cluster is resumed or validated on a machine without a GPU."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("torch.backends.mps.is_available", lambda: False)
    assert fit(f"--trainer.accelerator={accelerator}") == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert f"trainer.accelerator={accelerator}: PyTorch {torch.__version__} finds no GPU" in line
    assert "--trainer.accelerator cpu" in line
    assert not (tmp_path / "runs").exists()


def test_an_error_of_this_package_keeps_its_traceback(fit, monkeypatch):
    """Twin: only what Lightning itself raises is taken for bad input."""

    def broken(self, batch, batch_idx):
        raise ValueError("a defect")

    monkeypatch.setattr(InContextTask, "training_step", broken)
    with pytest.raises(ValueError, match="a defect"):
        fit()


def limited(arguments):
    """A command, after the size that files may have."""
    limit_files(int(arguments[0]))
    return main(arguments[1:])


class TestFilesThatCannotBeUsed:
    def refused(self, capfd, arguments, *words):
        capfd.readouterr()
        assert main(list(map(str, arguments))) == 2
        said = capfd.readouterr().err.splitlines()
        assert not any("Traceback" in line for line in said)
        assert said[-1].startswith(f"tabicl-linear {arguments[0]}: ")
        assert all(word in said[-1] for word in words), said[-1]

    def test_a_root_that_is_a_file(self, tiny, tmp_path, capfd):
        path = tmp_path / "file"
        path.touch()
        self.refused(capfd, ["fit", *tiny, "--trainer.default_root_dir", path], str(path), "file")

    def test_a_root_below_a_file(self, tiny, tmp_path, capfd):
        (tmp_path / "file").touch()
        path = tmp_path / "file" / "runs"
        self.refused(capfd, ["fit", *tiny, "--trainer.default_root_dir", path], str(path))

    def test_a_root_that_may_not_be_written_to(self, tiny, capfd):
        """Nobody may make folders there, not even root."""
        self.refused(capfd, ["fit", *tiny, "--trainer.default_root_dir", "/proc/runs"], "/proc")

    def test_a_root_whose_name_is_no_text(self, tiny, tmp_path, capfd):
        path = tmp_path / os.fsdecode(b"na\xefve")  # as an archive of another encoding has it
        self.refused(capfd, ["fit", *tiny, "--trainer.default_root_dir", path], "not UTF-8")
        assert not path.exists()

    def test_a_run_folder_that_cannot_be_written_to(self, fit, tmp_path, capfd):
        assert fit("--trainer.max_steps", 1) == 0
        last = tmp_path / "runs" / "version_0" / "last.ckpt"
        lock = last.with_name(LOCK)
        lock.unlink()
        lock.mkdir()
        self.refused(capfd, ["fit", "--ckpt_path", last], str(lock))

    def test_an_export_in_place_of_a_checkpoint(self, tmp_path, capfd):
        path = tmp_path / "model.safetensors"
        path.touch()
        words = "an export holds the weights alone", "Starting from other weights"
        self.refused(capfd, ["fit", "--ckpt_path", path], str(path), *words)

    def test_a_config_that_is_not_utf_8(self, tiny, tmp_path, capfd):
        path = tmp_path / "latin.yaml"
        path.write_bytes("name: Größe".encode("latin-1"))
        self.refused(capfd, ["fit", *tiny, "--config", path], str(path), "UTF-8", "--ckpt_path")

    def test_an_export_to_where_nothing_can_be_written(self, fit, capfd, tmp_path):
        assert fit("--trainer.max_steps", 1) == 0
        last = tmp_path / "runs" / "version_0" / "last.ckpt"
        self.refused(capfd, ["export", last, "/proc/m.safetensors"], "/proc/m.safetensors")

    def test_a_disk_that_fills_up(self, fit, forked, tmp_path):
        """As a limit on the size of files, which ends writing in the same way."""
        assert fit("--trainer.max_steps", 1) == 0
        last = tmp_path / "runs" / "version_0" / "last.ckpt"
        before = last.read_bytes()
        options = ["--ckpt_path", last, "--trainer.max_steps", 9]
        run = forked(limited, len(before) // 2, "fit", *options)
        assert run.wait() == 2, run.said()
        assert "Traceback" not in "".join(run.said())
        assert f"{last}: File too large" in run.said()[-1]
        assert last.read_bytes() == before
        assert not list(last.parent.glob(".*.partial"))

    def test_a_disk_that_is_full_at_once(self, fit, tmp_path, capfd, monkeypatch):
        def full(*_):
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr("tabicl_linear.cli.lock.os.pwrite", full)
        assert fit() == 2
        root = tmp_path / "runs"
        assert f"fit: {root / 'version_0'}: No space left" in capfd.readouterr().err
        assert not root.exists()

    def test_a_disk_that_is_full_before_the_first_checkpoint(self, tiny, forked, tmp_path):
        """Errors of writing name no file; those of TensorBoard come from a thread of its own."""
        root = tmp_path / "runs"
        options = ["--trainer.default_root_dir", root, "--checkpoint.every_n_steps", 1000]
        run = forked(limited, 10_000, "fit", *tiny, *options, "--trainer.max_steps", 60)
        assert run.wait() == 2, run.said()
        assert "Traceback" not in "".join(run.said())
        assert f"fit: {root / 'version_0'}: File too large; raise" in run.said()[-1]
        assert not root.exists()
