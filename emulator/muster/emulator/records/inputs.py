"""What a run begins with, by its SHA-256: the scenario, and the modules of the user's own code.

The first server of a run enters these rows in the ledger. A resumed run and the audit compute them
again and compare them. A new kind of input is one more line of `inputs_of`.
"""

import hashlib
import json
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from muster.common import own_code
from muster.common.errors import ConfigError
from muster.common.toml import parse_toml
from muster.emulator.run_folder.folder import SCENARIO, afresh
from muster.emulator.scenario.own_code import modules_of
from muster.server.account.run_rows import INPUTS, InputRow

MAY_CHANGE = (
    "modules",
    "launch",
    "task.data.directory",
    "server.port",
    "server.metrics_port",
    "server.stall_s",
)
"""The settings that may be changed in `scenario.toml` between two starts of a run. They say where
files are, how programs start and how long to wait, and change no result."""

_KINDS = {"scenario": "the scenario", "module": "code of your own"}


class Change(NamedTuple):
    """An input that is not as it was when the run began.

    Attributes:
        kind, name: as in the ledger.
        expected, found: its SHA-256; "nothing": there was no such input, or there is none.
    """

    kind: str
    name: str
    expected: str
    found: str


def inputs_of(folder: Path) -> list[InputRow]:
    """The inputs of the run in a folder, as they are now; none if the folder has no scenario.

    Raises:
        ConfigError: the scenario or the code cannot be read.
    """
    if (values := _settings(folder)) is None:
        return []
    return [
        InputRow("scenario", SCENARIO, _digest(values)),
        *(InputRow("module", name, digest) for name, digest in modules_of(values).items()),
    ]


def announce_own_code(folder: Path) -> None:
    """Tell all programs that this process starts from now on which code of the user's own the run
    in a folder has.

    Raises:
        ConfigError: see `inputs_of`.
    """
    values = _settings(folder) or {}
    modules = modules_of(values)
    place = values.get("modules")
    if place is not None:
        own_code.use_again(place)
    own_code.announce(place, modules)


def _settings(folder: Path) -> dict[str, Any] | None:
    """The settings of a run folder's scenario; None if it has no scenario."""
    path = folder / SCENARIO
    try:
        return parse_toml(path.read_text(encoding="utf-8"), str(path))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: expected the scenario of the run, found {error}") from None


def _digest(values: Mapping[str, Any]) -> str:
    """The SHA-256 of all settings that may not change."""
    bound = json.loads(json.dumps(values, default=str))
    for name in MAY_CHANGE:
        *tables, key = name.split(".")
        place: Any = bound
        for table in tables:
            place = place.get(table) if isinstance(place, dict) else None
        if isinstance(place, dict):
            place.pop(key, None)
    return hashlib.sha256(json.dumps(bound, sort_keys=True).encode()).hexdigest()


def recorded_inputs(ledger: sqlite3.Connection) -> list[InputRow]:
    """The inputs with which the run of a ledger began; none in a ledger of an older version."""
    return [InputRow(*row) for row in ledger.execute(f"SELECT {INPUTS.names} FROM inputs")]


def changes(recorded: list[InputRow], folder: Path) -> Iterator[Change]:
    """Yield the inputs that have changed since they were recorded.

    Raises:
        ConfigError: see `inputs_of`.
    """
    before = {(row.kind, row.name): row.sha256 for row in recorded}
    now = {(row.kind, row.name): row.sha256 for row in inputs_of(folder)}
    for kind, name in sorted(before.keys() | now.keys()):
        expected, found = (rows.get((kind, name), "nothing") for rows in (before, now))
        if expected != found:
            yield Change(kind, name, expected, found)


def require_unchanged(recorded: list[InputRow], folder: Path) -> None:
    """Check that the inputs of a run are those with which it began.

    Raises:
        ConfigError: one has changed, or cannot be read.
    """
    for kind, name, expected, found in changes(recorded, folder) if recorded else ():
        raise ConfigError(
            f"{folder}: a run goes on with what it began with, but {name}, {_KINDS[kind]}, has "
            f"changed: expected SHA-256 {expected}, found {found} (only the hash is "
            f"recorded, so it is not known what was there before). Restore it, or "
            f"{afresh(folder)} (in {SCENARIO}, only {', '.join(MAY_CHANGE)} may change)"
        )
