"""Examples that are there in Python, written into files from which the processes of a run read
them: the sources `npz` and `datasets` of `task.name = "own"`."""

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

from muster.common.errors import ConfigError
from muster.tasks.inputs import Array, Inputs, arrays_of

_PAIR = ("x", "y")
_LABELS = ("label", "labels", "y", "target")
"""Names of labels, in data sets of Hugging Face and in items that are dictionaries."""

_EXPECTED = (
    "a pair (x, y) of arrays or tensors, a torch Dataset of such pairs or of dictionaries, a data "
    "set of Hugging Face, or the name of a data set of muster, such as 'digits'"
)


def task_of(data: Any, test: Any, user: Any, folder: Path) -> dict[str, Any]:
    """Write examples into a folder, and return the settings of `[task]` that name them.

    Args:
        data: see `muster.torch.wrap`.
        test: the same for testing; None: a share of `data`.
        user: whose each example is; None: unknown.

    Raises:
        ConfigError: they are no examples.
    """
    if isinstance(data, str):
        if test is not None or user is not None:
            raise ConfigError(f"data: {data} has examples for testing and users of its own, if any")
        return {"name": data}
    if _is_hugging_face(data):
        return {"name": "own", "source": _saved(data, test, user, folder)}
    arrays = _arrays(data, "data")
    inputs = [name for name in arrays if name not in _BESIDE]
    if test is not None:
        arrays |= {f"test_{name}": array for name, array in _arrays(test, "test").items()}
    if user is not None:
        arrays["user"] = _array(user, "user")
    path = named(folder, "data", ".npz", _parts_of(arrays))
    written(path, lambda new: _save(new, arrays))
    found: dict[str, Any] = {"kind": "npz", "path": str(path)}
    if inputs != ["x"]:
        found["x"] = inputs
    return {"name": "own", "source": found if user is None else {**found, "user": "user"}}


_BESIDE = ("y", "user")
"""The names of arrays that are no inputs."""


def _is_hugging_face(data: Any) -> bool:
    return type(data).__module__.partition(".")[0] == "datasets"


def _arrays(data: Any, what: str) -> dict[str, Array]:
    """The inputs by name, which is x for a single one, and y, the labels."""
    if isinstance(data, DataLoader):
        raise ConfigError(f"{what}: expected a data set, found a DataLoader; give its `dataset`")
    if isinstance(data, TensorDataset) and len(data.tensors) == len(_PAIR):
        data = data.tensors
    elif isinstance(data, Dataset):
        data = _stacked(data, what)
    if not isinstance(data, (tuple, list)) or len(data) != len(_PAIR):
        shown = f"{len(data)} values" if isinstance(data, (tuple, list)) else type(data).__name__
        raise ConfigError(f"{what}: expected {_EXPECTED}, found {shown}")
    inputs, y = data[0], _array(data[1], f"{what}, y")
    if not isinstance(inputs, Mapping):
        inputs = {"x": inputs}
    elif not inputs or inputs.keys() & {"x", *_BESIDE}:
        raise ConfigError(
            f"{what}: expected arrays by the names of arguments of the model, other than x, y and "
            f"user, found {', '.join(map(str, inputs)) or 'none'}"
        )
    found = {str(name): _array(part, f"{what}, {name}") for name, part in inputs.items()}
    for name, x in found.items():
        if not x.ndim or not y.ndim or len(x) != len(y):
            raise ConfigError(
                f"{what}: expected a row of {name} for every label in y, found arrays of shapes "
                f"{x.shape} and {y.shape}"
            )
    return {**found, "y": y}


def _stacked(data: Dataset[Any], what: str) -> tuple[Inputs, Array]:
    """The inputs and the labels of all items of a data set. A single input has no name."""
    try:
        count = len(data)  # type: ignore[arg-type]
    except TypeError:
        raise ConfigError(
            f"{what}: expected a Dataset with a length, found {type(data).__name__} without one; "
            f"its examples have to be divided among devices before the run"
        ) from None
    if not count:
        raise ConfigError(f"{what}: expected examples, found an empty {type(data).__name__}")
    pairs = [_pair(data[index], what) for index in range(count)]
    rows = [arrays_of(x) for x, _ in pairs]
    if wrong := next((row for row in rows if row.keys() != rows[0].keys()), None):
        raise ConfigError(
            f"{what}: expected every item to have {', '.join(rows[0])}, found one with "
            f"{', '.join(wrong) or 'none'}"
        )
    x = {name: _rows([row[name] for row in rows], what) for name in rows[0]}
    named = x if len(x) > 1 else next(iter(x.values()))
    return named, _rows([label for _, label in pairs], what)


def _pair(item: Any, what: str) -> tuple[Any, Any]:
    """The inputs of an item and its label: of a pair, or of a dictionary that has a label."""
    if isinstance(item, Mapping):
        label = next((name for name in _LABELS if name in item), None)
        if label is not None and len(item) > 1:
            return {name: part for name, part in item.items() if name != label}, item[label]
    elif isinstance(item, (tuple, list)) and len(item) == len(_PAIR):
        return item[0], item[1]
    raise ConfigError(
        f"{what}: expected pairs (x, y), or dictionaries of inputs with one of "
        f"{', '.join(_LABELS)}, found an item {item!r:.100}"
    )


def _rows(values: list[Any], what: str) -> Array:
    """One array of the values of all items."""
    arrays = [_array(value, what) for value in values]
    try:
        return np.stack(arrays)
    except ValueError:
        shapes = sorted({str(each.shape) for each in arrays})
        raise ConfigError(
            f"{what}: expected examples of one shape, found {', '.join(shapes[:5])}; make them "
            f"alike, for example by a transform of the data set"
        ) from None


def _array(values: Any, what: str) -> Array:
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu()
        values = values.float() if values.dtype is torch.bfloat16 else values
        return np.asarray(values.numpy())
    try:
        found = np.asarray(values)
    except ValueError as error:  # rows of different lengths
        raise ConfigError(f"{what}: expected an array or a tensor, found {error}") from None
    if found.dtype == object and all(isinstance(each, str) for each in found.flat):
        return found.astype(str)
    if found.dtype == object:
        raise ConfigError(
            f"{what}: expected numbers, or texts as labels, found objects of type "
            f"{type(found.flat[0] if found.size else values).__name__}; convert them first"
        )
    return found


def _saved(data: Any, test: Any, user: Any, folder: Path) -> dict[str, Any]:
    """Save a data set of Hugging Face."""
    import datasets  # type: ignore[import-not-found,import-untyped,unused-ignore]

    if user is not None and not isinstance(user, str):
        raise ConfigError(f"user: expected the name of a column, found {type(user).__name__}")
    if test is not None:
        data = datasets.DatasetDict({"train": data, "test": test})
    splits = data if isinstance(data, Mapping) else {"": data}
    names = [name for split in splits.values() for name in split.column_names]
    label = next((name for name in _LABELS if name in names), _LABELS[0])
    marks = ([name.encode(), split._fingerprint.encode()] for name, split in splits.items())
    path = named(folder, "data", "", [part for mark in marks for part in mark])
    written(path, lambda new: data.save_to_disk(str(new)))
    found = {"kind": "datasets", "path": str(path), "label": label}
    return found if user is None else {**found, "user": user}


def named(folder: Path, what: str, suffix: str, parts: Iterable[bytes]) -> Path:
    """The path of a file in a folder, by its content: the same content is written once."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return (folder / f"{what}-{digest.hexdigest()[:16]}{suffix}").resolve()


def written(path: Path, write: Callable[[Path], object]) -> Path:
    """A file or folder at a path, which `write` makes unless it is there."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_name(f".{path.name}-{os.getpid()}")
        write(new)
        os.replace(new, path)
    return path


def _save(path: Path, arrays: Mapping[str, Any]) -> None:
    with path.open("wb") as file:  # numpy would change the name of the file
        np.savez(file, **arrays)


def _parts_of(arrays: Mapping[str, Array]) -> Iterable[bytes]:
    for name, array in arrays.items():
        yield f"{name} {array.dtype} {array.shape}".encode()
        yield np.ascontiguousarray(array).tobytes()
