"""Examples that are there in Python, written into files from which the processes of a run read
them: the sources `npz` and `datasets` of `task.name = "own"`."""

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

from muster.common.errors import ConfigError

Array = npt.NDArray[Any]

_PAIR = ("x", "y")
_EXPECTED = (
    "a pair (x, y) of arrays or tensors, a torch Dataset of such pairs, a data set of Hugging "
    "Face, or the name of a data set of muster, such as 'digits'"
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


def _stacked(data: Dataset[Any], what: str) -> tuple[Array, Array]:
    """All items of a data set."""
    try:
        count = len(data)  # type: ignore[arg-type]
    except TypeError:
        raise ConfigError(
            f"{what}: expected a Dataset with a length, found {type(data).__name__} without one; "
            f"its examples have to be divided among devices before the run"
        ) from None
    items = [data[index] for index in range(count)]
    if wrong := next((i for i in items if not isinstance(i, (tuple, list)) or len(i) != 2), None):
        raise ConfigError(f"{what}: expected pairs (x, y), found an item {wrong!r:.100}")
    x, y = ([_array(item[place], what) for item in items] for place in range(len(_PAIR)))
    try:
        return np.stack(x), np.stack(y)
    except ValueError:
        shapes = sorted({str(each.shape) for each in x})
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
    label = next((name for name in ("label", "labels", "y", "target") if name in names), "label")
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
