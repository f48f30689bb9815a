"""Checkpoints that are damaged, of another program, or not whole."""

import pytest
import torch


class TestForeignCheckpoints:
    def refused(self, fit, path, capfd, *words):
        assert fit("--ckpt_path", path) == 2
        line = capfd.readouterr().err.splitlines()[-1]
        assert line.startswith("tabicl-linear fit: --ckpt_path")
        assert str(path) in line
        assert all(word in line for word in words), line

    def test_noise(self, fit, tmp_path, capfd):
        path = tmp_path / "noise.ckpt"
        path.write_bytes(b"no checkpoint at all" * 50)
        self.refused(fit, path, capfd, "damaged")

    def test_cut_off(self, fit, tmp_path, capfd):
        assert fit("--trainer.max_steps", 1) == 0
        path = tmp_path / "cut.ckpt"
        path.write_bytes((tmp_path / "runs" / "version_0" / "last.ckpt").read_bytes()[:5000])
        self.refused(fit, path, capfd, "damaged")
        assert not (tmp_path / "runs" / "version_1").exists()

    def test_another_program_s(self, fit, tmp_path, capfd):
        path = tmp_path / "other.ckpt"
        torch.save({"state_dict": {}, "pytorch-lightning_version": "2.6.6"}, path)
        self.refused(fit, path, capfd, "not a checkpoint of this package", "provenance")

    def test_a_plain_tensor(self, fit, tmp_path, capfd):
        path = tmp_path / "tensor.ckpt"
        torch.save(torch.zeros(3), path)
        self.refused(fit, path, capfd, "not a checkpoint of this package")

    def test_one_that_would_run_code(self, fit, tmp_path, capfd):
        path = tmp_path / "code.ckpt"
        torch.save({"config": print}, path)
        self.refused(fit, path, capfd, "cannot be read")


@pytest.mark.parametrize(
    "key",
    ["loops", "state_dict", "optimizer_states", "lr_schedulers", "callbacks", "PriorDataModule"],
)
@pytest.mark.parametrize("change", ["gone", "empty", "odd"])
def test_a_checkpoint_that_is_not_whole_is_refused(fit, load, kept, tmp_path, capfd, key, change):
    checkpoint = load(kept)
    if change == "gone":
        del checkpoint[key]
    elif change == "empty":
        checkpoint[key] = type(checkpoint[key])()
    else:
        checkpoint[key] = {"other": 3} if key != "state_dict" else {"w": torch.ones(1)}
    path = tmp_path / "odd.ckpt"
    torch.save(checkpoint, path)
    capfd.readouterr()
    assert fit("--ckpt_path", path, "--trainer.max_steps", 5, base=[]) == 2
    said = capfd.readouterr().err.splitlines()
    assert not any("Traceback" in line for line in said)
    assert said[-1].startswith("tabicl-linear fit: ")
