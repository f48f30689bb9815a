"""Checkpoints and exports: from a file to an `InContextModel`, without Lightning.

A Lightning checkpoint holds weights, recipe and the state of training; an export (safetensors)
holds weights, recipe and provenance. Both are read without running code from the file.
"""

import json
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from tabicl_linear import recipe as recipes
from tabicl_linear import tensor_file
from tabicl_linear.backends.choice import Backend, check
from tabicl_linear.checkpoint_file import load_checkpoint
from tabicl_linear.errors import CheckpointError, ConfigError, one_line
from tabicl_linear.files import not_written
from tabicl_linear.former_options import description
from tabicl_linear.model import InContextModel
from tabicl_linear.shipped import checkpoint_path
from tabicl_linear.tensor_file import checksum, holds_tensors

_OF_STATES = "tabicl_linear.state/"
"""Prefix of the format of files written by a classifier's `save`."""
_FORMAT = "tabicl_linear/2"
_WITHOUT_CHECKSUM = "tabicl_linear/1"
"""Format of earlier exports without a checksum, which are read unchecked."""
_REMEDY = "name a .ckpt of a run folder or a .safetensors export"
_PREFIX = "model."
"""Prefix of the `InContextModel`'s parameters in the LightningModule."""


class Contents(NamedTuple):
    """The content of a checkpoint or export that describes a model.

    Attributes:
        recipe: How to build the model.
        weights: Its parameters by name.
        provenance: Git commit, prior, trained range of rows, steps.
    """

    recipe: recipes.Recipe
    weights: dict[str, Tensor]
    provenance: dict[str, Any]


@torch.inference_mode(False)  # tensors made in it can be neither trained nor optimised on later
def load_model(
    path: str | Path,
    overrides: Sequence[str] = (),
    *,
    backend: Backend = "auto",
    trust_code: bool = False,
) -> InContextModel:
    """Load a model for prediction, on the CPU, in evaluation mode.

    Args:
        path: Lightning checkpoint or safetensors export, or the name of weights of the package:
            "default", "streaming".
        overrides: Changes to the recipe that keep the parameters' shapes, such as
            "model.mixer.init_args.decay_constant=256".
        backend: Which kernels compute the mixers: plain PyTorch (torch), the C++ kernels on a
            CPU (cpp), flash-linear-attention on CUDA (fla), or the fastest that runs where
            the model is put (auto).
        trust_code: Also import classes outside tabicl_linear that the file names.

    Raises:
        CheckpointError: The file is missing, corrupt or foreign, or its weights do not fit.
        ConfigError: An override does not exist, the backend cannot run here, or the file names
            classes that need `trust_code`.
    """
    check(backend)
    path = checkpoint_path(path)
    contents = _trusted(path, trust_code)
    recipe = recipes.override(contents.recipe, overrides)
    # Built with weights rather than on the meta device, since a file need not hold everything:
    # constructors compute fixed decays and rotary tables, for example.
    with torch.device("cpu"), _generators_kept():
        model = recipes.build(recipe, backend=backend, trust_code=trust_code)
        built_in = next(model.parameters()).dtype
        try:
            model.load_state_dict(contents.weights, assign=True)
        except RuntimeError as error:
            raise CheckpointError(
                f"{path}: the weights do not fit the model it describes"
                f"{' with these overrides' if overrides else ''}: {one_line(error)}"
            ) from error
        dtype = next(model.parameters()).dtype
        if dtype != built_in:  # also convert buffers that the file does not hold
            model.to(dtype)
    model.provenance = contents.provenance
    return model.eval()


def read(path: str | Path) -> Contents:
    """Read a checkpoint or export.

    Raises:
        CheckpointError: The file is missing, corrupt or foreign.
    """
    path = Path(path)
    if not path.is_file():
        raise CheckpointError(f"There is no checkpoint file {path}; {_REMEDY}.")
    is_export = path.suffix == ".safetensors" or holds_tensors(path)
    return _read_export(path) if is_export else _read_lightning(path)


def _trusted(path: str | Path, trust_code: bool) -> Contents:
    """Read a file; `ConfigError` with its path if it names classes that need `trust_code`."""
    contents = read(path)
    try:
        if not trust_code:
            recipes.check_trust(contents.recipe)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error
    return contents


def export(
    checkpoint: str | Path,
    output: str | Path,
    overrides: Sequence[str] = (),
    *,
    dtype: torch.dtype | None = None,
    trust_code: bool = False,
) -> None:
    """Write the parts of a checkpoint that prediction needs to a safetensors file.

    Args:
        checkpoint: Lightning checkpoint or safetensors export.
        output: The file to write.
        overrides: Changes to the recipe, as in `load_model`, to store in the file, such as
            "model.architecture.ridge_inputs.num_trees=24".
        dtype: Dtype of the weights in the file, such as torch.float16 for half the size; None for
            that of the checkpoint. `load_model` returns a model of this dtype.
        trust_code: Accept a checkpoint that names classes outside tabicl_linear.

    Raises:
        CheckpointError: The checkpoint cannot be read, its weights do not fit the recipe with the
            overrides, or the output cannot be written.
        ConfigError: An override does not exist, or the checkpoint names classes that need
            `trust_code`.
    """
    output = Path(output)
    if output.suffix != ".safetensors":
        raise CheckpointError(f"The export {output} must end in .safetensors.")
    if not output.parent.is_dir():
        raise CheckpointError(f"The folder {output.parent} of the export does not exist; make it.")
    if output.is_dir():
        raise CheckpointError(f"The export {output} is a folder; give a file name in it.")
    contents = _trusted(checkpoint, trust_code)
    if overrides:
        load_model(checkpoint, overrides, trust_code=trust_code)  # raises if they do not fit
        contents = contents._replace(recipe=recipes.override(contents.recipe, overrides))
    metadata = {
        "format": _FORMAT,
        "recipe": json.dumps(contents.recipe, sort_keys=True),
        "provenance": json.dumps(contents.provenance, sort_keys=True),
    }
    weights = {
        name: tensor.to(dtype if tensor.is_floating_point() else None).contiguous()
        for name, tensor in contents.weights.items()
    }
    try:
        tensor_file.write(output, weights, metadata)
    except OSError as error:
        raise CheckpointError(not_written(f"The export {output}", error)) from error


def identity(model: InContextModel) -> str:
    """SHA-256 of everything that a model's predictions depend on, apart from its device.

    That is its weights and buffers, and the classes and settings of its parts.
    """
    about = {name: _settings(part) for name, part in model.named_modules()}
    about["architecture"] = description(model.architecture)
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    return checksum(tensors, about)


def _settings(part: nn.Module) -> str:
    """The class of a module, with its public attributes that are numbers or strings."""
    simple = {
        name: value
        for name, value in vars(part).items()
        if type(value) in (bool, int, float, str) and not name.startswith("_")
    }
    simple.pop("training")
    return f"{type(part).__module__}.{type(part).__qualname__} {sorted(simple.items())}"


@contextmanager
def _generators_kept() -> Iterator[None]:
    """Restore the global random generators of PyTorch, NumPy and Python after the block."""
    of_python, of_numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        random.setstate(of_python)
        np.random.set_state(of_numpy)  # noqa: NPY002


def _read_export(path: Path) -> Contents:
    try:
        weights, metadata = tensor_file.read(path)
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path} is not a readable safetensors file: {error}.") from error
    if metadata.get("format", "").startswith(_OF_STATES):
        raise CheckpointError(
            f"{path} holds a fitted classifier and no model: load it as "
            "TabICLLinearClassifier.load(path), and predict."
        )
    if metadata.get("format") not in (_FORMAT, _WITHOUT_CHECKSUM):
        raise CheckpointError(
            f"{path} was not written by `tabicl-linear export` of this version: format "
            f"{metadata.get('format')!r}, expected {_FORMAT!r}."
        )
    if metadata["format"] == _FORMAT and not tensor_file.is_whole(weights, metadata):
        raise CheckpointError(
            f"{path} is damaged: its checksum does not match its content; export again."
        )
    try:
        recipe, provenance = (json.loads(metadata[key]) for key in ("recipe", "provenance"))
        return Contents(recipes.extract(recipe), weights, dict(provenance))
    except (KeyError, TypeError, AttributeError, json.JSONDecodeError) as error:
        raise CheckpointError(
            f"{path} does not hold a readable description of its model; export again."
        ) from error


def _read_lightning(path: Path) -> Contents:
    checkpoint = load_checkpoint(path, _REMEDY)
    if not {"state_dict", "hyper_parameters"} <= checkpoint.keys():
        raise CheckpointError(f"{path} is not a checkpoint of `tabicl-linear fit`; {_REMEDY}.")
    try:
        weights = {
            name.removeprefix(_PREFIX): tensor
            for name, tensor in checkpoint["state_dict"].items()
            if name.startswith(_PREFIX)
        }
        recipe = recipes.extract(checkpoint["hyper_parameters"])
        return Contents(recipe, weights, dict(checkpoint.get("provenance", {})))
    except CheckpointError:
        raise
    except (TypeError, AttributeError, ValueError) as error:
        raise CheckpointError(f"{path} is not a checkpoint of `tabicl-linear fit`.") from error
