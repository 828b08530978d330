"""The containers of a fleet as plain values, from which both the docker backend and the compose
file are made.

    backbone            server, evaluation, gateways; the server's ports and the gateways' control
                        ports are published on this machine's loopback
    group-NAME          the devices of a group, and its gateway; no route to anywhere else

A gateway is in both networks, so it is a device's only way to the server.
"""

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from muster.client.processes.config import PackContainer, PackProcess
from muster.common.config import Section
from muster.common.credentials import (
    EVALUATION,
    SECRETS,
    SERVER,
    credentials_path,
    device_name,
    gateway_identity,
)
from muster.common.environment import container_environment
from muster.common.files import write_atomic
from muster.common.own_code import announced, announcement
from muster.common.processes import OWN_CODE, program_arguments
from muster.emulator.fleet.packs import DeviceFolders
from muster.emulator.gateway.config import GatewayProcess, Ports, gateway_name
from muster.emulator.launch.docker.container_limits import (
    GATEWAY_LIMITS,
    SERVER_LIMITS,
    Limits,
    device_limits,
)
from muster.emulator.run_folder.folder import SCENARIO
from muster.emulator.scenario.reading import recordings_of
from muster.emulator.scenario.scenario import Scenario
from muster.emulator.scenario.settings import Group
from muster.server.settings.process import ServerProcess

Role = Literal["server", "evaluation", "gateway", "device", "monitoring"]

SERVER_PORT: Final = 7100
EVALUATION_PORT: Final = 7200
METRICS_PORT: Final = 7300
CONTROL_PORT: Final = 7000
"""A gateway's control port; the ports of its devices follow."""

BACKBONE: Final = "backbone"
RUN: Final = "/run/muster"
STATE: Final = "/state"
WORDS: Final = "/words"
CONFIG: Final = "/config.json"
OWN: Final = "/own"
CREDENTIALS: Final = "/credentials"
INSIDE: Final = DeviceFolders(STATE, CREDENTIALS)

TMP: Final[Mapping[str, str]] = {"/tmp": "mode=1777"}
"""The folder in which every container may write, with its mount options. Docker adds noexec, nosuid
and nodev. What is in it counts as memory of the container."""

FOLDER_LABEL: Final = "muster.folder"
"""Label of everything that belongs to a run; its value is the run folder."""

NAME_LABEL: Final = "muster.name"
"""Label of a container; its value is the name of its service."""

_NOT_OF_SERVER: Final = ("setup", "devices", "logs")
"""Folders of the run folder that the server does not see: the settings and credentials of others,
the socket of the supervisor, the states of devices, and the logs."""

UNPRIVILEGED: Final = 10001
"""User id of containers that root starts, as in the images. Containers of other users run with the
id of that user."""


@dataclass(frozen=True, slots=True)
class Mount:
    """A file or folder of this machine in a container."""

    source: str
    target: str
    writable: bool = False


@dataclass(frozen=True, slots=True)
class Service:
    """One container.

    Attributes:
        name: name of the container, and its host name in its networks.
        ports: ports published on this machine's loopback, by port inside the container.
        health: a command that succeeds once the container serves; empty: none.
        after: services that must be healthy before it starts.
        gpus: whether it gets the machine's GPUs.
        hidden: folders of its mounts that are empty inside the container, apart from other mounts.
        scratch: folders in its memory in which it writes, besides `TMP`.
        profile: it starts only with this profile of the compose file; empty: always.
    """

    name: str
    role: Role
    image: str
    command: Sequence[str]
    networks: Sequence[str]
    limits: Limits
    mounts: Sequence[Mount] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    ports: Mapping[int, int] = field(default_factory=dict)
    health: Sequence[str] = ()
    after: Sequence[str] = ()
    gpus: bool = False
    hidden: Sequence[str] = ()
    scratch: Sequence[str] = ()
    profile: str = ""

    def in_memory(self, user: tuple[int, int]) -> Mapping[str, str]:
        """Folders in the memory of the container, with the options of their mounts. `user` may
        enter the hidden ones, whose modes are those of the folders below them."""
        hidden = dict.fromkeys(self.hidden, "ro,uid={},gid={}".format(*user))
        return {**TMP, **dict.fromkeys(self.scratch, "mode=1777"), **hidden}


class Site:
    """Makes the containers of one run, with the files and folders of this machine that they see.

    Attributes:
        user: user and group id of the containers' processes.
    """

    def __init__(self, scenario: Scenario, folder: Path) -> None:
        self.scenario = scenario
        self.folder = folder
        self.user = _user()
        self._groups = {group.name: group for group in scenario.groups}

    def networks(self) -> Mapping[str, bool]:
        """Names of the networks, and whether each has no way out."""
        groups = {group_network(group.gateway_group): True for group in self.scenario.groups}
        return {BACKBONE: False, **groups}

    def with_addresses(self, server: ServerProcess, outside: int) -> ServerProcess:
        """The server's settings for its container; `outside` is its port on this machine."""
        return server.model_copy(
            update={
                "host": "0.0.0.0",
                "port": SERVER_PORT,
                "metrics_port": None if server.metrics_port is None else METRICS_PORT,
                "outside": f"127.0.0.1:{outside}",
                "evaluation": f"evaluation:{EVALUATION_PORT}",
                "credentials": _inside(SERVER),
            }
        )

    def server(self, outside: int, read_only: Sequence[str] = ()) -> Service:
        """The container of the server, published at port `outside` of this machine, and its metrics
        at the port that the scenario names.

        Args:
            read_only: more files of the run folder that the server must not write.
        """
        files = ["setup/server.json", "setup/initial.safetensors", SCENARIO, *read_only]
        metrics = self.scenario.server.metrics_port
        return Service(
            name="server",
            role="server",
            image=self.scenario.launch.server_image,
            command=["python", *program_arguments("muster.server", RUN)],
            networks=[BACKBONE],
            limits=SERVER_LIMITS,
            mounts=[
                Mount(str(self.folder), RUN, writable=True),
                *(Mount(str(self.folder / name), f"{RUN}/{name}") for name in files),
                self._credentials(SERVER),
                *self._own(),
                *self._recordings(),
            ],
            hidden=[*(f"{RUN}/{part}" for part in _NOT_OF_SERVER), *self._private_in(self._own())],
            environment=self._environment(),
            ports={
                SERVER_PORT: outside,
                **({METRICS_PORT: metrics} if metrics is not None else {}),
            },
            health=_listens(SERVER_PORT),
        )

    def evaluation(self) -> Service:
        """The container of the evaluation, which is not the server's because it needs torch."""
        address = f"0.0.0.0:{EVALUATION_PORT}"
        folders = [*self._data(), *self._own()]
        return Service(
            name="evaluation",
            role="evaluation",
            image=self.scenario.launch.client_image,
            command=[
                "python",
                *program_arguments(
                    "muster.server.evaluation.process", address, _inside(EVALUATION)
                ),
            ],
            networks=[BACKBONE],
            limits=SERVER_LIMITS,
            mounts=[self._credentials(EVALUATION), *folders],
            hidden=self._private_in(folders),
            environment=self._environment(),
        )

    def gateway(self, config: GatewayProcess, outside: int) -> tuple[Service, Ports]:
        """The container of a group's gateway, and its ports. Its control port is published at port
        `outside` of this machine."""
        name = gateway_name(config.group)
        identity = gateway_identity(config.group)
        inside = config.model_copy(
            update={
                "host": "0.0.0.0",
                "first_port": CONTROL_PORT,
                "ready": None,
                "again": None,
                "credentials": _inside(identity),
            }
        )
        words: list[Mount] = []
        if config.words is not None:
            place = Path(config.words)
            inside = inside.model_copy(update={"words": f"{WORDS}/{place.name}"})
            words = [Mount(str(place.parent), WORDS, writable=True)]
        traces = {trace for each in config.devices for trace in each.shape.trace_files()}
        traces.update(*(part.trace_files() for part in config.shared.parts))
        service = Service(
            name=name,
            role="gateway",
            image=self.scenario.launch.server_image,
            command=_reading("muster.emulator.gateway"),
            networks=[BACKBONE, group_network(config.group)],
            limits=GATEWAY_LIMITS,
            mounts=[
                self._config(name, inside),
                self._credentials(identity),
                *words,
                *(Mount(trace, trace) for trace in traces),
            ],
            environment=self._environment(),
            ports={CONTROL_PORT: outside},
            health=_listens(CONTROL_PORT),
        )
        devices = {
            each.client: CONTROL_PORT + number for number, each in enumerate(config.devices, 1)
        }
        outside_address = f"127.0.0.1:{outside}"
        return service, Ports(
            host=name, control=CONTROL_PORT, devices=devices, outside=outside_address
        )

    def devices(self, packs: Sequence[PackProcess]) -> Iterator[tuple[Service, list[PackProcess]]]:
        """Yield the containers for packs, each with its packs; those of a group are adjacent."""
        by_group: dict[str, list[PackProcess]] = {}
        for pack in packs:
            by_group.setdefault(self._group_of(pack).name, []).append(pack)
        for name, of_group in by_group.items():
            group = self._groups[name]
            together = max(1, group.devices_per_container // group.devices_per_process)
            for start in range(0, len(of_group), together):
                inside = of_group[start : start + together]
                yield self._devices(group, inside), inside

    def _devices(self, group: Group, packs: Sequence[PackProcess]) -> Service:
        first, last = packs[0].devices[0].client, packs[-1].devices[-1].client
        name = first if first == last else f"{first}..{last}"
        clients = [member.client for pack in packs for member in pack.devices]
        limits = device_limits(group.device.profile)
        many = limits.times(len(packs))
        folders = [*self._data(), *self._own(), *self._recordings()]
        program = f"muster.client.processes.{'spawned' if len(packs) == 1 else 'container'}"
        config = packs[0] if len(packs) == 1 else PackContainer(packs=list(packs))
        states = [
            Mount(str(self.folder / "devices" / client), f"{STATE}/{client}", writable=True)
            for client in clients
        ]
        return Service(
            name=name,
            role="device",
            image=self.scenario.launch.client_image,
            command=_reading(program),
            networks=[group_network(group.gateway_group)],
            limits=many,
            mounts=[
                self._config(name, config),
                *(self._credentials(device_name(pack.name)) for pack in packs),
                *states,
                *folders,
            ],
            hidden=self._private_in(folders),
            environment=self._environment(),
            after=[gateway_name(group.gateway_group)],
            gpus=any(pack.torch_device != "cpu" for pack in packs),
        )

    def _group_of(self, pack: PackProcess) -> Group:
        return self._groups[pack.devices[0].client.rpartition("-")[0]]

    def _config(self, name: str, config: Section) -> Mount:
        """Write a program's settings to a file that is mounted only into its container."""
        path = self.folder / "setup" / f"{name}.config.json"
        write_atomic(path, config.to_json().encode() + b"\n")
        os.chown(path, *self.user)
        return Mount(str(path), CONFIG)

    def _credentials(self, name: str) -> Mount:
        """The folder with a program's credentials, which only its container sees."""
        source = credentials_path(self.folder / SECRETS, name)
        return Mount(str(source.parent), str(Path(_inside(name)).parent))

    def _data(self) -> list[Mount]:
        task = self.scenario.task
        begins = [] if task.initial is None else [task.initial]
        return [Mount(path, path) for path in (*task.paths(), *begins)]

    def _recordings(self) -> list[Mount]:
        """Mounts of the recordings that devices and modelled durations follow."""
        paths = sorted(set(map(str, recordings_of(self.scenario.model_dump(mode="json")))))
        return [Mount(path, path) for path in paths]

    def _own(self) -> list[Mount]:
        """Mounts of the folders of PYTHONPATH, and of the folder of the user's own code."""
        own = announced()
        folders = _python_path() if own is None else [*_python_path(), own[0]]
        return [Mount(path, f"{OWN}/{number}") for number, path in enumerate(folders)]

    def _private_in(self, mounts: Sequence[Mount]) -> list[str]:
        """The run folder and the user's own authority where they are below folders of code or data,
        as a container sees them. It runs as their user, so the modes of files hide nothing."""
        private = [self.folder]
        if self.scenario.launch.authority is not None:
            private.append(Path(self.scenario.launch.authority))
        return [
            str(Path(mount.target) / path.resolve().relative_to(source))
            for mount in mounts
            for path in private
            if (source := Path(mount.source).resolve()) in path.resolve().parents
        ]

    def _environment(self) -> dict[str, str]:
        given = [f"{OWN}/{number}" for number, _ in enumerate(_python_path())]
        own, found = announced(), container_environment()
        if given:
            found["PYTHONPATH"] = ":".join(given)
        if own is not None:
            found[OWN_CODE] = announcement(f"{OWN}/{len(given)}", own[1])
        return found


def project_of(folder: Path) -> str:
    """The name of a run's project, with which the names of its containers and networks begin."""
    digest = hashlib.blake2b(str(folder).encode(), digest_size=4).hexdigest()
    return f"muster-{digest}"


def docker_name(name: str) -> str:
    """A service's name in a form that is valid for Docker, compose files and host names."""
    return name.replace("..", "-to-")


def group_network(group: str) -> str:
    """The network of a group's devices."""
    return f"group-{group}"


def _user() -> tuple[int, int]:
    """User and group id of the containers' processes, which are never root's."""
    return (UNPRIVILEGED, UNPRIVILEGED) if os.geteuid() == 0 else (os.geteuid(), os.getegid())


def _python_path() -> list[str]:
    given = os.environ.get("PYTHONPATH", "")
    return [str(Path(path).resolve()) for path in given.split(os.pathsep) if path]


def _inside(name: str) -> str:
    """The file of a program's credentials in its container."""
    return str(credentials_path(CREDENTIALS, name))


def _reading(module: str) -> list[str]:
    """The command of a program that reads its settings from standard input."""
    return ["sh", "-c", f"exec python {' '.join(program_arguments(module))} < {CONFIG}"]


def _listens(port: int) -> list[str]:
    connect = f"import socket; socket.create_connection(('127.0.0.1', {port}), 2).close()"
    return ["python", "-c", connect]
