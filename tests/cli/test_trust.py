"""A checkpoint runs code of unknown packages only where its reader says so."""

import sys

import pytest
import torch

from tabicl_linear import load_model
from tabicl_linear.__main__ import main
from tabicl_linear.errors import ConfigError

ONE_STEP = ("--trainer.max_steps", 2, "--trainer.val_check_interval", 4)


class TestUnknownCode:
    @pytest.fixture
    def module(self, tmp_path, monkeypatch):
        """A mixer outside the package, whose import leaves a mark."""
        text = (
            "from pathlib import Path\n"
            "from tabicl_linear.mixers.delta import DeltaNet\n"
            "Path(__file__).with_name('imported').touch()\n"
            "class Mine(DeltaNet):\n"
            "    def __init__(self, dim, num_heads, **options):\n"
            "        super().__init__(dim, num_heads, **options)\n"
        )
        (tmp_path / "outside_module.py").write_text(text)
        monkeypatch.syspath_prepend(tmp_path)
        yield tmp_path / "imported"
        sys.modules.pop("outside_module", None)

    def test_it_is_imported_on_trust_alone(self, fit, load, module, tmp_path, capfd):
        mixer = ("--model.mixer", "outside_module.Mine", "--model.mixer.decay_constant", 7.0)
        assert fit(*mixer, *ONE_STEP) == 0
        assert module.exists()
        module.unlink()
        del sys.modules["outside_module"]
        last = tmp_path / "runs" / "version_0" / "last.ckpt"
        assert "trust_code" not in load(last)["config"]
        resume = ("--ckpt_path", last, "--trainer.max_steps", 3)
        capfd.readouterr()
        for verb in ("fit", "validate", "test"):
            assert main([verb, "--ckpt_path", str(last)]) == 2
            line = capfd.readouterr().err.splitlines()[-1]
            assert "model.mixer" in line
            assert "trust_code" in line
        with pytest.raises(ConfigError, match="trust_code"):
            load_model(last)
        assert not module.exists()
        assert fit(*resume, "--trust_code", "true", root=None, base=[]) == 0
        assert module.exists()
        # A constructor that passes options on loads as it was built.
        assert load_model(last, trust_code=True).backbone.layers()[0].mixer.write_rate is not None

    @pytest.mark.parametrize(
        "place", ["mixer", "callbacks", "prior"], ids=["as a text", "in a list", "nested"]
    )
    def test_wherever_a_class_may_stand(self, fit, load, module, tmp_path, place):
        assert fit(*ONE_STEP) == 0
        last = tmp_path / "runs" / "version_0" / "last.ckpt"
        checkpoint = load(last)
        config, path = checkpoint["config"], "outside_module.Mine"
        if place == "mixer":
            config["model"]["mixer"] = path
        elif place == "callbacks":
            config["trainer"]["callbacks"] = [{"class_path": path}]
        else:
            config["data"]["prior"] = {"class_path": path, "init_args": {}}
        config["trust_code"] = True
        torch.save(checkpoint, last)
        assert fit("--ckpt_path", last, root=None, base=[]) == 2
        assert not module.exists()
