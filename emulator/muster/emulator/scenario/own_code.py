"""Code of the user's own, which a scenario names as `module:Class` or `module:function`.

Every process of a run must be able to import it. The folder of the scenario file is therefore added
to the import path of this process and of all that it starts, unless the setting `modules` names
another folder. The setting is kept in the run folder, so that a resumed run finds the code again.

One Python process may read several scenarios, and their folders may have modules of the same name.
The folder of the scenario that was read or run last comes before those of the others.
"""

import os
import pkgutil
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_OWN = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


def names_own_code(values: object) -> bool:
    """Whether any setting names a class or function of a module."""
    if isinstance(values, Mapping):
        return any(names_own_code(value) for value in values.values())
    if isinstance(values, list):
        return any(names_own_code(value) for value in values)
    return isinstance(values, str) and _OWN.fullmatch(values) is not None


def settle_modules(values: dict[str, Any], scenario: Path) -> None:
    """Write into a scenario's settings where its own code is, if it has any."""
    stated = values.get("modules")
    if isinstance(stated, str):
        values["modules"] = str((scenario.parent / Path(stated).expanduser()).resolve())
    elif stated is None and names_own_code(values):
        values["modules"] = str(scenario.parent.resolve())


class _ImportPath:
    """An import path, and the folders of scenarios that were added to its end."""

    def __init__(self) -> None:
        self.added: list[str] = []

    def with_first(self, folder: str, path: Sequence[str]) -> list[str]:
        """`path` with a folder before the others that were added. A folder that has a place of its
        own keeps it."""
        own = [other for other in path if other not in self.added]
        others = [other for other in self.added if other != folder and other in path]
        self.added = others if folder in own else [folder, *others]
        return [*own, *self.added]


_OURS, _CHILDRENS = _ImportPath(), _ImportPath()


def make_importable(folder: str) -> None:
    """Add a folder to the import path of this process and to that of its children: before the
    folders of other scenarios, and after all others."""
    inherited = list(filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)))
    sys.path[:] = _OURS.with_first(folder, sys.path)
    os.environ["PYTHONPATH"] = os.pathsep.join(_CHILDRENS.with_first(folder, inherited))
    others = {Path(other) for other in _OURS.added if other != folder}
    for name in [each.name for each in pkgutil.iter_modules([folder])]:
        if _folder_of(name) in others:
            _forget(name)


def _folder_of(name: str) -> Path | None:
    """The folder in which a top-level module was found; None if it is not loaded from a file."""
    file = getattr(sys.modules.get(name), "__file__", None)
    if file is None:
        return None
    path = Path(file)
    return path.parent.parent if path.stem == "__init__" else path.parent


def _forget(name: str) -> None:
    """Let the next import of a module load it anew."""
    for module in list(sys.modules):
        if module == name or module.startswith(f"{name}."):
            del sys.modules[module]
