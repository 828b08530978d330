"""The scenario: one TOML file that describes a whole experiment."""

import copy
import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import tomli_w
from pydantic import Field, model_validator

from muster.client.availability import AnyAvailability
from muster.client.availability.always import Always
from muster.client.config import ClockSettings, Training
from muster.client.covariates import Covariates, column_names
from muster.client.device import DeviceSettings
from muster.client.logit import Logit
from muster.client.participation import ParticipationSettings
from muster.common.bounds import DEVICES, DeviceCount
from muster.common.config import Section, parse_toml, require_plain, validate
from muster.common.errors import ConfigError
from muster.emulator.fleet.enrollment import AnyEnrollment, EnrollAll
from muster.emulator.links.settings import LinkSettings, SharedLink
from muster.emulator.scenario.own_code import make_importable, settle_modules
from muster.server.aggregators import Conditions
from muster.server.config import ServerSettings
from muster.tasks.tasks import AnyTask

DATA_VARIABLE = "MUSTER_DATA"

_LEAST_STALL_S = 1.0

_STEPS_PER_S = 100
"""Most steps of a device's simulation in a second of wall time. One step takes a device up to a
millisecond."""

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)]
"""A name that becomes part of file names. It is so short that a file name made of two of them and
a suffix is still valid."""


class Group(Section):
    """A group of devices that share a description."""

    name: Name
    """Name of the group. The names of its devices and of their folders begin with it."""

    count: DeviceCount
    """Number of devices in the group."""

    devices_per_process: DeviceCount = 1
    """Number of devices that share a process and its connection, so that one message carries many
    answers. Each device still has its own identity, state, data and random streams. With 1, every
    device has its own process."""

    devices_per_container: DeviceCount = 1
    """With the docker backend, number of devices that share a container. Each of them still has
    its own process."""

    covariates: Covariates = Covariates()
    """Covariates of the devices: Z is observed before enrollment, X before every round."""

    enrollment: AnyEnrollment = EnrollAll(kind="all")
    """Rule that decides which devices are enrolled. The others never train."""

    device: DeviceSettings = DeviceSettings()
    """Hardware and state of the devices, for example their speed and battery."""

    availability: AnyAvailability = Always(kind="always")
    """When the devices can be reached."""

    participation: ParticipationSettings = ParticipationSettings()
    """How the devices respond to a call of the server."""

    link: LinkSettings = LinkSettings()
    """Link of each device to the server."""

    shared_link: SharedLink = SharedLink()
    """Link that all devices of the group share."""

    @property
    def gateway(self) -> bool:
        """Whether the devices reach the server through a gateway."""
        return self.link.gateway or self.shared_link.gateway

    @property
    def shaped(self) -> bool:
        """Whether the gateway delays, limits or denies anything."""
        return self.link.shapes or self.shared_link.gateway

    @property
    def processes(self) -> int:
        """Number of processes in which the group's devices run."""
        return -(-self.count // self.devices_per_process)


class Launch(Section):
    """How the processes of a run are started, restarted and placed."""

    restarts: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    """Number of deaths after which a process is restarted instead of failing the run. Deaths of
    the server, of gateways and of devices count, also while they start; deaths of the nursery
    count only while it starts. Whatever the number, a run that failed can be resumed."""

    start: Literal["fork", "spawn"] = "fork"
    """How device processes are started. `fork` forks them from a warm parent, which takes
    milliseconds and shares the parent's memory. With `spawn`, every process imports torch and reads
    its data by itself, which takes seconds. Devices on a GPU are always spawned."""

    own_core: bool = True
    """Whether the server gets a CPU core of its own while rounds wait for the server rather than
    for devices, as with tiny models. The devices then share the other cores. Applies to Linux and
    the processes backend."""

    server_image: str = Field(default_factory=lambda: f"muster-server:{version('muster')}")
    """With the docker backend, image of the server and of gateways."""

    client_image: str = Field(default_factory=lambda: f"muster-client:{version('muster')}")
    """With the docker backend, image of the devices and of the evaluation. You may use an image
    derived from ours that adds packages of your own."""

    devices_per_gpu: DeviceCount = 8
    """Number of processes that may train on one GPU. Each takes some hundred MiB of its memory."""


class Scenario(Section):
    """A whole experiment."""

    name: Name
    """Name of the experiment. It is part of the run folder's name."""

    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Seed from which all random numbers of the emulation are drawn."""

    clock: ClockSettings = ClockSettings()
    task: AnyTask
    training: Training = Field(default_factory=Training)
    server: ServerSettings
    groups: Annotated[list[Group], Field(min_length=1, max_length=10_000)]
    launch: Launch = Launch()

    modules: str | None = None
    """The folder from which every process imports code of your own, which a scenario names as
    `module:Class` or `module:function`; relative to the scenario file. By default it is the folder
    of the scenario file."""

    verify: bool = False
    """Whether to measure every link briefly before the run. (`muster verify` measures at length.)
    If a link does not match its settings, the run ends before it begins."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        mistakes = list(_contradictions(self))
        if mistakes:
            raise ValueError("\n".join(mistakes))
        return self

    @property
    def devices(self) -> int:
        """Number of devices in the population."""
        return sum(group.count for group in self.groups)

    @property
    def processes(self) -> int:
        """Number of processes in which devices run."""
        return sum(group.processes for group in self.groups)

    @property
    def z_columns(self) -> list[str]:
        """Columns of the covariates Z that any group has."""
        names = (column_names(group.covariates.levels()) for group in self.groups)
        return list(dict.fromkeys(name for of_group in names for name in of_group))

    @property
    def conditions(self) -> Conditions:
        """The conditions under which the scenario's aggregator works."""
        return Conditions(
            z=frozenset(self.z_columns),
            x=frozenset(name for group in self.groups for name in group.covariates.x),
            full=self.server.information == "full",
            selection=self.server.selection.kind,
            lockstep=self.clock.kind == "rounds",
            gradient=self.training.gradient,
            projected=self.training.projection_radius is not None,
        )

    def to_toml(self) -> str:
        """The scenario with every default, as it is written into the run folder."""
        return tomli_w.dumps(self.model_dump(exclude_none=True))


def _contradictions(scenario: Scenario) -> Sequence[str]:
    found = []
    names = [group.name for group in scenario.groups]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        found.append(
            f"groups: two groups are called {', '.join(twice)}; expected a different name for each"
        )
    if scenario.devices > DEVICES:
        found.append(f"groups: {scenario.devices:,} devices in all, expected at most {DEVICES:,}")
    wanted = getattr(scenario.server.selection, "k", None)
    if wanted is not None and wanted > scenario.devices:
        found.append(
            f"server.selection.k: {wanted} devices per round, but the population has only "
            f"{scenario.devices}"
        )
    goal = scenario.server.round_goal()
    if goal is not None and goal > scenario.devices:
        found.append(
            f"server.goal: {goal} updates, but the population has only {scenario.devices} devices"
        )
    found += _too_many_wanted(scenario.server, wanted, goal, scenario.devices)
    kind = scenario.clock.kind
    if kind != "rounds" and scenario.server.deadline_s is None:
        found.append(
            f"server.deadline_s: required with clock.kind = {kind!r}, because devices may leave "
            f"during a round"
        )
    shaped = any(group.shaped for group in scenario.groups)
    if scenario.server.stall_s < _LEAST_STALL_S:
        found.append(
            f"server.stall_s: {scenario.server.stall_s:g} s are not enough for a process to start, "
            f"expected at least {_LEAST_STALL_S:g}"
        )
    steps_per_s = scenario.clock.scale / scenario.clock.round_s
    if kind != "rounds" and steps_per_s > _STEPS_PER_S:
        found.append(
            f"clock.round_s: devices would simulate {steps_per_s:,.0f} steps per second of wall "
            f"time, expected at most {_STEPS_PER_S}; choose a longer clock.round_s or a smaller "
            f"clock.scale"
        )
    if kind == "scaled" and scenario.clock.scale != 1 and shaped:
        found.append(
            f"clock.scale: {scenario.clock.scale:g}, but links are real and run in wall time; "
            f"expected 1 with links"
        )
    if scenario.verify and not any(group.gateway for group in scenario.groups):
        found.append("verify: no group has a link to measure; set groups.link.profile")
    mistakes = len(found)
    for number, group in enumerate(scenario.groups):
        found += [f"groups[{number}].{mistake}" for mistake in _impossible(scenario, group)]
    if len(found) == mistakes:  # otherwise the covariates that exist are not known
        found += _missing_covariates(scenario)
        reasons = scenario.server.aggregator.refusals(scenario.conditions)
        found += [f"server.aggregator: {reason}" for reason in reasons]
    return found


def _too_many_wanted(
    server: ServerSettings, wanted: int | None, goal: int | None, devices: int
) -> Iterator[str]:
    """Report a minimum of updates that no round can reach, so that every round would be empty."""
    if goal is not None:
        most, why = goal, f"the goal of {goal}"
    elif wanted is not None:
        most, why = wanted, f"the {wanted} devices that a round calls"
    else:
        most, why = devices, f"the population of {devices}"
    if server.minimum > most:
        yield f"server.minimum: {server.minimum} is more than {why}"


def _missing_covariates(scenario: Scenario) -> Iterator[str]:
    """Report covariates Z that the task needs for the clients' data but that no group has."""
    known = ", ".join(scenario.z_columns) or "none"
    for name in sorted(scenario.task.needs().difference(scenario.z_columns)):
        yield f"task.covariates: no group has a covariate Z {name!r}; there are: {known}"


def _impossible(scenario: Scenario, group: Group) -> Iterator[str]:
    """Report settings of a group that contradict each other or the rest of the scenario."""
    if group.gateway and group.devices_per_process > 1:
        yield (
            f"devices_per_process: {group.devices_per_process} devices of a process share one "
            f"connection, but each device needs a link of its own; expected 1 with a link"
        )
    if group.shared_link.slots is not None and scenario.clock.kind != "rounds":
        yield f"shared_link.slots: slots need clock.kind = 'rounds'; found {scenario.clock.kind!r}"
    elif group.shared_link.slots is None and group.shared_link.overflow != "queue":
        yield f"shared_link.overflow: {group.shared_link.overflow!r} needs slots; found none"
    try:
        group.availability.check(group.name, group.count, scenario.clock.round_s)
    except ValueError as error:
        yield f"availability: {error}"
    willing = group.participation.willing
    wanted = {"availability": group.availability.needs()}
    if isinstance(willing, Logit):
        wanted["participation.willing"] = set(willing.z), set(willing.x)
    try:
        levels = group.covariates.levels()
    except ValueError as error:
        yield f"covariates: {error}"
        return
    there = {"z": set(column_names(levels)), "x": set(group.covariates.x)}
    for path, (z, x) in wanted.items():
        for kind, names in (("z", z), ("x", x)):
            for name in sorted(names - there[kind]):
                known = ", ".join(sorted(there[kind])) or "none"
                yield f"{path}.{kind}.{name}: there is no such covariate; there are: {known}"


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
    try:
        values = parse_toml(path.read_text(encoding="utf-8"), str(path))
    except FileNotFoundError:
        raise ConfigError(f"there is no scenario {path}; see examples/ for scenarios") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not TOML: {error}") from None
    for setting in settings:
        key, value = _pair(setting) if isinstance(setting, str) else setting
        _set(values, key, copy.deepcopy(value))
    require_plain(values, str(path))
    _set_data(values, data or os.environ.get(DATA_VARIABLE), path)
    _set_files(values, path)
    settle_modules(values, path)
    if isinstance(modules := values.get("modules"), str):
        make_importable(modules)
    return validate(Scenario, values, str(path))


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
    setting = f"{key}={value}"
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
            raise ConfigError(f"--set {setting}: {part} is {place!r}, which has no keys")
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


def _set_files(values: dict[str, Any], scenario: Path) -> None:
    """Make the paths of files that groups name absolute. They are relative to the scenario."""
    groups = values.get("groups")
    for group in groups if isinstance(groups, list) else ():
        if not isinstance(group, dict):
            continue
        _make_absolute(group.get("availability"), "file", scenario)
        _make_absolute(group.get("link"), "trace", scenario)
        _make_absolute(group.get("link"), "trace_up", scenario)
        covariates = group.get("covariates")
        if isinstance(covariates, dict):
            for sort in ("z", "x"):
                named = covariates.get(sort)
                for covariate in named.values() if isinstance(named, dict) else ():
                    _make_absolute(covariate, "path", scenario)


def _make_absolute(table: object, key: str, scenario: Path) -> None:
    if isinstance(table, dict) and isinstance(table.get(key), str):
        table[key] = _path(key, table[key], scenario.parent)


def _path(key: str, text: str, parent: Path) -> str:
    """The absolute path that a setting names."""
    try:
        return str((parent / Path(text).expanduser()).resolve())
    except (ValueError, RuntimeError, OSError) as error:
        raise ConfigError(f"{key}: {text!r} cannot be a path: {error}") from None
