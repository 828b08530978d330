"""The roles of a model's entries that a scenario gives by name, as `[task.parts]`."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from muster.common.config import Section
from muster.common.errors import ConfigError, listed
from muster.tasks.parts import declare_counted, declare_roles, entries

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

    from muster.tasks.inputs import Tensors

Pattern = Annotated[str, Field(min_length=1, max_length=1_000)]
Patterns = Annotated[list[Pattern], Field(max_length=1_000)]


class Parts(Section):
    """Which entries of the model have another role than their own: lists of names of its state
    dict, or of patterns of names (`*`, `?`, `[…]`)."""

    trained: Patterns = Field(default=[])
    """Parameters that local training changes and that travel, also without `requires_grad`."""

    counted: Patterns = Field(default=[])
    """Buffers that travel, and of which the server takes the weighted mean."""

    frozen: Patterns = Field(default=[])
    """Entries that never change and do not travel: server and devices build them."""

    local: Patterns = Field(default=[])
    """Entries that stay on their device: each trains its own, and all begin with the values that
    the model is built with."""


def assign(module: nn.Module, parts: Parts | None, inputs: Callable[[], Tensors]) -> None:
    """Give the entries of a module that was just built their roles.

    Args:
        inputs: see `declare_counted`.

    Raises:
        ConfigError: a pattern matches nothing, two roles claim an entry, or an entry cannot have
            its role; see also `declare_counted`.
    """
    chosen = {} if parts is None else _chosen(module, parts)
    for name, role in chosen.items():
        _require_possible(name, role, module)
    declare_counted(module, inputs)
    if chosen:
        declare_roles(module, chosen)
        # Its layers of units name entries that may no longer travel, and masks are refused.
        module.unit_layers = ()  # type: ignore[assignment]


def _chosen(module: nn.Module, parts: Parts) -> dict[str, str]:
    """The role of each entry that a pattern names. A tied entry has one role and several names."""
    named = [*entries(module)]
    names = {id(entry): name for name, entry in reversed(named)}  # the first of each
    claimed: dict[str, tuple[str, str]] = {}
    for role in Parts.model_fields:
        for pattern in getattr(parts, role):
            found = {names[id(entry)] for name, entry in named if fnmatchcase(name, pattern)}
            if not found:
                raise ConfigError(
                    f"task.parts.{role}: {pattern!r} matches no entry of the model; there are: "
                    f"{listed([name for name, _ in named])}"
                )
            for name in sorted(found):
                other, by = claimed.setdefault(name, (role, pattern))
                if other != role:
                    raise ConfigError(
                        f"task.parts: {other} ({by!r}) and {role} ({pattern!r}) both claim "
                        f"{name!r}; expected one role for every entry"
                    )
    return {name: role for name, (role, _) in claimed.items()}


def _require_possible(name: str, role: str, module: nn.Module) -> None:
    parameter = dict(module.named_parameters()).get(name)
    if role == "trained" and parameter is None:
        raise ConfigError(
            f"task.parts.trained: {name!r} is a buffer, which training cannot move; expected "
            f"counted, frozen or local"
        )
    if role == "counted" and parameter is not None:
        raise ConfigError(
            f"task.parts.counted: {name!r} is a parameter; expected trained, frozen or local"
        )
    if parameter is None or role == "frozen" or parameter.is_floating_point():
        return
    raise ConfigError(
        f"task.parts.{role}: {name!r} is of {parameter.dtype}, which has no gradient; expected "
        f"frozen"
    )
