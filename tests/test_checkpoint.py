"""From files to models: round trips, overrides, and every kind of file that is not one."""

import dataclasses
from fractions import Fraction
from pathlib import Path

import pytest
import torch
from contract.variants import SMALL
from safetensors.torch import save_file
from tolerances import RMS, assert_close

from tabicl_linear import RandomFeatureRidge, build_task
from tabicl_linear import recipe as recipes
from tabicl_linear.checkpoint import export, load_model
from tabicl_linear.errors import CheckpointError, ConfigError
from tabicl_linear.shipped import checkpoint_path

RECIPE = {
    "mixer": {
        "class_path": "tabicl_linear.mixers.delta.DeltaNet",
        "init_args": {"decay_constant": 7.0},
    },
    "readout": {"class_path": "tabicl_linear.readouts.FinalState"},
    "strategy": {
        "class_path": "tabicl_linear.strategies.combined.Combined",
        "init_args": {"target": "single"},
    },
    "architecture": dataclasses.asdict(SMALL),
}
FIRST_LOGITS = [
    [0.11345823109149933, -0.25067439675331116, -0.06089767813682556],
    [-0.05003790557384491, -0.18551047146320343, -0.012599006295204163],
]
"""Of the first and last row, by the code of that version."""
PROVENANCE = {"git_commit": None, "trained_rows": [4, 50], "steps": 3}


@pytest.fixture
def checkpoint(tmp_path):
    """A file as `tabicl-linear fit` writes it, and the model in it."""
    model = recipes.build(recipes.extract(RECIPE))
    path = tmp_path / "last.ckpt"
    torch.save(
        {
            "state_dict": {f"model.{k}": v for k, v in model.state_dict().items()},
            "hyper_parameters": {**RECIPE, "optimizer": {}, "_instantiator": "x"},
            "provenance": PROVENANCE,
        },
        path,
    )
    return path, model


def _logits(model):
    g = torch.Generator().manual_seed(0)
    x, y = torch.randn(1, 20, 5, generator=g), torch.arange(20)[None] % 3
    with torch.no_grad():
        return model.predict(model.fit(x, y), x)


def test_an_export_is_known_whatever_its_name(checkpoint, tmp_path):
    export(checkpoint[0], tmp_path / "model.safetensors")
    renamed = (tmp_path / "model.safetensors").rename(tmp_path / "model.bin")
    assert torch.equal(_logits(load_model(renamed)), _logits(load_model(checkpoint[0])))


@pytest.mark.parametrize("name", ["churn.state", "churn.safetensors"])
def test_a_fitted_classifier_is_no_model(tmp_path, name):
    RandomFeatureRidge(trees=False).fit([[1], [2], [3]], [0, 1, 1]).save(tmp_path / name)
    with pytest.raises(CheckpointError, match=r"holds a fitted classifier .*Classifier.load\("):
        load_model(tmp_path / name)


def test_checkpoint_and_export_give_the_same_model(checkpoint, tmp_path):
    path, model = checkpoint
    loaded = load_model(path)
    assert torch.equal(_logits(loaded), _logits(model))
    assert loaded.provenance == PROVENANCE
    assert not loaded.training
    export(path, tmp_path / "m.safetensors")
    exported = load_model(tmp_path / "m.safetensors")
    assert torch.equal(_logits(exported), _logits(model))
    assert exported.provenance == PROVENANCE
    assert sorted(p.name for p in tmp_path.iterdir()) == ["last.ckpt", "m.safetensors"]
    export(path, tmp_path / "again.safetensors")
    first, again = ((tmp_path / f"{name}.safetensors").read_bytes() for name in ("m", "again"))
    assert first == again


def test_an_export_of_the_first_version_is_the_same_model():
    """Written when the first default weights were: no checksum, none of the later options."""
    model = load_model(Path(__file__).parent / "golden" / "first_format.safetensors")
    assert model.provenance == {"trained_rows": [4, 50], "steps": 3}
    x = torch.linspace(-2, 2, 24).sin().view(1, 6, 4)
    with torch.no_grad():
        result = model.predict(model.fit(x, torch.tensor([[0, 1, 2, 0, 1, 2]])), x)
    assert_close(result[0, ::5], torch.tensor(FIRST_LOGITS), RMS[torch.float32])


def test_loading_leaves_global_random_state_and_threads_alone(checkpoint):
    state, threads = torch.get_rng_state(), torch.get_num_threads()
    load_model(checkpoint[0])
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_num_threads() == threads


def test_a_model_that_is_loaded_in_inference_mode_can_be_trained(checkpoint):
    """And its states be optimised, as `refine=True` does: tensors of that mode cannot."""
    path, _ = checkpoint
    with torch.inference_mode():
        model = load_model(path)
    assert not any(tensor.is_inference() for tensor in model.state_dict().values())


def test_the_recipe_survives_a_round_trip(checkpoint, tmp_path):
    export(checkpoint[0], tmp_path / "m.safetensors")
    from tabicl_linear.checkpoint import read

    assert read(tmp_path / "m.safetensors").recipe == read(checkpoint[0]).recipe


def test_decay_can_be_added_for_evaluation_alone(checkpoint):
    path, model = checkpoint
    other = load_model(path, ["model.mixer.init_args.decay_constant=0.5"])
    assert not torch.equal(_logits(other), _logits(model))
    same = load_model(path, ["model.mixer.init_args.decay_constant=7.0"])
    assert torch.equal(_logits(same), _logits(model))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model.mixer.init_args.decay=1", "has no argument decay"),
        ("model.mixer.decay_constant=1", "does not name a part"),
        ("mixer.init_args.decay_constant=1", "does not name a part"),
        ("model.mixer.init_args.decay_constant", "does not name a part"),
        ("model.architecture.width=3", "width"),
        ("model.readout.class_path=tabicl_linear.readouts.Nope", "no subclass of Readout"),
        ("model.readout.class_path=tabicl_linear.mixers.delta.DeltaNet", "no subclass of Readout"),
        ("model.mixer.class_path=os.path.join", "trust_code"),
        ("model.mixer.init_args.decay_constant=&a {b: *a}", "inside of what it stands for"),
        ("model.mixer.init_args.decay_constant=&a [*a]", "inside of what it stands for"),
        ("model.mixer.class_path=tabicl_linear.nope.X", "cannot be imported"),
    ],
)
def test_overrides_that_do_not_exist_are_refused(checkpoint, text, message):
    with pytest.raises(ConfigError, match=message):
        load_model(checkpoint[0], [text])


@pytest.mark.parametrize("make", [build_task, lambda overrides: load_model("default", overrides)])
def test_overrides_that_are_one_text_are_refused(make):
    with pytest.raises(ConfigError, match=r"overrides='model\.a=1' is one text; give a list"):
        make(overrides="model.a=1")


def test_weights_of_the_package_are_loaded_by_name():
    by_name, by_path = load_model("streaming"), load_model(checkpoint_path("streaming"))
    assert by_name.provenance == by_path.provenance
    pairs = zip(by_name.parameters(), by_path.parameters(), strict=True)
    assert all(torch.equal(*pair) for pair in pairs)


def test_an_export_may_keep_overrides(checkpoint, tmp_path):
    exported = tmp_path / "m.safetensors"
    override = "model.mixer.init_args.decay_constant=256.0"
    export(checkpoint[0], exported, [override])
    expected = _logits(load_model(checkpoint[0], [override]))
    assert torch.equal(_logits(load_model(exported)), expected)
    assert not torch.equal(_logits(load_model(checkpoint[0])), expected)


def test_an_export_with_overrides_that_do_not_fit_leaves_nothing(checkpoint, tmp_path):
    with pytest.raises(CheckpointError, match="with these overrides"):
        export(checkpoint[0], tmp_path / "m.safetensors", ["model.architecture.dim=64"])
    assert not (tmp_path / "m.safetensors").exists()


def test_overrides_that_change_shapes_are_refused(checkpoint):
    with pytest.raises(CheckpointError, match=r"do not fit .* with these overrides"):
        load_model(checkpoint[0], ["model.architecture.hidden_dim=9"])


def test_an_unknown_backend_is_refused(checkpoint):
    with pytest.raises(ConfigError, match="'cuda'"):
        load_model(checkpoint[0], backend="cuda")


@pytest.mark.parametrize("suffix", ["ckpt", "safetensors"])
@pytest.mark.parametrize(
    "content", [b"", b"not a checkpoint", b"\x80\x02}q\x00.", b"a,b,y\n1,2,0\n3,4,1\n"]
)
def test_files_that_are_no_checkpoint_are_refused(tmp_path, suffix, content):
    path = tmp_path / f"bad.{suffix}"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="bad"):
        load_model(path)


def test_truncated_missing_and_foreign_files_are_refused(checkpoint, tmp_path):
    path, _ = checkpoint
    cut = tmp_path / "cut.ckpt"
    cut.write_bytes(path.read_bytes()[:-2000])
    with pytest.raises(CheckpointError, match="cut"):
        load_model(cut)
    with pytest.raises(CheckpointError, match="There is no checkpoint file"):
        load_model(tmp_path / "none.ckpt")
    torch.save({"weights": torch.ones(1)}, tmp_path / "foreign.ckpt")
    with pytest.raises(CheckpointError, match="foreign"):
        load_model(tmp_path / "foreign.ckpt")
    save_file({"w": torch.ones(1)}, tmp_path / "foreign.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match="format 'pt'"):
        load_model(tmp_path / "foreign.safetensors")


@pytest.mark.parametrize(
    "parts",
    [
        {"hyper_parameters": None},
        {"hyper_parameters": RECIPE | {"architecture": None}},
        {"hyper_parameters": RECIPE | {"mixer": {"class_path": 5}}},
        {"state_dict": None},
        {"state_dict": {1: torch.ones(1)}},
        {"provenance": 3},
    ],
)
def test_checkpoints_of_the_wrong_shape_are_refused(tmp_path, parts):
    whole = {"state_dict": {}, "hyper_parameters": RECIPE, "provenance": {}}
    torch.save(whole | parts, tmp_path / "odd.ckpt")
    with pytest.raises(CheckpointError):
        load_model(tmp_path / "odd.ckpt")


@pytest.mark.parametrize("recipe", ["{", "3", "[]", "null"])
def test_exports_that_do_not_describe_a_model_are_refused(tmp_path, recipe):
    metadata = {"format": "tabicl_linear/1", "recipe": recipe, "provenance": "{}"}
    save_file({"w": torch.ones(1)}, tmp_path / "odd.safetensors", metadata=metadata)
    with pytest.raises(CheckpointError):
        load_model(tmp_path / "odd.safetensors")


def test_override_values_may_be_written_without_a_dot(checkpoint):
    model = load_model(checkpoint[0], ["model.architecture.blocks.norm_eps=1e-3"])
    assert model.architecture.blocks.norm_eps == 1e-3


@pytest.mark.parametrize("text", ["model.architecture.depth=1.5", "model.architecture.depth={"])
def test_override_values_of_another_type_are_refused(checkpoint, text):
    with pytest.raises(ConfigError):
        load_model(checkpoint[0], [text])


def test_a_pickle_that_would_run_code_is_refused(tmp_path):
    torch.save({"state_dict": {}, "hyper_parameters": Fraction(1, 2)}, tmp_path / "code.ckpt")
    with pytest.raises(CheckpointError, match="code"):
        load_model(tmp_path / "code.ckpt")


@pytest.mark.parametrize("output", ["m.pt", "no/such/m.safetensors"])
def test_an_export_that_cannot_be_written_leaves_nothing(checkpoint, tmp_path, output):
    with pytest.raises(CheckpointError):
        export(checkpoint[0], tmp_path / output)
    assert [p.name for p in tmp_path.iterdir()] == ["last.ckpt"]


def test_an_export_onto_a_folder_is_refused_and_a_file_has_the_usual_rights(checkpoint, tmp_path):
    (tmp_path / "folder.safetensors").mkdir()
    with pytest.raises(CheckpointError, match="is a folder"):
        export(checkpoint[0], tmp_path / "folder.safetensors")
    export(checkpoint[0], tmp_path / "m.safetensors")
    (tmp_path / "plain").touch()
    rights = [(tmp_path / name).stat().st_mode for name in ("m.safetensors", "plain")]
    assert rights[0] == rights[1]
