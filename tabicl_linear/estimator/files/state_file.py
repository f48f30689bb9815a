"""Writes and reads fitted classifiers: safetensors files with a JSON header, checked when read.

A file holds the states, what was learnt about the columns, and the classes. It holds no training
rows, except in `Fitted.held` and in states of trees that can grow. It names the model and
identifies it by a checksum of its weights, but does not store it.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from tabicl_linear import tensor_file
from tabicl_linear._version import __version__
from tabicl_linear.checkpoint import identity
from tabicl_linear.errors import CheckpointError, ConfigError, DataError
from tabicl_linear.estimator.files.records import Packer, Unpacker
from tabicl_linear.estimator.fitted import Fitted
from tabicl_linear.estimator.learners import pretrained
from tabicl_linear.files import not_written
from tabicl_linear.model import InContextModel
from tabicl_linear.types import Tensor

FORMAT = "tabicl_linear.state/3"
"""The number rises when one version could misread files of another. Records that a version does not
know raise an error anyway."""
DTYPES = (torch.float32, torch.float64)


def write(kind: str, arguments: Mapping[str, Any], fitted: Fitted, path: Path) -> None:
    """Write a fitted classifier to a file, completely or not at all.

    `kind` is the name of its class, and `arguments` are those of its constructor.

    Raises:
        DataError: The file cannot be written, or an argument is not plain data.
    """
    packer = Packer()
    parameters = {name: value for name, value in arguments.items() if name != "device"}
    model = parameters.get("model")
    if isinstance(model, InContextModel):
        parameters.pop("model")
    elif model is not None:
        parameters["model"] = os.fspath(model)
    content = {
        "parameters": packer.pack(parameters, "the constructor"),
        "fitted": packer.pack(fitted, "the classifier"),
    }
    metadata = {
        "format": FORMAT,
        "version": __version__,
        "class": kind,
        "model": str(parameters.get("model", "")),
        "model_sha256": json.dumps([identity(packer.model)] if packer.model else []),
        "model_dtype": _dtype(packer.model) if packer.model else "",
        "content": json.dumps(content),
    }
    try:
        tensor_file.write(path, packer.tensors, metadata)
    except OSError as error:
        raise DataError(not_written(str(path), error)) from error


def read(
    path: Path,
    kind: str,
    model: str | os.PathLike[str] | InContextModel | None,
    *,
    device: torch.device,
    dtype: torch.dtype | None,
) -> tuple[dict[str, Any], Fitted]:
    """Read what `write` wrote.

    Args:
        path: The file.
        kind: Name of the class that the file should hold.
        model: The model that the classifier was fitted with, or its path; None takes the model that
            the file names.
        device: Where to put the model and the states.
        dtype: The dtype of the model and the states; None takes that in which they were saved.

    Returns:
        The arguments of the classifier's constructor, except the device and a model that was given
        as an object, and the fitted value.

    Raises:
        CheckpointError: The file is missing, damaged or not of this kind and version, or the model
            is not the one that has read the states.
        ConfigError: The dtype is not supported.
    """
    if dtype is not None and dtype not in DTYPES:
        raise ConfigError(f"dtype={dtype}: give torch.float32 or torch.float64, or leave it out.")
    tensors, metadata = _read(path)
    _check(path, kind, metadata, tensors)
    of_states = _model_of_states(path, metadata, model)
    if of_states is not None:
        of_states = of_states.to(device=device, dtype=dtype)
    unpacker = Unpacker(tensors, of_states, device, dtype)
    try:
        content = json.loads(metadata["content"])
        parameters, fitted = (unpacker.unpack(content[part]) for part in ("parameters", "fitted"))
    except (KeyError, TypeError, ValueError, AttributeError) as error:  # also CheckpointError
        raise CheckpointError(
            f"{path} was written by tabicl-linear {metadata['version']} and this is {__version__}: "
            f"{error}. Load it with that version, or fit and save again."
        ) from error
    return parameters, fitted


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    if not path.is_file():
        raise CheckpointError(f"There is no file {path}; name a file that `save` has written.")
    try:
        tensors, metadata = tensor_file.read(path)
    except (SafetensorError, OSError) as error:
        raise CheckpointError(
            f"{path} is damaged or not a file that `save` has written ({error}); save again."
        ) from error
    # Copied, since tensors of the file are at any byte of its map, and would change with it.
    return {name: tensor.clone() for name, tensor in tensors.items()}, metadata


def _model_of_states(
    path: Path,
    metadata: Mapping[str, str],
    model: str | os.PathLike[str] | InContextModel | None,
) -> InContextModel | None:
    """The model that has read the states, in the dtype of its checksum; None without a model."""
    digests = json.loads(metadata["model_sha256"])
    if not digests:
        return None
    name = metadata["model"]
    candidate = _named_model(path, name) if model is None else pretrained.load(model)
    dtypes = {str(dtype): dtype for dtype in DTYPES}
    dtype = dtypes.get(metadata.get("model_dtype", ""))
    if dtype is not None and _dtype(candidate) != str(dtype):
        candidate = candidate.to(dtype)
    digest = identity(candidate)
    if [digest] != digests:
        raise CheckpointError(
            f"{path} was fitted with the model of checksum {digests[0][:12]} "
            f"({name or 'given as an object'}), and this is the model of checksum {digest[:12]}: "
            "give that model as `load(path, model=...)`, or fit again."
        )
    return candidate


def _named_model(path: Path, name: str) -> InContextModel:
    """The model that the file names."""
    if not name:
        raise CheckpointError(
            f"{path} was fitted with a model that was given as an object: give it again, "
            "`load(path, model=MODEL)`."
        )
    try:
        return pretrained.load(name)
    except CheckpointError as error:
        raise CheckpointError(
            f"{path} was fitted with the model {name!r}, which cannot be read here: give its place "
            f"as `load(path, model=PATH)`. {error}"
        ) from error


def _dtype(model: InContextModel) -> str:
    """The dtype of a model's weights."""
    return str(next(model.parameters()).dtype)


def _check(
    path: Path, kind: str, metadata: Mapping[str, str], tensors: Mapping[str, Tensor]
) -> None:
    """Raise `CheckpointError` for a file that cannot be read, with the reason."""
    tag = metadata.get("format", "")
    if tag.partition("/")[0] == "tabicl_linear":
        raise CheckpointError(
            f"{path} holds the weights of a model and no fitted state: pass it as `model` and fit."
        )
    if tag.partition("/")[0] != FORMAT.partition("/")[0]:
        raise CheckpointError(f"{path} is not a file that the `save` of a classifier has written.")
    if tag != FORMAT:
        raise CheckpointError(
            f"{path} has format {tag}, written by tabicl-linear {metadata.get('version')}, and "
            f"this version reads {FORMAT}: load it with that version, or fit and save again."
        )
    if not tensor_file.is_whole(tensors, metadata):
        raise CheckpointError(
            f"{path} is damaged: its checksum does not match its content; save again, or copy it "
            "again."
        )
    if metadata["class"] != kind:
        raise CheckpointError(
            f"{path} holds a {metadata['class']}: load it with {metadata['class']}.load."
        )
