"""Transforms of the examples of a data set, by name: they are applied once, when it is read."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
from pydantic import BeforeValidator, Field, SerializeAsAny

from muster.common.causes import own_place
from muster.common.errors import ConfigError
from muster.common.plugins import Plugin
from muster.tasks.inputs import arrays_of
from muster.tasks.own import FunctionRegistry, Own
from muster.tasks.usable import array_of

if TYPE_CHECKING:
    from muster.tasks.inputs import Array, Inputs


class Transform(Plugin):
    """A transform of examples."""

    @abstractmethod
    def of(self, x: Array) -> Array:
        """Return the transformed examples.

        Args:
            x: shape (examples, *shape of one).

        Raises:
            ConfigError: it does not fit such examples.
        """

    def applied(self, x: Inputs) -> Inputs:
        """Return the transformed inputs.

        Raises:
            ConfigError: it does not fit them.
        """
        if isinstance(x, Mapping):
            raise ConfigError(
                f"task.transforms: {self.kind} takes one array, but the examples have "
                f"{', '.join(x)}; write a function of your own, which gets all of them by name"
            )
        return self.of(x)


class ToFloat(Transform):
    """Values become float32 and keep their sizes: pixels are not divided by 255."""

    def of(self, x: Array) -> Array:
        return x.astype(np.float32)


class Flatten(Transform):
    """Every example becomes a row of numbers."""

    def of(self, x: Array) -> Array:
        return np.reshape(x, (len(x), -1))


class ChannelsFirst(Transform):
    """Pictures of shape (height, width, channels) become (channels, height, width), as models of
    torch take them."""

    def of(self, x: Array) -> Array:
        if x.ndim != 4:
            raise _unfit(self, "pictures of shape (height, width, channels)", x)
        return np.ascontiguousarray(np.moveaxis(x, 3, 1))


class Resize(Transform):
    """Pictures get another size, by bilinear interpolation with antialiasing."""

    height: Annotated[int, Field(ge=1, le=10_000)]
    """Pixels from top to bottom."""

    width: Annotated[int, Field(ge=1, le=10_000)]
    """Pixels from left to right."""

    def of(self, x: Array) -> Array:
        import torch
        from torch.nn.functional import interpolate

        if x.ndim not in (3, 4):
            raise _unfit(self, "pictures of shape (height, width) or (channels, height, width)", x)
        size = self.height, self.width
        new = np.empty((*x.shape[:-2], *size), x.dtype)
        for first in range(0, len(x), _BLOCK):
            some = torch.from_numpy(x[first : first + _BLOCK].astype(np.float32))
            four = some if some.ndim == 4 else some.unsqueeze(1)
            sized = interpolate(four, size, mode="bilinear", antialias=True)
            sized = sized.view(len(some), *new.shape[1:])
            whole = x.dtype.kind in "iu"
            new[first : first + _BLOCK] = (sized.round() if whole else sized).numpy()
        return new


_BLOCK = 1_000
"""Pictures that are resized at a time: as float32 they take four times the memory of bytes."""


class OwnTransform(Transform, Own):
    """A function `(x, **settings)` that returns the transformed examples: an array, or arrays by
    name. x is an array with a row for every example, or arrays by name."""

    given: ClassVar = ("x",)

    def of(self, x: Array) -> Array:
        raise NotImplementedError

    def applied(self, x: Inputs) -> Inputs:
        try:
            found: Any = self.function(x, **self.settings())
        except Exception as error:
            place = f" ({where})" if (where := own_place(error)) else ""
            why = " ".join(str(error).split())
            raise ConfigError(
                f"task.transforms: {self.kind} failed with {type(error).__name__}: {why}{place}"
            ) from error
        if isinstance(found, dict):
            return {name: self._array(values, x) for name, values in found.items()}
        return self._array(found, x)

    def _array(self, values: Any, x: Inputs) -> Array:
        """What the function returned, as an array of as many rows."""
        where = f"task.transforms: {self.kind}"
        found = array_of(values, where)
        rows = len(next(iter(arrays_of(x).values())))
        if len(found) != rows:
            raise ConfigError(
                f"{where}: expected a row for each of the {rows} examples, found {len(found)} rows"
            )
        return found


def _unfit(transform: Transform, expected: str, x: Array) -> ConfigError:
    return ConfigError(
        f"task.transforms: {transform.kind}: expected {expected}, found examples of shape "
        f"{tuple(x.shape[1:])}; leave it out, or change the order of the transforms"
    )


BUILT_IN: dict[str, type[Transform]] = {
    "channels-first": ChannelsFirst,
    "flatten": Flatten,
    "resize": Resize,
    "to-float": ToFloat,
}
TRANSFORMS: FunctionRegistry[Transform] = FunctionRegistry(
    "transform", "muster.transforms", BUILT_IN, OwnTransform
)


AnyTransform = Annotated[SerializeAsAny[Transform], BeforeValidator(TRANSFORMS.parse)]
"""A transform as a setting: its name, or a table with its `kind` and settings."""
