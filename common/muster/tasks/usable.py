"""Examples of the user's own, in the types that muster uses.

Types that can be converted without loss are: tensors become arrays, and small types of numbers
become float32 or int64. All other types stay as they are, for models and losses that take them.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from muster.common.errors import ConfigError
from muster.tasks.task import Examples

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
    x = _array(found.x, _INPUTS, f"{where}: x")
    y = _array(found.y, _TARGETS, f"{where}: y")
    if len(x) != len(y):
        raise ConfigError(
            f"{where}: expected as many rows of x as of y, found {len(x)} and {len(y)}"
        )
    return found if x is found.x and y is found.y else Examples(x, y)


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
