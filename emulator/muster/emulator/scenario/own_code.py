"""Code of the user's own, which a scenario names as `module:Class` or `module:function`.

Every process of a run imports it from the folder of the scenario file, unless the setting `modules`
names another folder. The setting is kept in the run folder, so that a resumed run finds the code
again. `muster.common.own_code` imports it.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from muster.common import own_code

_OWN = re.compile(r"([A-Za-z_][\w.]*):[A-Za-z_]\w*")


def own_modules(values: object) -> Iterator[str]:
    """Yield the modules of all classes and functions that settings name."""
    if isinstance(values, Mapping):
        values = list(values.values())
    if isinstance(values, list):
        for value in values:
            yield from own_modules(value)
    elif isinstance(values, str) and (found := _OWN.fullmatch(values)) is not None:
        yield found[1]


def settle_modules(values: dict[str, Any], scenario: Path) -> None:
    """Write into a scenario's settings where its own code is, if it has any."""
    stated = values.get("modules")
    if isinstance(stated, str):
        values["modules"] = str((scenario.parent / Path(stated).expanduser()).resolve())
    elif stated is None and any(own_modules(values)):
        values["modules"] = str(scenario.parent.resolve())


def modules_of(values: Mapping[str, Any]) -> dict[str, str]:
    """The SHA-256 of the modules of a scenario's own code, by path relative to its folder.

    Raises:
        ConfigError: they are not where every process of a run would import them from.
    """
    return own_code.modules_of(values.get("modules"), own_modules(values))
