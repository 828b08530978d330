"""The arrays of a model in a Flower message, as one float32 vector, and back."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from flwr.app import Array, ArrayRecord

from muster.common.bounds import PARAMETERS
from muster.common.errors import ConfigError
from muster.common.tensors import schema_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from muster.common.tensors import Vector


class ArrayFormat:
    """The arrays of a model: those that travel, and those that stay on their device.

    Attributes:
        schema: the arrays that travel.
        initial: their values in `initial`, float32, shape (parameters,).
        local: the arrays that stay, with their initial values.

    Args:
        initial: the arrays of the app's first training message.
        local: patterns of the names of arrays that stay.

    Raises:
        ConfigError: an array can neither travel nor is it named as local, or there are too many.
    """

    def __init__(self, initial: ArrayRecord, local: Sequence[str]) -> None:
        values = {name: _numpy(name, array) for name, array in initial.items()}
        stay = {n for n in values if any(fnmatchcase(n, pattern) for pattern in local)}
        travel = {name: value for name, value in values.items() if name not in stay}
        other = [n for n, value in travel.items() if not np.issubdtype(value.dtype, np.floating)]
        if other:
            named = ", ".join(f"{name!r} ({values[name].dtype})" for name in other)
            raise ConfigError(
                f"task.local_arrays: the model has arrays that are not floating point and cannot "
                f"be averaged: {named}; if they may stay on each device, as counters of batch "
                f"normalisation may, name them: local_arrays = {_quoted(other)}"
            )
        if not travel:
            raise ConfigError(
                f"task.local_arrays: no array of the model is left to travel; there are: "
                f"{', '.join(values) or 'none'}"
            )
        self.schema = schema_of({name: value.shape for name, value in travel.items()})
        if self.schema.parameters > PARAMETERS:
            raise ConfigError(
                f"task.app: the model has {self.schema.parameters:,} parameters, expected at most "
                f"{PARAMETERS:,}"
            )
        self.initial: Vector = self.schema.flatten(travel)
        self.local = ArrayRecord({name: initial[name] for name in initial if name in stay})
        self._dtypes = {name: value.dtype for name, value in values.items()}

    def record(self, vector: Vector, local: ArrayRecord) -> ArrayRecord:
        """Return the record of a model, with its arrays in the app's own types and order."""
        travel = self.schema.unflatten(vector)
        return ArrayRecord({
            name: Array(np.asarray(travel[name], dtype)) if name in travel else local[name]
            for name, dtype in self._dtypes.items()
        })  # fmt: skip

    def vector(self, record: ArrayRecord) -> Vector:
        """Return the arrays of a reply that travel.

        Raises:
            ConfigError: they are not the arrays of the model.
        """
        if missing := [name for name in self._dtypes if name not in record]:
            raise ConfigError(
                f"the reply lacks {_quoted(missing)} of the model's arrays; it has: "
                f"{', '.join(record) or 'none'}"
            )
        found = {t.name: _numpy(t.name, record[t.name]) for t in self.schema.tensors}
        for tensor in self.schema.tensors:
            array = found[tensor.name]
            if array.shape != tensor.shape or not np.issubdtype(array.dtype, np.floating):
                raise ConfigError(
                    f"the reply has the array {tensor.name!r} as {array.dtype} of shape "
                    f"{array.shape}, expected floating point of shape {tensor.shape}"
                )
        return self.schema.flatten(found)

    def fits(self, record: ArrayRecord) -> bool:
        """Return whether a record has the names of the model's arrays."""
        return list(record) == list(self._dtypes)

    def local_of(self, record: ArrayRecord) -> ArrayRecord:
        """Return the arrays of a reply that stay on the device. The reply has all of the model."""
        return ArrayRecord({name: record[name] for name in self.local})


def _numpy(name: str, array: Array) -> npt.NDArray[Any]:
    try:
        return np.asarray(array.numpy())
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"the array {name!r} is not a NumPy array ({error}); muster aggregates arrays that "
            f"Flower makes of NumPy arrays or torch tensors"
        ) from None


def _quoted(names: Sequence[str]) -> str:
    return "[" + ", ".join(f'"{name}"' for name in names) + "]"
