"""Writes the text of a fleet's compose file from plain values; reads and starts nothing.

The file should also be readable for people. Settings that containers share are written once, in
blocks whose names begin with `x-`. Paths in the run folder are relative to the file, which lies in
that folder.

The file works with `docker compose` and with docker-compose 1.29. The latter does not know the key
`name`, so the project's name is in the file `.env` beside it. For a swarm the same services are
written with the keys that `docker stack deploy` knows (`launch.docker.stack`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from muster.emulator.launch.docker.container_limits import CPU_PERIOD_US, LOG_DRIVER, LOG_OPTIONS
from muster.emulator.launch.docker.services import (
    FOLDER_LABEL,
    NAME_LABEL,
    TMP,
    Mount,
    Service,
    docker_name,
)
from muster.emulator.launch.docker.stack import Swarm, empty_mounts
from muster.emulator.run_folder.folder import COMPOSE, SWARM

ENVIRONMENT: Final = ".env"

_MEBI: Final = 1 << 20
_STACK_VERSION: Final = "3.9"

_RESTART: Final = "on-failure"
_HEALTH: Final = {"interval": "2s", "timeout": "10s", "retries": 60}
"""Every health check starts a Python process in the container, which takes some 50 ms of a core.
Devices wait for the first check."""

_GPUS: Final = {"driver": "nvidia", "count": "all", "capabilities": ["gpu"]}

_OF_ONE: Final = ("container_name", "volumes", "labels")
"""Keys whose values differ between the devices of a group."""

_HEAD = """\
# The fleet of the scenario {scenario} in containers, as `muster up` wrote it.
#
#   {look}      what runs
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
        restarts: number of times a swarm restarts a server that died.
        swarm: the swarm that runs the fleet; None: Docker Compose, on this machine.
    """

    name: str
    scenario: str
    folder: Path
    shown: str
    user: tuple[int, int]
    cores: int
    networks: Mapping[str, bool]
    restarts: int = 0
    swarm: Swarm | None = None


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
    driver = {} if project.swarm is None else {"driver": "overlay"}
    networks = {
        name: {**driver, **({"internal": True} if closed else {}), "labels": _Line(labels)}
        for name, closed in project.networks.items()
    }
    sections: dict[str, Any] = {}
    look = f"docker compose --file {project.shown}/{COMPOSE} ps"
    if project.swarm is not None:
        sections = {"version": _STACK_VERSION, SWARM: {"node": project.swarm.node}}
        look = f"docker stack ps {project.name}"
    sections |= {f"x-{name}": block for name, block in blocks.items()}
    sections |= {"services": parts, "networks": networks}
    head = _HEAD.format(scenario=project.scenario, folder=project.shown, look=look)
    return "\n".join([head, *_yaml(sections)])


def _common(project: Project, services: Sequence[Service]) -> dict[str, Any]:
    """The settings that all containers share."""
    own = [service for service in services if service.role != "monitoring"]
    first, *others = [dict(service.environment) for service in own]
    same = {"environment": first} if first and all(each == first for each in others) else {}
    alone = {
        "tmpfs": _tmpfs(TMP),
        "security_opt": _line("no-new-privileges:true"),
        "cpu_period": CPU_PERIOD_US,
    }
    return {
        "user": "{}:{}".format(*project.user),
        "read_only": True,
        "cap_drop": _line("ALL"),
        **(alone if project.swarm is None else {}),
        "init": True,
        "logging": {"driver": LOG_DRIVER, "options": _Line(LOG_OPTIONS)},
        **same,
    }


def _body(project: Project, service: Service) -> dict[str, Any]:
    body: dict[str, Any] = {
        "image": service.image,
        **({"command": _line(*service.command)} if service.command else {}),
        "networks": _line(*service.networks),
    }
    if service.environment:
        body["environment"] = dict(service.environment)
    if service.health:
        body["healthcheck"] = {"test": _line("CMD", *service.health), **_HEALTH}
    volumes = [_volume(project, mount) for mount in service.mounts]
    if project.swarm is None:
        body |= _alone(project, service)
    else:
        body |= _in_stack(project, service, project.swarm)
        volumes += [_volume(project, mount) for mount in empty_mounts(project.folder, service)]
        folders = [*TMP, *service.scratch]
        volumes += [_Line({"type": "tmpfs", "target": folder}) for folder in folders]
    if volumes:
        body["volumes"] = volumes
    body["labels"] = _Line({FOLDER_LABEL: str(project.folder), NAME_LABEL: service.name})
    return body


def _alone(project: Project, service: Service) -> dict[str, Any]:
    """The keys of a service that only Docker Compose knows."""
    limits = service.limits
    memory = f"{limits.memory_bytes // _MEBI}m"
    body: dict[str, Any] = {
        "container_name": f"{project.name}-{docker_name(service.name)}",
        # Not cpus, because Docker does not change that together with the quota of a fault.
        "cpu_quota": int(min(limits.cpus, project.cores) * CPU_PERIOD_US),
        "mem_limit": memory,
        "memswap_limit": memory,  # of memory and swap together, so it gets no swap
        "pids_limit": limits.processes,
    }
    if service.profile:
        body["profiles"] = _line(service.profile)
    if service.after:
        conditions = {docker_name(n): {"condition": "service_healthy"} for n in service.after}
        body["depends_on"] = conditions
    if service.gpus:
        reserved = {"reservations": {"devices": [_Line(_GPUS)]}}
        body["deploy"] = {"resources": reserved}
    if service.role == "monitoring":
        body["restart"] = _RESTART  # the supervisor restarts the others
    if service.ports:
        body["ports"] = [f"127.0.0.1:{out}:{inside}" for inside, out in service.ports.items()]
    body["tmpfs"] = _tmpfs(service.in_memory(project.user))
    return body


def _in_stack(project: Project, service: Service, swarm: Swarm) -> dict[str, Any]:
    """The keys of a service that only `docker stack deploy` knows. A service has no address of its
    own besides that of its container, so that what connects to it is not sent elsewhere."""
    limits = service.limits
    resources = {
        "cpus": str(min(limits.cpus, float(project.cores))),
        "memory": f"{limits.memory_bytes // _MEBI}m",
        "pids": limits.processes,
    }
    restart: dict[str, Any] = {"condition": _RESTART, "delay": "1s"}
    if service.role == "server":
        again = {"max_attempts": project.restarts}
        restart = {**restart, **again} if project.restarts else {"condition": "none"}
    body: dict[str, Any] = {
        "deploy": {
            "endpoint_mode": "dnsrr",
            "placement": {"constraints": _line(*swarm.constraints(service))},
            "resources": {"limits": _Line(resources)},
            "restart_policy": _Line(restart),
            "labels": _Line({FOLDER_LABEL: str(project.folder), NAME_LABEL: service.name}),
        }
    }
    if service.role == "server":  # the others need no port of the machine that they are on
        ports = service.ports.items()
        body["ports"] = [
            _Line({"target": inside, "published": out, "mode": "host"}) for inside, out in ports
        ]
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
