"""Reading a scenario: from a TOML file, `--set` and the environment to a validated `Scenario`."""

import copy
import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from muster.common.config import validate
from muster.common.errors import ConfigError
from muster.common.file_tables import read_table
from muster.common.own_code import use
from muster.common.toml import parse_toml, require_plain
from muster.emulator.links.shared import recordings_in
from muster.emulator.links.traces import TRACES, files_of
from muster.emulator.scenario.own_code import modules_of, settle_modules
from muster.emulator.scenario.scenario import Scenario
from muster.tasks.files import DATA_VARIABLE
from muster.tasks.own_data import OwnData


def read_scenario(
    path: Path, settings: Sequence[str | tuple[str, Any]] = (), data: str | None = None
) -> Scenario:
    """Read a scenario file.

    Args:
        settings: changes to the file. Each is either a pair of key and value, or text
            `key=value` as given to `--set`, where the key is dotted and the value is TOML or
            plain text.
        data: the data directory. It takes precedence over the environment variable MUSTER_DATA,
            which takes precedence over the file.

    Raises:
        ConfigError: the scenario is wrong; the message names every mistake.
    """
    return scenario_of(settings_in(path), path, settings, data)


def settings_in(path: Path) -> dict[str, Any]:
    """The settings in a scenario file, as they stand there.

    Raises:
        ConfigError: the file cannot be read, or is not TOML.
    """
    try:
        return parse_toml(path.read_text(encoding="utf-8"), str(path))
    except FileNotFoundError:
        raise ConfigError(f"there is no scenario {path}; see examples/ for scenarios") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not TOML: {error}") from None


def scenario_of(
    values: dict[str, Any],
    path: Path,
    settings: Sequence[str | tuple[str, Any]] = (),
    data: str | None = None,
) -> Scenario:
    """The scenario of the settings that stand in a file, or could: paths and code of the user's own
    are relative to its folder. The settings are changed to what they stand for, and a data set of
    the hub is downloaded.

    Args:
        settings, data: see `read_scenario`.

    Raises:
        ConfigError: the scenario is wrong; the message names every mistake.
    """
    for setting in settings:
        key, value = _pair(setting) if isinstance(setting, str) else setting
        _set(values, key, copy.deepcopy(value))
    require_plain(values, str(path))
    _set_data(values, data or os.environ.get(DATA_VARIABLE), path)
    _set_files(values, path)
    settle_modules(values, path)
    scenario = settled(values, str(path))
    if fetched := _fetched(scenario):
        values["task"]["source"] |= fetched
        scenario = settled(values, str(path))
    modules_of(values)
    return scenario


def _fetched(scenario: Scenario) -> Mapping[str, str]:
    """Download the data that a new scenario has elsewhere, and return the settings that say where
    they are. A scenario in a run folder has them."""
    task: object = scenario.task
    if isinstance(task, OwnData) and not task.source.path:
        return task.source.fetched()
    return {}


def settled(values: dict[str, Any], source: str) -> Scenario:
    """The scenario of settings that have been read before: they say where its own code is.

    Raises:
        ConfigError: the scenario is wrong; the message names every mistake, and `source`.
    """
    if isinstance(modules := values.get("modules"), str):
        use(modules)
    return validate(Scenario, values, source)


def setting_value(text: str) -> Any:
    """The value of a setting that a person typed. Text that is not TOML is taken as it is."""
    try:
        return parse_toml(f"value = {text}", "a setting")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _pair(setting: str) -> tuple[str, Any]:
    key, equals, text = setting.partition("=")
    if not equals:
        raise ConfigError(f"--set {setting}: expected key=value, for example server.rounds=5")
    return key, setting_value(text)


def _set(values: dict[str, Any], key: str, value: Any) -> None:
    parts = re.findall(r"[^.\[\]]+", key.strip())
    setting = f"{key}={str(value).lower() if isinstance(value, bool) else value}"
    if not parts:
        raise ConfigError(f"--set {setting}: expected key=value, for example server.rounds=5")
    *path, last = parts
    place: Any = values
    for part in path:
        if isinstance(place, list):
            place = _item(place, part, setting)
        else:
            place = place.setdefault(part, {})
        if not isinstance(place, dict | list):
            table = f'{{kind = "{place}", {last} = …}}'
            mend = (
                f"; give a table, {part} = {table}"
                if isinstance(place, str) and part != path[0]
                else ""
            )
            raise ConfigError(f"--set {setting}: {part} is {place!r}, which has no keys{mend}")
    if isinstance(place, list):
        raise ConfigError(f"--set {setting}: expected the key of a table after {path[-1]}")
    place[last] = value


def _item(place: list[Any], part: str, setting: str) -> Any:
    if part.isdecimal() and int(part) < len(place):
        return place[int(part)]
    raise ConfigError(f"--set {setting}: expected a number below {len(place)}, found {part!r}")


def _set_data(values: dict[str, Any], directory: str | None, scenario: Path) -> None:
    """Make the data directory absolute: `directory` if given, else the one in the file, which is
    relative to the file."""
    task = values.get("task")
    if isinstance(task, str):
        task = {"name": task}
    if not isinstance(task, Mapping):
        return
    data = task.get("data", {})
    if not isinstance(data, Mapping):
        return
    stated = data.get("directory")
    if directory is None and isinstance(stated, str):
        directory = _path("task.data.directory", stated, scenario.parent)
    if directory is not None:
        found = _path("task.data.directory", directory, Path())
        values["task"] = {**task, "data": {**data, "directory": found}}


_DISTRIBUTIONS = (
    ("covariates", "z"),
    ("covariates", "x"),
    ("device",),
    ("device", "battery"),
    ("link",),
)
"""The tables of a group whose values can be distributions, which may name a file."""


def _set_files(values: dict[str, Any], scenario: Path) -> None:
    """Make the paths absolute that the scenario names. They are relative to its file."""
    _make_absolute(values.get("launch"), "authority", scenario)
    for table, key in _file_settings(values):
        _make_absolute(table, key, scenario)


def named_files(values: Mapping[str, Any]) -> Iterator[Path]:
    """Yield the files and folders that decide a run and that the settings of a scenario name, as
    `read_scenario` has settled them. The files of built-in data sets are not among them."""
    for table, key in _file_settings(values):
        if not isinstance(table, Mapping):
            continue
        if key in TRACES:
            yield from _traces_in(table.get(key))
        elif isinstance(table.get(key), str):
            yield Path(table[key])


def recordings_of(values: Mapping[str, Any]) -> Iterator[Path]:
    """Yield the recordings of links and lives that the settings of a scenario name."""
    for group in values.get("groups", ()):
        for key in TRACES:
            yield from _traces_in(_table(group, ("link",)).get(key))
        for table, key in recordings_in(group.get("shared_link")):
            yield from _traces_in(table.get(key))
        for keys in (("availability",), ("device", "recorded")):
            if isinstance(file := _table(group, keys).get("file"), str):
                yield Path(file)


def _traces_in(setting: object) -> Iterator[Path]:
    """Yield the recordings that a setting of a link stands for. Those that a column of a file names
    are relative to that file."""
    with suppress(ValueError):  # they are gone, which is noticed by itself
        if isinstance(setting, str):
            yield from files_of(setting)
        elif isinstance(setting, Mapping):
            path = str(setting.get("path"))
            for name in sorted(set(read_table(path).texts(str(setting.get("column"))) or ())):
                yield Path(path).parent / name


def _file_settings(values: Mapping[str, Any]) -> Iterator[tuple[object, str]]:
    """The tables and keys of settings that name files; the table may be of another type, and the
    key may be missing."""
    task = values.get("task")
    yield values.get("life"), "record"
    yield values.get("energy"), "intensity"
    yield task, "app"
    yield task, "initial"
    yield task, "path"  # of a model whose settings stand beside `model`
    source, model = (
        task.get(k) if isinstance(task, Mapping) else None for k in ("source", "model")
    )
    yield source, "path"
    yield source, "test_path"
    yield model, "path"
    groups = values.get("groups")
    for group in groups if isinstance(groups, list) else ():
        if not isinstance(group, dict):
            continue
        yield group, "table"
        yield group.get("table"), "path"
        yield group.get("availability"), "file"
        yield _table(group, ("device",)).get("recorded"), "file"
        for key in TRACES:
            yield group.get("link"), key
        yield from recordings_in(group.get("shared_link"))
        for keys in _DISTRIBUTIONS:
            for setting in _table(group, keys).values():
                yield setting, "path"


def _table(group: dict[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    """The table at some keys of a group; empty if there is none."""
    found: Any = group
    for key in keys:
        found = found.get(key) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else {}


def _make_absolute(table: object, key: str, scenario: Path) -> None:
    if isinstance(table, dict) and isinstance(table.get(key), str):
        table[key] = _path(key, table[key], scenario.parent)


def _path(key: str, text: str, parent: Path) -> str:
    """The absolute path that a setting names."""
    try:
        return str((parent / Path(text).expanduser()).resolve())
    except (ValueError, RuntimeError, OSError) as error:
        raise ConfigError(f"{key}: {text!r} cannot be a path: {error}") from None
