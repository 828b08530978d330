"""The units of a model: which entries of its tensors belong to which hidden unit.

A model declares, for every layer of hidden units, the axes of tensors along which the units lie.
The hidden layer of a perceptron with 200 units, for example, has the rows of the first matrix, the
entries of the first bias, and the columns of the second matrix:

    UnitLayer(name="hidden1", units=200, axes=[
        UnitAxis(tensor="hidden1.weight", axis=0),
        UnitAxis(tensor="hidden1.bias", axis=0),
        UnitAxis(tensor="output.weight", axis=1),
    ])
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import accumulate
from math import prod

import numpy as np
import numpy.typing as npt

from muster.common.config import Section
from muster.common.errors import ConfigError
from muster.common.seeds import BoolArray, IntArray
from muster.common.tensors import Schema, TensorSpec


class UnitAxis(Section):
    """The place of a layer's units on one axis of a tensor.

    Entry `start + (repeat · units + unit) · width + i` of the axis belongs to `unit`, for every
    repeat < `repeats` and every i < `width`.
    """

    tensor: str
    axis: int
    start: int = 0
    """Index at which the units begin on the axis."""

    repeats: int = 1
    """How often the sequence of all units is on the axis: 4 for the gates of an LSTM."""

    width: int = 1
    """Number of neighbouring entries of one unit: the pixels of a channel that was flattened."""

    def places(self, units: int, chosen: IntArray) -> IntArray:
        """Indices on the axis of the chosen units of a layer with `units` units."""
        repeats = np.arange(self.repeats)[:, None, None] * units
        entries = (repeats + chosen[None, :, None]) * self.width + np.arange(self.width)
        return np.asarray(self.start + entries.ravel())

    def length(self, units: int) -> int:
        """Number of indices on the axis that belong to the layer."""
        return self.repeats * units * self.width


class UnitLayer(Section):
    """A layer of hidden units."""

    name: str
    units: int
    axes: list[UnitAxis]
    """The axes of tensors on which the units lie."""


class Layout:
    """A model's tensors and the units of its hidden layers.

    Attributes:
        layers: empty if the model declares no hidden units.

    Raises:
        ConfigError: a layer names an axis that does not exist, or that is too short.
    """

    def __init__(self, schema: Schema, layers: Sequence[UnitLayer] = ()) -> None:
        self.schema = schema
        self.layers = tuple(layers)
        self.starts = [0, *accumulate(tensor.size for tensor in schema.tensors)]
        shapes = {tensor.name: tensor.shape for tensor in schema.tensors}
        for layer in layers:
            for axis in layer.axes:
                _check(layer, axis, shapes.get(axis.tensor))

    @property
    def parameters(self) -> int:
        """Number of coordinates of the flat vector."""
        return self.schema.parameters

    @cached_property
    def layer_units(self) -> list[int]:
        """Number of units of each layer."""
        return [layer.units for layer in self.layers]

    def entries(self, chosen: BoolArray) -> Iterator[tuple[TensorSpec, BoolArray]]:
        """Yield every tensor with a view into `chosen`, shape (parameters,), in its own shape."""
        for tensor, start in zip(self.schema.tensors, self.starts, strict=False):
            yield tensor, chosen[start : start + tensor.size].reshape(tensor.shape)

    # --- a coordinate belongs to all units on its axes ------------------------------------------

    def submodel(self, kept: Sequence[IntArray]) -> BoolArray:
        """The coordinates all of whose units are kept, shape (parameters,). Coordinates without
        units are kept too.

        Args:
            kept: the units of every layer that are kept.
        """
        chosen = np.zeros(self.parameters, np.bool_)
        for tensor, entries in self.entries(chosen):
            indices = [np.ones(length, np.bool_) for length in tensor.shape]
            for layer, units in zip(self.layers, kept, strict=True):
                others = np.setdiff1d(np.arange(layer.units), units)
                for axis in layer.axes:
                    if axis.tensor == tensor.name:
                        indices[axis.axis][axis.places(layer.units, others)] = False
            entries[np.ix_(*indices)] = True
        return chosen

    def submodel_size(self, counts: Sequence[int]) -> int:
        """The number of coordinates of a submodel that keeps `counts[l]` units of layer l."""
        size = 0
        for tensor in self.schema.tensors:
            lengths = list(tensor.shape)
            for layer, count in zip(self.layers, counts, strict=True):
                for axis in layer.axes:
                    if axis.tensor == tensor.name:
                        lengths[axis.axis] -= axis.length(layer.units - count)
            size += prod(lengths)
        return size

    # --- a coordinate belongs to one unit, its owner --------------------------------------------

    @cached_property
    def owners(self) -> dict[str, tuple[int, npt.NDArray[np.int32]]]:
        """By tensor, the axis whose units own the tensor's entries, and the owner of each index of
        that axis: the unit's number, counted over all layers, or -1 for none.

        The owning axis is the first one that has units. In torch, axis 0 of a weight is that of its
        outputs, so a weight between two hidden units is owned by the unit that it feeds, and a
        weight from a hidden unit to an output by the hidden unit.
        """
        found: dict[str, tuple[int, npt.NDArray[np.int32]]] = {}
        firsts = [0, *accumulate(self.layer_units)]
        for tensor in self.schema.tensors:
            on = [
                (axis, first, layer.units)
                for layer, first in zip(self.layers, firsts, strict=False)
                for axis in layer.axes
                if axis.tensor == tensor.name
            ]
            if not on:
                continue
            owning = min(axis.axis for axis, _, _ in on)
            owner = np.full(tensor.shape[owning], -1, np.int32)
            for axis, first, units in on:
                if axis.axis == owning:
                    numbers = np.tile(np.repeat(np.arange(units), axis.width), axis.repeats)
                    owner[axis.places(units, np.arange(units))] = first + numbers
            found[tensor.name] = owning, owner
        return found

    @cached_property
    def owned(self) -> IntArray:
        """The number of coordinates that each unit owns, shape (units of all layers,)."""
        sizes = np.zeros(sum(self.layer_units), np.int64)
        for tensor in self.schema.tensors:
            if tensor.name in self.owners:
                axis, owner = self.owners[tensor.name]
                per_index = tensor.size // tensor.shape[axis]
                sizes += per_index * np.bincount(owner[owner >= 0], minlength=len(sizes))
        return sizes

    def owned_by(self, units: IntArray) -> BoolArray:
        """The coordinates that these units own, and those that no unit owns, shape (parameters,).

        Args:
            units: numbers of units, counted over all layers.
        """
        kept = np.zeros(sum(self.layer_units) + 1, np.bool_)
        kept[units] = kept[-1] = True  # the owner -1 is the last entry
        chosen = np.zeros(self.parameters, np.bool_)
        for tensor, entries in self.entries(chosen):
            if tensor.name in self.owners:
                axis, owner = self.owners[tensor.name]
                along = [1] * len(tensor.shape)
                along[axis] = -1
                entries[...] = kept[owner].reshape(along)
            else:
                entries[...] = True
        return chosen


def _check(layer: UnitLayer, axis: UnitAxis, shape: tuple[int, ...] | None) -> None:
    if shape is None:
        raise ConfigError(
            f"task.model: the layer of units {layer.name!r} names the tensor {axis.tensor!r}, "
            f"which the model does not have"
        )
    needed = axis.start + axis.length(layer.units)
    if not 0 <= axis.axis < len(shape) or shape[axis.axis] < needed:
        raise ConfigError(
            f"task.model: the layer of units {layer.name!r} needs {needed} indices on axis "
            f"{axis.axis} of {axis.tensor!r}, which has the shape {shape}"
        )
