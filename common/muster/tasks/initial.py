"""The initial values of a model's entries from a safetensors file (`task.initial`)."""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING

from muster.common.errors import ConfigError, listed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch import Tensor, nn


def beginning_with(
    make: Callable[[], nn.Module], path: str, names: Sequence[str]
) -> Callable[[], nn.Module]:
    """`make`, with modules whose entries have the values of a file.

    Args:
        names: patterns of the names of the entries that are taken; empty: all of the file.
    """

    @wraps(make)
    def begun() -> nn.Module:
        module = make()
        load_initial(module, Path(path), names)
        return module

    return begun


def load_initial(module: nn.Module, path: Path, names: Sequence[str] = ()) -> None:
    """Copy the entries of a file into the entries of a module that have the same names.

    Raises:
        ConfigError: the file cannot be read, has no such entry, or has one that does not fit.
    """
    import torch

    found = _taken(_read(path), names, path)
    entries = dict(module.named_parameters(remove_duplicate=False)) | dict(module.named_buffers())
    if unknown := [name for name in found if name not in entries]:
        raise ConfigError(
            f"task.initial: {path} has {listed(unknown)}, which the model has not; it has "
            f"{listed(list(entries))}. Take entries by name with task.initial_names"
        )
    with torch.no_grad():
        for name, value in found.items():
            _require_fitting(name, value, entries[name], path)
            entries[name].copy_(value)


def _read(path: Path) -> Mapping[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except FileNotFoundError:
        raise ConfigError(
            f"task.initial: there is no file {path}; the path is relative to the scenario's file"
        ) from None
    except (OSError, SafetensorError) as error:
        raise ConfigError(
            f"task.initial: expected {path} in the format of safetensors, found: {error}. Write it "
            f"with safetensors.torch.save_file(module.state_dict(), path)"
        ) from None


def _taken(found: Mapping[str, Tensor], names: Sequence[str], path: Path) -> Mapping[str, Tensor]:
    """The entries whose names match the patterns."""
    for pattern in names:
        if not any(fnmatchcase(name, pattern) for name in found):
            raise ConfigError(
                f"task.initial_names: no entry of {path} matches {pattern!r}; it has "
                f"{listed(list(found))}"
            )
    taken = {
        name: value
        for name, value in found.items()
        if not names or any(fnmatchcase(name, pattern) for pattern in names)
    }
    if not taken:
        raise ConfigError(f"task.initial: {path} has no entries; expected at least one")
    return taken


def _require_fitting(name: str, value: Tensor, entry: Tensor, path: Path) -> None:
    if value.shape != entry.shape:
        raise ConfigError(
            f"task.initial: {name} of {path} has shape {tuple(value.shape)}, the model needs "
            f"{tuple(entry.shape)}. Leave it out of task.initial_names, or change the model"
        )
    if value.is_floating_point() != entry.is_floating_point():
        raise ConfigError(
            f"task.initial: {name} of {path} is {value.dtype}, the model needs {entry.dtype}"
        )
    if not value.isfinite().all():
        raise ConfigError(f"task.initial: {name} of {path} has values that are not finite")
