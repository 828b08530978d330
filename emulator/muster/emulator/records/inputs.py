"""What decides a run: the inputs with which it begins, by their SHA-256.

The first server of a run enters these rows in the ledger. A resumed run and the audit compute them
again and compare them. A new kind of input is one more line of `KINDS`.
"""

import hashlib
import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from muster.common import own_code
from muster.common.errors import ConfigError
from muster.common.toml import parse_toml
from muster.emulator.fleet.scenario_faults import FAULTS
from muster.emulator.records.ledger_file import read_ledger
from muster.emulator.run_folder.folder import LEDGER, SCENARIO, afresh, read_values
from muster.emulator.scenario.own_code import modules_of
from muster.emulator.scenario.reading import named_files
from muster.server.account.run_rows import INPUTS, InputRow

INITIAL = "setup/initial.safetensors"
"""The file of the initial model."""

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

ROUNDS = "setup/rounds.json"
"""The file of a run that was asked for other numbers of rounds than it began with: `began`, and all
others as `asked`. The hash of its scenario is that with which it began."""

NOTHING = "nothing"
"""Stands for the hash of an input that is not there."""


class Source(NamedTuple):
    """From where inputs are read.

    Attributes:
        folder, settings: the run folder, and the settings of its scenario.
        prepared: what the nursery has reported; None: it has not started.
    """

    folder: Path
    settings: Mapping[str, Any]
    prepared: Mapping[str, Any] | None


class InputKind(NamedTuple):
    """A kind of input.

    Attributes:
        what: what it is, for messages.
        read: its inputs as they are now, by name; None if that is not known now.
        binds: whether a run goes on only with the same. Otherwise a change is a warning.
        mend: what to do about a change.
    """

    what: str
    read: Callable[[Source], Mapping[str, str] | None]
    binds: bool = True
    mend: str = "Restore it"


def _scenario(source: Source) -> Mapping[str, str]:
    return {SCENARIO: _digest(source.settings, source.folder)}


def _modules(source: Source) -> Mapping[str, str] | None:
    """The modules of the scenario; not known if they are nowhere that processes import them from,
    as may be in virtual time. A start has refused such a scenario before."""
    try:
        return modules_of(source.settings)
    except ConfigError:
        return None


def _files(source: Source) -> Mapping[str, str]:
    """The files that the scenario names. A folder with data is one input; of a folder that is an
    app, its code and settings are."""
    task = source.settings.get("task")
    app = task.get("app") if isinstance(task, Mapping) else None
    found = {}
    for path in named_files(source.settings):
        for file in _code_in(path) if str(path) == app else [path]:
            found[str(file)] = (_of_folder(file) if file.is_dir() else _sha256(file)) or NOTHING
    return found


def _code_in(path: Path) -> list[Path]:
    """The files of code and settings in a folder, or the file itself."""
    if not path.is_dir():
        return [path]
    found = sorted(file for suffix in ("py", "toml") for file in path.rglob(f"*.{suffix}"))
    return [file for file in found if not any(p[0] == "." for p in file.relative_to(path).parts)]


def _of_folder(folder: Path) -> str:
    """The SHA-256 of the names and the contents of all files in a folder."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            digest.update(f"{_sha256(path)} {path.relative_to(folder)}\n".encode())
    return digest.hexdigest()


def _in_folder(name: str) -> Callable[[Source], Mapping[str, str] | None]:
    """Reads a file of the run folder, which is not known if it is missing."""

    def read(source: Source) -> Mapping[str, str] | None:
        digest = _sha256(source.folder / name)
        return None if digest is None else {name: digest}

    return read


def _prepared(key: str) -> Callable[[Source], Mapping[str, str] | None]:
    """Reads what the nursery has reported under a key."""
    return lambda source: None if source.prepared is None else source.prepared.get(key)


_AGAIN = "Remove it, since the run writes it again"

KINDS: Mapping[str, InputKind] = {
    "scenario": InputKind("the scenario", _scenario),
    "module": InputKind("code of your own", _modules),
    "file": InputKind("a file that the scenario names", _files),
    "timeline": InputKind("the timeline of the faults", _in_folder(FAULTS), mend=_AGAIN),
    "model": InputKind("the initial model", _in_folder(INITIAL), mend=_AGAIN),
    "data": InputKind("the data of the devices", _prepared("data")),
    "package": InputKind("a package", _prepared("packages"), binds=False),
    "platform": InputKind("the platform", _prepared("platform"), binds=False),
}
"""What decides a run, in the order in which it is read."""


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


def inputs_of(folder: Path, prepared: Mapping[str, Any] | None = None) -> list[InputRow]:
    """The inputs of the run in a folder, as far as they are known now; none if the folder has no
    scenario.

    Args:
        prepared: see `Source`.

    Raises:
        ConfigError: the scenario or the code cannot be read.
    """
    if (values := _settings(folder)) is None:
        return []
    source = Source(folder, values, prepared)
    return [
        InputRow(kind, name, digest)
        for kind, input_kind in KINDS.items()
        for name, digest in (input_kind.read(source) or {}).items()
    ]


def scenario_digest(folder: Path) -> str | None:
    """The SHA-256 of the settings of a run folder's scenario; None if it has no scenario.

    Raises:
        ConfigError: the scenario cannot be read.
    """
    values = _settings(folder)
    return None if values is None else _digest(values, folder)


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


def asked_rounds(folder: Path) -> Mapping[str, Any]:
    """The content of `ROUNDS`; empty if there is no such file."""
    try:
        return read_values(folder, ROUNDS, {"began": int, "asked": list}, afresh(folder))
    except FileNotFoundError:
        return {}


def _digest(values: Mapping[str, Any], folder: Path) -> str:
    """The SHA-256 of all settings that may not change."""
    bound = json.loads(json.dumps(values, default=str))
    asked, server = asked_rounds(folder), bound.get("server")
    if asked and isinstance(server, dict) and server.get("rounds") in asked["asked"]:
        server["rounds"] = asked["began"]
    leave_out(bound, MAY_CHANGE)
    return hashlib.sha256(json.dumps(bound, sort_keys=True).encode()).hexdigest()


def leave_out(values: dict[str, Any], names: Iterable[str]) -> None:
    """Remove settings from nested tables.

    Args:
        names: with dots between table and key.
    """
    for name in names:
        *tables, key = name.split(".")
        place: Any = values
        for table in tables:
            place = place.get(table) if isinstance(place, dict) else None
        if isinstance(place, dict):
            place.pop(key, None)


def recorded_inputs(ledger: sqlite3.Connection) -> list[InputRow]:
    """The inputs with which the run of a ledger began; none in a ledger of an older version."""
    return [InputRow(*row) for row in ledger.execute(f"SELECT {INPUTS.names} FROM inputs")]


def inputs_in(folder: Path) -> list[InputRow]:
    """The inputs that the ledger of a folder has recorded; none if there is no ledger yet.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    path = folder / LEDGER
    if not path.is_file() or not path.stat().st_size:
        return []
    with read_ledger(path) as ledger:
        return recorded_inputs(ledger)


def changes(
    recorded: Sequence[InputRow], folder: Path, prepared: Mapping[str, Any] | None = None
) -> Iterator[Change]:
    """Yield the inputs that have changed since they were recorded. Kinds that are not known now, or
    that an older version did not record, are left out.

    Raises:
        ConfigError: see `inputs_of`.
    """
    before = {(row.kind, row.name): row.sha256 for row in recorded}
    now = {(row.kind, row.name): row.sha256 for row in inputs_of(folder, prepared)}
    known = {kind for kind, _ in now} | {"scenario", "module"}
    comparable = known & ({kind for kind, _ in before} | {"module"})
    for kind, name in sorted(before.keys() | now.keys()):
        expected, found = (rows.get((kind, name), NOTHING) for rows in (before, now))
        if expected != found and kind in comparable:
            yield Change(kind, name, expected, found)


def require_unchanged(
    recorded: Sequence[InputRow], folder: Path, prepared: Mapping[str, Any] | None = None
) -> list[str]:
    """Check that the inputs of a run are those with which it began.

    Returns:
        A warning for each input that has changed and may.

    Raises:
        ConfigError: one has changed that binds the run, or cannot be read.
    """
    warnings = []
    for kind, name, expected, found in changes(recorded, folder, prepared) if recorded else ():
        what, _, binds, mend = KINDS[kind]
        if binds:
            raise ConfigError(
                f"{folder}: a run goes on with what it began with, but {name}, {what}, has "
                f"changed: expected SHA-256 {expected}, found {found} (only the hash is "
                f"recorded, so it is not known what was there before). {mend}, or "
                f"{afresh(folder)} (in {SCENARIO}, only {', '.join(MAY_CHANGE)} may change)"
            )
        warnings.append(
            f"the run began with {what} that has changed, so its model may have other bits than "
            f"that of an undisturbed run: {name}: expected {expected}, found {found}"
        )
    return warnings


def _sha256(path: Path) -> str | None:
    """The SHA-256 of a file; None if there is none that can be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None
