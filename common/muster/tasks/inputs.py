"""Inputs of models: one array with a row for every example, or several of them by name.

A module gets several as arguments of these names: `module(input_ids=…, attention_mask=…)`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import torch
    from torch import Tensor, nn

    Tensors = Tensor | Mapping[str, Tensor]

Array = npt.NDArray[Any]
Inputs = Array | Mapping[str, Array]


def arrays_of(x: Inputs) -> Mapping[str, Array]:
    """The arrays by name; the only one has the name x."""
    return x if isinstance(x, Mapping) else {"x": x}


def each(change: Callable[[Array], Any], x: Inputs) -> Any:
    """What a function makes of the array, or of each of several arrays, by name."""
    return {k: change(v) for k, v in x.items()} if isinstance(x, Mapping) else change(x)


def shapes_of(x: Inputs) -> Any:
    """The shape of an example, or the shapes of its arrays by name."""
    return each(lambda values: tuple(values.shape[1:]), x)


def taken(x: Inputs, rows: Array | slice) -> Inputs:
    """The rows of each array."""
    found: Inputs = each(lambda values: values[rows], x)
    return found


def joined(parts: Sequence[Inputs]) -> Inputs:
    """The rows of several inputs, one after the other."""
    if isinstance(first := parts[0], Mapping):
        return {name: np.concatenate([arrays_of(x)[name] for x in parts]) for name in first}
    return np.concatenate([*parts])


def tensors_of(x: Inputs, device: torch.device | None = None) -> Tensors:
    """Tensors that share the values of the arrays; on another device, copies."""
    import torch

    if isinstance(x, Mapping):
        return {name: torch.from_numpy(values).to(device) for name, values in x.items()}
    return torch.from_numpy(x).to(device)


def selected(x: Tensors, rows: Tensor | None) -> Tensors:
    """The rows of each tensor; all of them if `rows` is None."""
    if rows is None:
        return x
    if isinstance(x, Mapping):
        return {name: values.index_select(0, rows) for name, values in x.items()}
    return x.index_select(0, rows)


def kind_of(found: object) -> str:
    """The type and the shape of what torch or NumPy has."""
    if isinstance(found, Mapping):
        return ", ".join(f"{name}: {kind_of(values)}" for name, values in found.items())
    if hasattr(found, "dtype") and hasattr(found, "shape"):
        return f"{str(found.dtype).removeprefix('torch.')} and shape {tuple(found.shape)}"
    return type(found).__name__


def outputs_of(module: nn.Module, x: Tensors) -> Any:
    """What the module returns for inputs."""
    return module(**x) if isinstance(x, Mapping) else module(x)
