"""The ray backend: a server on this machine, and the devices with their gateways on the nodes of a
Ray cluster.

The run folder is on a file system that all nodes share, so every program finds its settings, its
credentials and its state there, wherever it runs. If a node is lost, its programs are started on
other nodes, and the supervisor learns of one death for its gateways each, and of one for all its
packs.
"""

import asyncio
import signal
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from muster.client.processes.config import NurseryProcess, PackProcess
from muster.common.clock import Clock
from muster.common.credentials import SECRETS
from muster.common.errors import ConfigError, LaunchFailed
from muster.emulator.fleet.packs import DeviceFolders
from muster.emulator.gateway.config import GatewayProcess, Ports, gateway_name
from muster.emulator.launch.backend import Died, EndedBeforeReady, Program, ProgramPauses
from muster.emulator.launch.processes import NURSERY, Processes
from muster.emulator.launch.ray.demand import bundles_of
from muster.emulator.launch.ray.node_link import NodeLink, NodeLost, Pipe
from muster.emulator.launch.ray.node_program import NodeProcess
from muster.emulator.launch.ray.placing import (
    Bundle,
    Node,
    Reservation,
    Resources,
    choose,
    place,
    spread,
)
from muster.emulator.launch.ray.remote_program import ClusterPauses, RemoteProgram
from muster.emulator.run_folder.folder import SCENARIO
from muster.emulator.scenario.scenario import Scenario
from muster.server.settings.process import ServerProcess

_LOST = "its node was lost"

_PACKS = 100
"""Packs in a request. Each has the settings of the task, and a node must not be silent for long."""


class Cluster(Protocol):
    """The cluster, as the backend uses it (`RayCluster`)."""

    @property
    def address(self) -> str: ...

    def nodes(self) -> Sequence[Node]: ...

    async def reserve(self, needs: Mapping[str, Resources]) -> Mapping[str, Sequence[str]]: ...

    async def open(self, node: Node, config: NodeProcess, shared: str, log: str) -> Pipe: ...

    def close(self) -> None: ...


@dataclass
class _Member:
    """A node that carries programs.

    Attributes:
        gpu_of: the index of the GPU of every program that trains on one, among those of the node.
        prepared: what its nursery has reported; None: it is not ready.
        preparing: held while its nursery is started.
    """

    node: Node
    link: NodeLink
    bundles: list[Bundle] = field(default_factory=list)
    gpu_of: dict[str, int] = field(default_factory=dict)
    prepared: dict[str, Any] | None = None
    preparing: asyncio.Lock = field(default_factory=asyncio.Lock)


class RayFleet:
    """The backend that runs a fleet on the nodes of a Ray cluster.

    Args:
        cluster: the cluster.
    """

    isolates = False
    encrypts = True

    def __init__(
        self, scenario: Scenario, folder: Path, clock: Clock, died: Died, cluster: Cluster
    ) -> None:
        self.folders = DeviceFolders(str(folder / "devices"), str(folder / SECRETS))
        self._settings = scenario.launch.cluster
        self._gateway_of = {group.name: group.gateway_group for group in scenario.groups}
        self._spawn = scenario.launch.start == "spawn"
        self._folder = folder
        self._clock = clock
        self._died = died
        self._cluster = cluster
        self._here = Processes(folder, clock, died)
        self.pauses: ProgramPauses = ClusterPauses(self._here.pauses, self._link_of)
        self._members: dict[str, _Member] = {}
        self._carriers: dict[str, _Member] = {}
        self._opened = 0
        self._homeless = list(bundles_of(scenario, cluster.nodes()))
        # What was reserved on a node stays reserved if only its actor is lost.
        self._reserved: dict[str, Reservation] = {}
        self._gpus: dict[str, list[str]] = {}
        self._moving = asyncio.Lock()
        self._lost_nodes: dict[str, Node] = {}
        self._nursery: NurseryProcess | None = None
        self._prepared: dict[str, Any] | None = None
        self._configs: dict[str, PackProcess] = {}
        self._wanted = set[str]()
        self._gateways: dict[str, str] = {}
        self._alive: dict[str, RemoteProgram] = {}
        self._orphans: dict[str, list[str]] = {}
        self._causes: dict[str, str] = {}

    # --- what it knows ---------------------------------------------------------------------------

    @property
    def here(self) -> str:
        """This machine's address in the cluster."""
        return self._cluster.address

    @property
    def metrics_host(self) -> str:
        """The same, because the server listens there only."""
        return self._cluster.address

    def reachable_ports(self, group: str, ports: Ports) -> Ports:
        """The same ports by which the group's devices reach the gateway."""
        return ports

    @property
    def alive(self) -> Mapping[str, Program]:
        """The live programs of this machine and of all nodes."""
        return {**self._here.alive, **self._alive}

    @property
    def placeable(self) -> Mapping[str, int]:
        """Empty, because the programs of a run are on several machines."""
        return {}

    def with_addresses(self, server: ServerProcess) -> ServerProcess:
        """The server's settings, with which all nodes reach it."""
        return server.model_copy(update={"host": self._cluster.address})

    def cause_of(self, name: str) -> str:
        return self._causes.get(name, "")

    def last_lines(self, name: str) -> str:
        return self._here.last_lines(name)

    def _link_of(self, program: str) -> NodeLink | None:
        member = self._carriers.get(program)
        return member.link if member is not None else None

    # --- nodes -----------------------------------------------------------------------------------

    async def _settle(self) -> None:
        """Place every program that has no node, and start what is needed on nodes that are new.

        Raises:
            ConfigError: at the start of the run, the cluster is too small, or a node is not like
                this machine.
            LaunchFailed: the same later, or a node cannot be started, or resources are not free.
        """
        async with self._moving:
            while self._homeless:
                moving, self._homeless = self._homeless, []
                try:
                    await self._move(moving)
                except ConfigError as error:
                    if self._wanted:  # the run has begun
                        lost = ", ".join(node.address for node in self._lost_nodes.values())
                        without = f". Nodes that were lost are not used: {lost}" if lost else ""
                        raise LaunchFailed(f"{error}{without}") from None
                    raise

    async def _move(self, bundles: Sequence[Bundle]) -> None:
        candidates = self._candidates(bundles)
        placed = place(bundles, candidates, self._reserved)
        await self._reserve(placed)
        new = [node for node in candidates if node.id in placed and node.id not in self._members]
        await asyncio.gather(*map(self._open, new))
        for id, here in placed.items():
            if (member := self._members.get(id)) is None:  # it was lost meanwhile
                self._homeless += here
                continue
            member.bundles += here
            self._reserved[id] = self._reserved[id].used_by(here)
            on_gpu = (name for bundle in here for name in bundle.on_gpu)
            gpus = len(self._gpus.get(id, []))
            member.gpu_of |= spread(on_gpu, gpus, member.gpu_of)
            self._carriers |= dict.fromkeys(_programs(here), member)

    async def _reserve(self, placed: Mapping[str, Sequence[Bundle]]) -> None:
        """Reserve what bundles need on their nodes, besides what is reserved there already."""
        held = {id: self._reserved.get(id, Reservation()) for id in placed}
        lacking = {id: held[id].lacks(here) for id, here in placed.items()}
        needs = {id: lacks for id, lacks in lacking.items() if lacks}
        named = await self._cluster.reserve(needs) if needs else {}
        for id, names in named.items():
            self._gpus.setdefault(id, []).extend(names)
        for id, lacks in lacking.items():
            self._reserved[id] = held[id].with_more(lacks)

    def _candidates(self, bundles: Sequence[Bundle]) -> Sequence[Node]:
        """The nodes that may carry bundles: first those that do, and none that was lost while
        there are others."""
        nodes = sorted(self._cluster.nodes(), key=lambda node: node.id not in self._members)
        sound = [node for node in nodes if node.id not in self._lost_nodes]
        number = None if self._lost_nodes else self._settings.nodes
        return choose(sound or nodes, number, bundles)

    async def _open(self, node: Node) -> None:
        self._opened += 1
        name = str(self._opened)
        config = NodeProcess(
            name=name, folder=str(self._folder), spawn=self._spawn, lease_s=self._settings.lease_s
        )
        log = str(self._folder / "logs" / f"node-{name}.log")
        pipe = await self._cluster.open(node, config, str(self._folder / SCENARIO), log)
        link = NodeLink(
            pipe, self._clock, self._settings.lease_s, self._tell, lambda: self._lose(node.id)
        )
        self._members[node.id] = _Member(node, link)

    def _tell(self, message: dict[str, Any]) -> None:
        """Take notice of what the program of a node has told."""
        match message:
            case {"alive": started}:
                for name, pid in started.items():
                    if (link := self._link_of(name)) is not None:
                        self._alive[name] = RemoteProgram(name, pid, link)
            case {"died": name, "status": status}:
                self._alive.pop(name, None)
                self._wanted.discard(name)
                self._died(name, status)

    def _lose(self, id: str) -> None:
        """Report the deaths of a node that is lost. Its programs get other nodes when they are
        started again."""
        member = self._members.pop(id)
        self._reserved[id] = self._reserved[id].unused()
        self._lost_nodes[id] = member.node
        self._homeless += member.bundles
        programs = list(_programs(member.bundles))
        packs = [name for name in programs if name in self._wanted]
        gateways = [name for name in programs if name in self._alive and name not in self._configs]
        for name in programs:
            self._carriers.pop(name)
            self._alive.pop(name, None)
        self._wanted.difference_update(packs)
        self._causes |= dict.fromkeys([*gateways, *packs], _LOST)
        for name in gateways:
            self._died(name, -signal.SIGKILL)
        if packs:
            self._orphans[packs[0]] = packs
            self._died(packs[0], -signal.SIGKILL)

    # --- starting --------------------------------------------------------------------------------

    async def start_nursery(self, config: NurseryProcess) -> dict[str, Any]:
        """Start a nursery on every node. Return what the first one reports.

        Raises:
            ConfigError: the task cannot be opened for this population, the cluster is too small, or
                a node is not like this machine.
            EndedBeforeReady: a nursery died, or a node was lost; it can be started again.
            LaunchFailed: a start takes too long, or the nodes make different models.
        """
        self._nursery = config
        try:
            await self._settle()
            first, *others = self._members.values()
            prepared, *_ = await asyncio.gather(
                self._prepare(first, writes_model=True), *map(self._prepare, others)
            )
        except NodeLost:
            raise EndedBeforeReady(NURSERY, -signal.SIGKILL, f": {_LOST}") from None
        return prepared

    async def _prepare(self, member: _Member, writes_model: bool = False) -> dict[str, Any]:
        """Start the nursery of a node, unless it is ready, and return what it reports."""
        assert self._nursery is not None
        async with member.preparing:
            if member.prepared is None:
                config = {**self._nursery.model_dump(), "writes_model": writes_model}
                member.prepared = await member.link.ask("start_nursery", config=config)
        self._prepared = self._prepared or member.prepared
        if member.prepared != self._prepared:
            raise LaunchFailed(
                f"the node {member.node.address} prepares another model or other data than the "
                "first one; install the same packages and data on all nodes"
            )
        return member.prepared

    async def start_gateway(self, config: GatewayProcess) -> Ports:
        """Start the gateway of a group on the node of its devices.

        Raises:
            EndedBeforeReady: the gateway died, or its node was lost; it can be started again.
            LaunchFailed: its start takes too long.
        """
        name = gateway_name(config.group)
        await self._settle()
        try:
            member = self._carriers[name]
            self._causes.pop(name, None)
            told = config.model_copy(update={"host": member.node.address}).model_dump()
            ports = Ports.model_validate(await member.link.ask("start_gateway", config=told))
        except (KeyError, NodeLost):
            raise EndedBeforeReady(name, -signal.SIGKILL, f": {_LOST}") from None
        self._gateways[config.group] = ports.host
        return ports

    async def load_server(self) -> None:
        """Let the server's program be loaded on this machine."""
        await self._here.load_server()

    async def start_server(self) -> str:
        """Start the server on this machine; return its address, host:port."""
        return await self._here.start_server()

    async def start_evaluation(self) -> None:
        """Do nothing, because the server starts the evaluation."""

    async def start_packs(self, configs: Sequence[PackProcess]) -> None:
        """Start packs on their nodes, and with a pack whose node was lost all others of that
        node."""
        self._configs |= {config.name: config for config in configs}
        names = list(self._with_orphans(config.name for config in configs))
        self._wanted.update(names)
        await self._settle()
        by_node: dict[str, list[PackProcess]] = {}
        for name in names:
            member = self._carriers.get(name)
            if member is not None:  # else it was lost again, and its death will be reported
                self._causes.pop(name, None)
                by_node.setdefault(member.node.id, []).append(self._configs[name])
        await asyncio.gather(*(self._start_on(id, packs) for id, packs in by_node.items()))

    def _with_orphans(self, names: Iterable[str]) -> Iterator[str]:
        for name in names:
            yield from self._orphans.pop(name, [name])

    async def _start_on(self, id: str, packs: Sequence[PackProcess]) -> None:
        try:
            member = self._members[id]
            await self._prepare(member)
            for first in range(0, len(packs), _PACKS):
                some = [self._beside_gateway(pack) for pack in packs[first : first + _PACKS]]
                configs = [_with_gpu(pack, member).model_dump() for pack in some]
                gpus = self._gpus.get(id, [])
                await member.link.ask("start_packs", configs=configs, gpus=gpus)
        except (KeyError, NodeLost):
            pass  # its loss is reported as the death of these packs

    def _beside_gateway(self, pack: PackProcess) -> PackProcess:
        """The settings of a pack, with the address that the gateway of its group has now."""
        group = pack.devices[0].client.rpartition("-")[0]
        host = self._gateways.get(self._gateway_of.get(group, group))
        if host is None:
            return pack
        moved = {"address": _at(host, pack.address)}
        if pack.slots is not None:
            slots = pack.slots.model_copy(update={"address": _at(host, pack.slots.address)})
            return pack.model_copy(update={**moved, "slots": slots})
        return pack.model_copy(update=moved)

    # --- the end ---------------------------------------------------------------------------------

    async def close(self) -> None:
        """End all programs on all nodes and on this machine."""
        members = list(self._members.values())
        await asyncio.gather(*(member.link.close() for member in members))
        await self._here.close()
        self._cluster.close()


def _programs(bundles: Iterable[Bundle]) -> Iterator[str]:
    for bundle in bundles:
        yield from bundle.programs


def _with_gpu(pack: PackProcess, member: _Member) -> PackProcess:
    """The settings of a pack, with the GPU of its node on which it trains, if it does."""
    gpu = member.gpu_of.get(pack.name)
    return pack.model_copy(update={"torch_device": "cpu" if gpu is None else f"cuda:{gpu}"})


def _at(host: str, address: str) -> str:
    """The same port at another host."""
    return f"{host}:{address.rpartition(':')[2]}"
