"""Examples of the user's own, in the types that muster uses.

Types that can be converted without loss are: tensors become arrays, and small types of numbers
become float32 or int64. All other types stay as they are, for models and losses that take them.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from muster.common.errors import ConfigError
from muster.tasks.inputs import arrays_of
from muster.tasks.task import Examples

if TYPE_CHECKING:
    from muster.tasks.inputs import Inputs

_INPUTS: dict[type, type] = {
    **dict.fromkeys((np.int8, np.uint8, np.int16, np.uint16, np.float16), np.float32),
    **dict.fromkeys((np.int32, np.uint32), np.int64),
}
"""The types of x, and what holds all their values. int32 is taken for tokens."""

_TARGETS: dict[type, type] = {
    **dict.fromkeys((np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32), np.int64),
    np.float16: np.float32,
}
"""Likewise of y."""


def usable(found: object, where: str) -> Examples:
    """Return examples as writable arrays.

    Args:
        where: what has returned them, for messages.

    Raises:
        ConfigError: they are something else, or x and y do not have equally many rows.
    """
    if not isinstance(found, Examples):
        raise ConfigError(
            f"{where}: expected Examples(x, y) of muster.tasks.task, found {type(found).__name__}"
        )
    x = _inputs(found.x, where)
    y = _array(found.y, _TARGETS, f"{where}: y")
    for name, values in arrays_of(x).items():
        if len(values) != len(y):
            raise ConfigError(
                f"{where}: expected as many rows of {name} as of y, found {len(values)} and "
                f"{len(y)}"
            )
    return found if x is found.x and y is found.y else Examples(x, y)


def _inputs(x: Any, where: str) -> "Inputs":
    """The inputs, one array or several by name."""
    if not isinstance(x, Mapping):
        return _array(x, _INPUTS, f"{where}: x")
    if not x or not all(isinstance(name, str) and name.isidentifier() for name in x):
        raise ConfigError(
            f"{where}: x: expected arrays by the names of arguments of the model, found the names "
            f"{', '.join(map(repr, x)) or 'none'}"
        )
    return {name: _array(values, _INPUTS, f"{where}: x[{name!r}]") for name, values in x.items()}


def _array(values: Any, types: dict[type, type], name: str) -> npt.NDArray[Any]:
    """The values as an array that torch takes."""
    if not isinstance(values, np.ndarray | np.generic):
        values = _of_tensor(values, name)
    if values.ndim == 0:
        raise ConfigError(f"{name}: expected an array with a row for every example, found a number")
    if values.dtype.kind not in "biufc" and values.size:
        what = "give every label a number from 0" if name.endswith("y") else "encode it as numbers"
        raise ConfigError(
            f"{name}: expected numbers, found an array of {values.dtype} (the first is "
            f"{str(values.flat[0])!r:.40}); {what}"
        )
    kind = types.get(values.dtype.type, values.dtype.newbyteorder("=").type)
    fits = values.dtype == kind and values.flags.c_contiguous and values.flags.writeable
    return values if fits else np.array(values, kind, order="C")


def array_of(values: Any, where: str) -> npt.NDArray[Any]:
    """The values of inputs as an array.

    Raises:
        ConfigError: they are something else.
    """
    return _array(values, {}, where)


def _of_tensor(values: Any, name: str) -> npt.NDArray[Any]:
    """The values of a dense tensor. Nobody has a tensor who has not imported torch."""
    try:
        import torch

        assert isinstance(values, torch.Tensor)
        dense = values.detach().cpu()
        dense = dense.float() if dense.dtype == torch.bfloat16 else dense
        return dense.resolve_conj().resolve_neg().numpy()
    except (AssertionError, TypeError, RuntimeError):
        raise ConfigError(
            f"{name}: expected a NumPy array or a dense tensor, found "
            f"{type(values).__name__}; convert it, for example by np.asarray(..., np.float32)"
        ) from None
