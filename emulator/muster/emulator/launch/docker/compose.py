"""Writes the text of a fleet's compose file from plain values; reads and starts nothing.

The file should also be readable for people. Settings that containers share are written once, in
blocks whose names begin with `x-`. Paths in the run folder are relative to the file, which lies in
that folder.

The file works with `docker compose` and with docker-compose 1.29. The latter does not know the key
`name`, so the project's name is in the file `.env` beside it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from muster.emulator.launch import COMPOSE
from muster.emulator.launch.docker.container_limits import LOG_DRIVER, LOG_OPTIONS
from muster.emulator.launch.docker.services import (
    FOLDER_LABEL,
    NAME_LABEL,
    TMP,
    Mount,
    Service,
    docker_name,
)

ENVIRONMENT: Final = ".env"

_MEBI: Final = 1 << 20

_RESTART: Final = "on-failure"
_HEALTH: Final = {"interval": "2s", "timeout": "10s", "retries": 60}
"""Every health check starts a Python process in the container, which takes some 50 ms of a core.
Devices wait for the first check."""

_GPUS: Final = {"driver": "nvidia", "count": "all", "capabilities": ["gpu"]}

_OF_ONE: Final = ("volumes", "labels")
"""Keys whose values differ between the devices of a group."""

_HEAD = """\
# The fleet of the scenario {scenario} in containers, as `muster up` wrote it.
#
#   docker compose --file {file} ps      what runs
#   muster status {folder}       how the run stands; also: muster watch, muster stop
#   muster down {folder}         ends it, keeps the logs, removes all it has in Docker
#
# It may be edited and kept: limits, images, environment, services of your own. After `muster down`,
# `muster up --resume {folder}` starts what it says. The programs' settings lie in setup/;
# docs/containers.md explains them.
"""


@dataclass(frozen=True, slots=True)
class Project:
    """The content of a compose file besides its services.

    Attributes:
        name: prefix of the names of containers and networks.
        folder: the run folder, which holds the file.
        shown: the run folder as a person would type it.
        user: user and group id of all processes.
        cores: number of cores of the machine; no container gets more.
        networks: by name, whether a network has no way out.
        restarts: number of times Docker restarts a server that died.
    """

    name: str
    scenario: str
    folder: Path
    shown: str
    user: tuple[int, int]
    cores: int
    networks: Mapping[str, bool]
    restarts: int = 0


def environment_text(project: Project) -> str:
    """The text of the file `.env`."""
    return f"COMPOSE_PROJECT_NAME={project.name}\n"


def compose_text(project: Project, services: Sequence[Service]) -> str:
    """The text of the file `docker-compose.yml`."""
    container = _Block("container", _common(project, services))
    blocks = {"container": container}
    parts = {}
    for service in services:
        body, block = _body(project, service), container
        if service.role == "device":
            name = f"devices-{service.networks[0]}"
            if name not in blocks:
                common = {
                    key: value
                    for key, value in body.items()
                    if key not in _OF_ONE and container.get(key) != value
                }
                blocks[name] = _Block(name, {_MERGE: container, **common})
            if blocks[name].keys() - {_MERGE} <= body.keys():
                block = blocks[name]
        said = {**container, **block}
        new = {key: value for key, value in body.items() if said.get(key) != value}
        parts[docker_name(service.name)] = {_MERGE: block, **new}
    labels = {FOLDER_LABEL: str(project.folder)}
    networks = {
        name: {**({"internal": True} if closed else {}), "labels": _Line(labels)}
        for name, closed in project.networks.items()
    }
    sections: dict[str, Any] = {f"x-{name}": block for name, block in blocks.items()}
    sections |= {"services": parts, "networks": networks}
    file = f"{project.shown}/{COMPOSE}"
    head = _HEAD.format(scenario=project.scenario, folder=project.shown, file=file)
    return "\n".join([head, *_yaml(sections)])


def _common(project: Project, services: Sequence[Service]) -> dict[str, Any]:
    """The settings that all containers share."""
    own = [service for service in services if service.role != "monitoring"]
    first, *others = [dict(service.environment) for service in own]
    same = {"environment": first} if first and all(each == first for each in others) else {}
    return {
        "user": "{}:{}".format(*project.user),
        "read_only": True,
        "tmpfs": _tmpfs(TMP),
        "cap_drop": _line("ALL"),
        "security_opt": _line("no-new-privileges:true"),
        "init": True,
        "logging": {"driver": LOG_DRIVER, "options": _Line(LOG_OPTIONS)},
        **same,
    }


def _body(project: Project, service: Service) -> dict[str, Any]:
    limits = service.limits
    memory = f"{limits.memory_bytes // _MEBI}m"
    body: dict[str, Any] = {
        "image": service.image,
        **({"command": _line(*service.command)} if service.command else {}),
        "networks": _line(*service.networks),
        "cpus": min(limits.cpus, float(project.cores)),
        "mem_limit": memory,
        "memswap_limit": memory,  # of memory and swap together, so it gets no swap
        "pids_limit": limits.processes,
    }
    if service.profile:
        body["profiles"] = _line(service.profile)
    if service.environment:
        body["environment"] = dict(service.environment)
    if service.health:
        body["healthcheck"] = {"test": _line("CMD", *service.health), **_HEALTH}
    if service.after:
        conditions = {docker_name(n): {"condition": "service_healthy"} for n in service.after}
        body["depends_on"] = conditions
    if service.gpus:
        reserved = {"reservations": {"devices": [_Line(_GPUS)]}}
        body["deploy"] = {"resources": reserved}
    if service.role != "server":
        body["restart"] = _RESTART
    elif project.restarts:
        body["restart"] = f"{_RESTART}:{project.restarts}"
    if service.ports:
        body["ports"] = [f"127.0.0.1:{out}:{inside}" for inside, out in service.ports.items()]
    body["tmpfs"] = _tmpfs(service.in_memory(project.user))
    if service.mounts:
        body["volumes"] = [_volume(project, mount) for mount in service.mounts]
    body["labels"] = _Line({FOLDER_LABEL: str(project.folder), NAME_LABEL: service.name})
    return body


def _tmpfs(folders: Mapping[str, str]) -> "_Items":
    return _line(*(f"{folder}:{options}" for folder, options in folders.items()))


def _volume(project: Project, mount: Mount) -> "_Line":
    """A mount in the long form, in which a path may contain a colon, and a missing path is an
    error."""
    source = Path(mount.source)
    if source.is_relative_to(project.folder):
        inside = source.relative_to(project.folder)
        place = f"./{inside}" if inside.parts else "."
    else:
        place = str(source)
    how = {} if mount.writable else {"read_only": True}
    return _Line({"type": "bind", "source": place, "target": mount.target, **how})


# --- YAML ----------------------------------------------------------------------------------------


class _Block(dict[str, Any]):
    """Keys that are written once under a name, so that other mappings can merge them."""

    def __init__(self, name: str, keys: Mapping[str, Any]) -> None:
        super().__init__(keys)
        self.name = name


class _Line(dict[str, Any]):
    """A mapping that is written on one line."""


class _Items(list[str]):
    """A list that is written on one line."""


_MERGE = "<<"


def _line(*items: str) -> _Items:
    return _Items(items)


class _Dumper(yaml.SafeDumper):
    """Writes blocks once and refers to them by name; writes all other values in full."""

    def ignore_aliases(self, data: Any) -> bool:
        return not isinstance(data, _Block)

    def generate_anchor(self, node: Any) -> str:
        return str(node.block)

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def _block(dumper: _Dumper, block: _Block) -> yaml.Node:
    node = _mapping(dumper, block)
    node.block = block.name  # type: ignore[attr-defined]
    return node


def _mapping(dumper: _Dumper, keys: Mapping[str, Any]) -> yaml.Node:
    node = dumper.represent_mapping("tag:yaml.org,2002:map", keys.items())
    for key, _ in node.value:
        if key.value == _MERGE:
            key.tag = "tag:yaml.org,2002:merge"  # as text it would be quoted
    return node


def _one_line(dumper: _Dumper, value: _Line | _Items) -> yaml.Node:
    if isinstance(value, _Line):
        return dumper.represent_mapping("tag:yaml.org,2002:map", value.items(), flow_style=True)
    return dumper.represent_sequence("tag:yaml.org,2002:seq", value, flow_style=True)


def _text(dumper: _Dumper, text: str) -> yaml.Node:
    """A string in which every dollar is doubled, because a single dollar begins a variable in a
    compose file."""
    return dumper.represent_scalar("tag:yaml.org,2002:str", text.replace("$", "$$"))


_Dumper.add_representer(_Block, _block)
_Dumper.add_representer(dict, _mapping)
_Dumper.add_representer(_Line, _one_line)
_Dumper.add_representer(_Items, _one_line)
_Dumper.add_representer(str, _text)


def _yaml(sections: Mapping[str, Any]) -> list[str]:
    """The sections as text, with an empty line between them and between services."""
    text = yaml.dump(sections, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=1_000_000)
    lines: list[str] = []
    section = ""
    for line in text.splitlines():
        if not line.startswith(" "):
            lines += [""] if section else []
            section = line
        elif section == "services:" and line[2] != " " and lines[-1] != section:
            lines.append("")
        lines.append(line)
    return [*lines, ""]
