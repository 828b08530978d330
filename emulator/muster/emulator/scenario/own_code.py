"""Code of the user's own, which a scenario names as `module:Class` or `module:function`.

Every process of a run must be able to import it. The folder of the scenario file is therefore added
to the import path of this process and of all that it starts, unless the setting `modules` names
another folder. The setting is kept in the run folder, so that a resumed run finds the code again.
"""

import os
import re
import sys
from collections.abc import Mapping
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


def make_importable(folder: str) -> None:
    """Add a folder to the end of the import path of this process and to that of its children."""
    if folder not in sys.path:
        sys.path.append(folder)
    inherited = os.environ.get("PYTHONPATH", "")
    if folder not in inherited.split(os.pathsep):
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [inherited, folder]))
