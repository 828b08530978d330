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


_added: list[str] = []
"""The folders that were added to the import path, the newest first."""


def make_importable(folder: str) -> None:
    """Add a folder to the import path of this process and to that of its children: before the
    folders of other scenarios, and after all others."""
    inherited = list(filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)))
    order = [folder, *(other for other in _added if other != folder and other in sys.path)]
    sys.path[:] = _with_last(sys.path, order)
    os.environ["PYTHONPATH"] = os.pathsep.join(_with_last(inherited, order))
    _added[:] = order
    for name in [each.name for each in pkgutil.iter_modules([folder])]:
        if _was_imported_from(name, order[1:]):
            _forget(name)


def _with_last(paths: Sequence[str], order: Sequence[str]) -> list[str]:
    """The import path with the folders that were added at its end, in their new order. A folder
    that has a place of its own keeps it."""
    kept = [path for path in paths if path not in _added]
    return [*kept, *(folder for folder in order if folder not in kept)]


def _was_imported_from(name: str, folders: Sequence[str]) -> bool:
    file = getattr(sys.modules.get(name), "__file__", None)
    return file is not None and any(Path(file).is_relative_to(folder) for folder in folders)


def _forget(name: str) -> None:
    """Let the next import of a module load it anew."""
    for module in list(sys.modules):
        if module == name or module.startswith(f"{name}."):
            del sys.modules[module]
