"""The folder of a Flower app: its `pyproject.toml` and its two apps. Reading it imports nothing."""

from __future__ import annotations

import importlib
import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from muster.common.bounds import Number
from muster.common.errors import ConfigError

ConfigValue = bool | Annotated[int, Field(ge=-(2**63), lt=2**63)] | Number | str
"""A value of a run config or of a `ConfigRecord` that a scenario can give."""


@dataclass(frozen=True)
class FlowerProject:
    """A Flower app as its folder describes it.

    Attributes:
        client_app, server_app: `module:object`.
        run_config: `[tool.flwr.app.config]`, with the values of the scenario.
    """

    folder: Path
    client_app: str
    server_app: str
    run_config: dict[str, ConfigValue]

    def load(self, reference: str) -> Any:
        """Import one of the two apps.

        Raises:
            ConfigError: it cannot be imported.
        """
        if str(self.folder) not in sys.path:
            sys.path.insert(0, str(self.folder))
        place, _, name = reference.partition(":")
        try:
            module = importlib.import_module(place)
            found = reduce(getattr, name.split("."), module)
        except Exception as error:  # an app may raise anything while it is imported
            raise ConfigError(
                f"task.app: {reference} of {self.folder} cannot be imported: "
                f"{type(error).__name__}: {error}; expected what the app's pyproject.toml depends "
                f"on to be installed beside muster"
            ) from error
        if module.__file__ and not Path(module.__file__).is_relative_to(self.folder.absolute()):
            raise ConfigError(
                f"task.app: {place} of {self.folder} would be imported from {module.__file__}; "
                f"expected one app with a package of this name in a process, and none installed"
            )
        return found


def read_project(app: str, run_config: Mapping[str, ConfigValue]) -> FlowerProject:
    """Read an app's folder.

    Args:
        run_config: values that replace those of the app.

    Raises:
        ConfigError: the folder is not that of a Flower app, or a value replaces none.
    """
    folder = Path(app)
    path = folder / "pyproject.toml"
    try:
        read = tomllib.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise ConfigError(
            f"task.app: {path} does not exist; expected the folder of a Flower app, in which "
            f"`flwr run` works. A module or a FAB file is not enough"
        ) from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"task.app: {path} cannot be read: {error}") from None
    described = _table(_table(_table(read, "tool"), "flwr"), "app")
    components = _table(described, "components")
    named = [components.get(key) for key in ("clientapp", "serverapp")]
    if not all(isinstance(name, str) and ":" in name for name in named):
        raise ConfigError(
            f"task.app: {path} needs [tool.flwr.app.components] with clientapp and serverapp as "
            f"'module:object', found {components or 'none'}"
        )
    client_app, server_app = map(str, named)
    known = dict(_flat(_table(described, "config"), ""))
    if unknown := sorted(run_config.keys() - known.keys()):
        raise ConfigError(
            f"task.run_config: the app has no {', '.join(unknown)} in [tool.flwr.app.config]; "
            f"there are: {', '.join(known) or 'none'}"
        )
    return FlowerProject(folder, client_app, server_app, {**known, **run_config})


def _table(values: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = values.get(key, {})
    return found if isinstance(found, Mapping) else {}


def _flat(values: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    """The values of nested tables, with keys joined by dots, as Flower does it."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value
