"""Turns fitted objects into plain data, a JSON tree and named tensors, and back, without pickle.

A fitted classifier consists of numbers, texts, arrays, containers and records (dataclasses, named
tuples and plain classes of this package). Each becomes JSON, which refers to arrays and tensors by
name. Reading makes instances only of the classes that have a tag (`schema`), and runs nothing that
a file names.
"""

import dataclasses
import inspect
import math
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from datetime import date, datetime, time
from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import torch

from tabicl_linear.errors import CheckpointError, DataError
from tabicl_linear.estimator.files.schema import KINDS, LEARNERS, RECORDS, TAGS
from tabicl_linear.kernels.state import map_tensors
from tabicl_linear.model import InContextModel, InContextState
from tabicl_linear.types import Tensor

_KIND = "is"
"""Key in a JSON object that says what it stands for."""
_Read = Callable[["Unpacker", Any], Any]
_CELLS: Mapping[type, tuple[str, Callable[[Any], str], Callable[[str], Any]]] = {
    date: ("date", date.isoformat, date.fromisoformat),
    datetime: ("datetime", datetime.isoformat, datetime.fromisoformat),
    time: ("time", time.isoformat, time.fromisoformat),
    pd.Timestamp: ("timestamp", pd.Timestamp.isoformat, pd.Timestamp),
    Decimal: ("decimal", str, Decimal),
    bytes: ("bytes", bytes.hex, bytes.fromhex),
    type(pd.NaT): ("not_a_time", str, lambda _: pd.NaT),
    type(pd.NA): ("not_available", str, lambda _: pd.NA),
}
"""Types of objects in cells of tables: their name in files, and how to write and read them."""


@dataclass
class Packer:
    """Turns objects into JSON.

    Attributes:
        tensors: The tensors and arrays packed so far, by the names that the JSON refers to.
        model: The model, once it has been packed; there is only one, as all members share it.
    """

    tensors: dict[str, Tensor] = field(default_factory=dict)
    model: InContextModel | None = None

    def pack(self, value: Any, where: str) -> Any:
        """The JSON of a value, which messages call `where`; pandas indexes and series become lists.

        Raises:
            DataError: It is, or holds, something that is not plain data.
        """
        if value is None or type(value) in (bool, int, str):
            return value
        if type(value) is float:
            return value if math.isfinite(value) else {_KIND: "float", "text": repr(value)}
        if type(value) in _CELLS:
            kind, text, _ = _CELLS[type(value)]
            return {_KIND: kind, "text": text(value)}
        if type(value) is list:
            return self._items(value, where)
        if type(value) in (tuple, set, frozenset):
            return {_KIND: type(value).__name__, "items": self._items(value, where)}
        if isinstance(value, Mapping):
            pairs = [
                [self.pack(k, where), self.pack(v, f"{where}[{k!r}]")] for k, v in value.items()
            ]
            return {_KIND: "dict", "items": pairs}
        if isinstance(value, Tensor):
            return {_KIND: "tensor", "name": self._keep(value.detach().cpu())}
        if isinstance(value, np.ndarray | np.generic):
            return self._array(value, where)
        if isinstance(value, pd.Index | pd.Series):
            return self._items(value.tolist(), where)
        if isinstance(value, pd.DataFrame):
            return self._frame(value, where)
        return self._record(value, where)

    def _items(self, values: Any, where: str) -> list[Any]:
        return [self.pack(item, f"{where}[{i}]") for i, item in enumerate(values)]

    def _keep(self, tensor: Tensor) -> str:
        name = f"{len(self.tensors):06d}"
        # A copy, since a view of a larger tensor would be stored with all of that, or refused.
        self.tensors[name] = tensor.clone(memory_format=torch.contiguous_format)
        return name

    def _array(self, value: Any, where: str) -> Any:
        """The JSON of a NumPy array or scalar; numbers and dates become a tensor, others items."""
        array = np.asarray(value)
        about = {"scalar": isinstance(value, np.generic), "dtype": array.dtype.str}
        if array.dtype.kind in "biufmM" and array.dtype.itemsize <= 8:
            native = np.array(array, dtype=array.dtype.newbyteorder("="))
            native = native.view(np.int64) if array.dtype.kind in "mM" else native
            return {_KIND: "array", "name": self._keep(torch.from_numpy(native)), **about}
        if array.dtype.kind in "OUT":
            items = self._items(array.ravel().tolist(), where)
            about["dtype"] = "O" if array.dtype.kind == "T" else about["dtype"]
            return {_KIND: "objects", "items": items, "shape": list(array.shape), **about}
        raise DataError(
            f"{where} holds {array.dtype} values, which a state file cannot store; use numbers of "
            "at most 64 bits, text or dates, or keep the classifier with joblib.dump."
        )

    def _frame(self, value: pd.DataFrame, where: str) -> Any:
        """The JSON of a frame: names and columns, without the index."""
        columns = [self._cells(cells, f"{where}[{name!r}]") for name, cells in value.items()]
        return {_KIND: "table", "names": self._items(list(value.columns), where), "items": columns}

    def _cells(self, cells: pd.Series, where: str) -> Any:
        """The JSON of a column.

        Categories are packed separately, as Arrow loses their time zones and reads no intervals.
        """
        if isinstance(cells.dtype, pd.CategoricalDtype):
            categories = self._cells(pd.Series(cells.cat.categories), where)
            items = [self.pack(cells.cat.codes.to_numpy(), where), categories]
            return {_KIND: "categories", "items": items, "ordered": cells.dtype.ordered}
        if isinstance(cells.dtype, np.dtype):
            return self.pack(cells.to_numpy(), where)
        return {_KIND: "cells", "arrow": self.pack(_arrow(cells, where), where)}

    def _record(self, value: Any, where: str) -> Any:
        """The JSON of a model, a learner without parameters, or an instance of a tagged class."""
        if isinstance(value, InContextModel):
            assert self.model is None or self.model is value, "members of several models"
            self.model = value
            return {_KIND: "model"}
        cls = type(value)
        if cls in KINDS:
            arguments = {name: getattr(value, name) for name in inspect.signature(cls).parameters}
            return {_KIND: KINDS[cls], "arguments": self.pack(arguments, where)}
        if cls not in TAGS:
            raise DataError(
                f"{where} is a {cls.__module__}.{cls.__qualname__}, which a state file cannot "
                "store; use numbers and texts, or keep the classifier with joblib.dump."
            )
        names = _field_names(cls) or vars(value)
        fields = {name: self.pack(getattr(value, name), f"{where}.{name}") for name in names}
        return {_KIND: "record", "tag": TAGS[cls], "fields": fields}


@dataclass(frozen=True)
class Unpacker:
    """Turns JSON back into objects.

    Attributes:
        tensors, model: What the JSON refers to.
        device: Where to put tensors (arrays stay in CPU memory).
        dtype: The dtype to convert the states of a model's layers to; None leaves them.
    """

    tensors: Mapping[str, Tensor]
    model: InContextModel | None
    device: torch.device
    dtype: torch.dtype | None

    def unpack(self, tree: Any) -> Any:
        """The value that `Packer.pack` was given.

        Raises:
            CheckpointError: This version of the package does not know a record.
            KeyError, TypeError, ValueError: The JSON has an unexpected form.
        """
        if isinstance(tree, list):
            return [self.unpack(item) for item in tree]
        return _READERS[tree[_KIND]](self, tree) if isinstance(tree, dict) else tree

    def items(self, tree: Any) -> list[Any]:
        """The items of a container."""
        return [self.unpack(item) for item in tree["items"]]

    def array(self, tree: Any) -> Any:
        """An array or a scalar of NumPy."""
        dtype = np.dtype(tree["dtype"])
        if tree[_KIND] == "objects":
            array = np.empty(len(tree["items"]), dtype=dtype)
            array[:] = self.items(tree)
            array = array.reshape(tree["shape"])
        else:
            array = self.tensors[tree["name"]].numpy().view(dtype.newbyteorder("="))
        return array[()] if tree["scalar"] else array

    def record(self, tree: Any) -> Any:
        """An instance of one of `schema.RECORDS`."""
        tag = tree.get("tag", "record without a tag")
        cls: Any = RECORDS.get(tag)
        # Properties are left out: they were fields in version 0.2.0 and are derived now.
        fields = {
            name: self.unpack(value)
            for name, value in tree["fields"].items()
            if not isinstance(getattr(cls, name, None), property)
        }
        names = None if cls is None else _field_names(cls)
        if names is None or (names and not _suits(cls, names, fields.keys())):
            raise CheckpointError(f"it holds a {tag} that this version does not know")
        if names:
            record = cls(**fields)
            return self._converted(record) if isinstance(record, InContextState) else record
        instance = cls.__new__(cls)
        instance.__dict__.update(fields)
        return instance

    def _converted(self, state: InContextState) -> InContextState:
        """A state in the dtype asked for; statistics and ridge solutions are always float64."""
        dtype = self.dtype
        if dtype is None:
            return state

        def convert(tensor: Tensor) -> Tensor:
            return tensor.to(dtype) if tensor.is_floating_point() else tensor

        ridge = state.ridge
        if ridge is not None:
            ridge = ridge._replace(thresholds=convert(ridge.thresholds))
        return state._replace(layers=map_tensors(convert, state.layers), ridge=ridge)


def _field_names(cls: type) -> tuple[str, ...]:
    """Fields of a dataclass or named tuple; none for plain classes."""
    if dataclasses.is_dataclass(cls):
        return tuple(each.name for each in dataclasses.fields(cls))
    names: tuple[str, ...] = cls._fields if issubclass(cls, tuple) else ()  # type: ignore[attr-defined]
    return names


def _suits(cls: type, names: tuple[str, ...], fields: Set[str]) -> bool:
    """Whether a class has the fields of a file; older files may lack fields that have defaults."""
    if dataclasses.is_dataclass(cls):
        may_lack = {
            each.name for each in dataclasses.fields(cls) if each.default is not dataclasses.MISSING
        }
    else:
        may_lack = set(cls._field_defaults)  # type: ignore[attr-defined]
    return set(names) - may_lack <= fields <= set(names)


def _arrow(cells: pd.Series, where: str) -> npt.NDArray[np.uint8]:
    """A column that is no plain array (text, integers with gaps, time zones), as Arrow stream."""
    try:
        table = pa.Table.from_pandas(pd.DataFrame({"cells": cells}), preserve_index=False)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise DataError(
            f"{where} holds {cells.dtype} values, which a state file cannot store; make them "
            "numbers, text or dates, or keep the classifier with joblib.dump."
        ) from error
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return np.frombuffer(sink.getvalue(), dtype=np.uint8)


def _cells(data: npt.NDArray[np.uint8]) -> pd.Series:
    """The column that `_arrow` was given."""
    with pa.ipc.open_stream(pa.py_buffer(data.tobytes())) as stream:
        return stream.read_all().to_pandas()["cells"].rename(None)


def _frame(unpacker: Unpacker, tree: Any) -> pd.DataFrame:
    # Columns are numbered first, since their names may be anything.
    frame = pd.DataFrame(dict(enumerate(unpacker.items(tree))))
    frame.columns = pd.Index(unpacker.unpack(tree["names"]))
    return frame


def _categories(unpacker: Unpacker, tree: Any) -> pd.Series:
    codes, categories = unpacker.items(tree)
    # With their own dtype, which pandas would guess otherwise, and with tuples as they are.
    index = pd.Index(categories, dtype=categories.dtype, tupleize_cols=False)
    return pd.Series(pd.Categorical.from_codes(codes, index, ordered=tree["ordered"]))


def _cell(read: Callable[[str], Any], _: Unpacker, tree: Any) -> Any:
    return read(tree["text"])


def _learner(cls: type, unpacker: Unpacker, tree: Any) -> Any:
    return cls(**unpacker.unpack(tree["arguments"]))


_READERS: dict[str, _Read] = {
    "float": lambda unpacker, tree: float(tree["text"]),
    "tuple": lambda unpacker, tree: tuple(unpacker.items(tree)),
    "set": lambda unpacker, tree: set(unpacker.items(tree)),
    "frozenset": lambda unpacker, tree: frozenset(unpacker.items(tree)),
    "dict": lambda unpacker, tree: dict(map(tuple, unpacker.items(tree))),
    "tensor": lambda unpacker, tree: unpacker.tensors[tree["name"]].to(unpacker.device),
    "array": Unpacker.array,
    "objects": Unpacker.array,
    # Version 0.2.0 wrote times, and frames of plain arrays, in these two forms.
    "times": Unpacker.array,
    "frame": lambda unpacker, tree: pd.DataFrame(unpacker.unpack(tree["columns"])),
    "table": _frame,
    "cells": lambda unpacker, tree: _cells(unpacker.unpack(tree["arrow"])),
    "categories": _categories,
    "model": lambda unpacker, tree: unpacker.model,
    "record": Unpacker.record,
    **{kind: partial(_learner, learner) for kind, learner in LEARNERS.items()},
    **{kind: partial(_cell, read) for kind, _, read in _CELLS.values()},
}
