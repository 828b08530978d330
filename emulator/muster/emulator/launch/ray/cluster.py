"""What is asked of Ray: its nodes, reservations on them, and an actor on a node."""

import asyncio
import logging
import os
import platform
from collections.abc import Mapping, Sequence
from typing import Any

from muster.common.environment import settle_environment
from muster.common.errors import ConfigError, LaunchFailed
from muster.common.installation import VERSION, install_command
from muster.common.processes import OWN_CODE
from muster.emulator.launch.ray.node_link import NodeLost, Pipe
from muster.emulator.launch.ray.node_program import NodeProcess
from muster.emulator.launch.ray.placing import GPU, Node, Resources, described

try:
    import ray
    import ray.exceptions
    from ray.util.placement_group import placement_group, remove_placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    from muster.emulator.launch.ray.node_actor import NodeActor, gpu_names
except ImportError:
    raise ConfigError(
        f"the ray backend needs Ray, which is not installed; expected the extra: "
        f"{install_command('ray')}"
    ) from None

_NODE_ID = "ray.io/node-id"
"""The label that Ray gives every node."""

_RESERVED_S = 60.0
"""Most seconds to wait for a reservation."""

_STARTED_S = 120.0
"""Most seconds to wait for the actor of a node."""


class RayCluster:
    """The Ray cluster of which this machine is a node. If there is none, one is started that
    consists of this machine and ends with this process.

    Raises:
        ConfigError: Ray cannot be reached.
    """

    def __init__(self) -> None:
        if os.environ.get("RAY_ADDRESS", "").startswith("ray://"):
            raise ConfigError(
                "RAY_ADDRESS: expected a cluster of which this machine is a node, found a client's "
                "address (ray://); start the command on the head node, for example with "
                "ray job submit"
            )
        settle_environment()  # of a cluster that has to be started
        try:
            ray.init(
                ignore_reinit_error=True,
                include_dashboard=None,
                log_to_driver=False,
                logging_level=logging.ERROR,
            )
        except (OSError, RuntimeError, ValueError) as error:
            raise ConfigError(f"Ray cannot be reached: {error}") from None
        self._groups: list[Any] = []
        self._bundles: dict[str, tuple[Any, int, Resources]] = {}

    @property
    def address(self) -> str:
        """This machine's address, as the other nodes reach it."""
        return str(ray.util.get_node_ip_address())

    @property
    def node(self) -> str:
        """The id of the node that is this machine."""
        return str(ray.get_runtime_context().get_node_id())

    def nodes(self) -> Sequence[Node]:
        """The nodes that Ray takes to be alive, by address."""
        found = [
            Node(each["NodeID"], each["NodeManagerAddress"], each["Resources"], each["Labels"])
            for each in ray.nodes()
            if each["Alive"]
        ]
        return sorted(found, key=lambda node: (node.address, node.id))

    async def reserve(self, needs: Mapping[str, Resources]) -> Mapping[str, Sequence[str]]:
        """Reserve resources on nodes, by their ids, all or none.

        Returns:
            the names of the GPUs that were reserved on each node that needs some, as
            CUDA_VISIBLE_DEVICES has them.

        Raises:
            LaunchFailed: they are not free, or a node does not name its GPUs.
        """
        group = placement_group(
            [dict(resources) for resources in needs.values()],
            strategy="SPREAD",
            bundle_label_selector=[{_NODE_ID: node} for node in needs],
        )
        self._groups.append(group)
        if not await asyncio.to_thread(group.wait, _RESERVED_S):
            wanted = "; ".join(described(resources) for resources in needs.values())
            raise LaunchFailed(
                f"Ray has not reserved what the fleet needs within {_RESERVED_S:g} s: {wanted}, on "
                f"{len(needs)} nodes. Other jobs may use the cluster: `ray status` shows it"
            )
        for index, (node, resources) in enumerate(needs.items()):
            self._bundles[node] = group, index, resources
        with_gpus = [node for node, resources in needs.items() if GPU in resources]
        named = await asyncio.gather(*map(self._gpus_of, with_gpus))
        return dict(zip(with_gpus, named, strict=True))

    async def _gpus_of(self, node: str) -> Sequence[str]:
        """The names of the GPUs of what was reserved last on a node. Only a task that runs with a
        reservation learns which GPUs it has."""
        group, index, resources = self._bundles[node]
        asked = (
            ray.remote(gpu_names)
            .options(
                num_cpus=0,
                num_gpus=resources[GPU],
                scheduling_strategy=PlacementGroupSchedulingStrategy(group, index),
            )
            .remote()
        )
        try:
            names: Sequence[str] = await asyncio.wait_for(asked, _STARTED_S)
        except (ray.exceptions.RayError, TimeoutError) as error:
            raise LaunchFailed(f"a node does not say which GPUs it has reserved: {error}") from None
        return names

    async def open(self, node: Node, config: NodeProcess, shared: str, log: str) -> Pipe:
        """Start an actor with what was reserved last on a node, and the program of the node.

        Args:
            shared: a file that the node must see.
            log: the file that gets the program's messages.

        Raises:
            ConfigError: the node is not like this machine.
            LaunchFailed: the actor cannot be started.
        """
        group, index, resources = self._bundles[node.id]
        cpus, gpus, memory = (resources.get(name, 0) for name in ("CPU", GPU, "memory"))
        others = {k: v for k, v in resources.items() if k not in ("CPU", GPU, "memory")}
        actor = (
            ray.remote(NodeActor)
            .options(
                num_cpus=cpus,
                num_gpus=gpus,
                memory=memory,
                resources=others,
                scheduling_strategy=PlacementGroupSchedulingStrategy(group, index),
            )
            .remote()
        )
        try:
            facts = await asyncio.wait_for(actor.facts.remote(shared), _STARTED_S)
            _require_alike(node, facts, shared)
            environment = {
                name: os.environ[name] for name in ("PYTHONPATH", OWN_CODE) if name in os.environ
            }
            starting = actor.start.remote(config.to_json(), environment, log)
            await asyncio.wait_for(starting, _STARTED_S)
        except (ray.exceptions.RayError, OSError) as error:
            raise LaunchFailed(f"the node {node.address} cannot start muster: {error}") from None
        except TimeoutError:
            raise LaunchFailed(
                f"the node {node.address} has not started muster within {_STARTED_S:g} s"
            ) from None
        return ActorPipe(actor)

    def close(self) -> None:
        """Give back what was reserved."""
        for group in self._groups:
            remove_placement_group(group)
        self._groups.clear()


class ActorPipe:
    """The pipe through the actor of a node."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor

    def send(self, line: str) -> None:
        self._actor.send.remote([line])  # if it fails, `receive` does too

    async def receive(self) -> Sequence[str]:
        try:
            lines: Sequence[str] = await self._actor.receive.remote()
        except ray.exceptions.RayError as error:
            raise NodeLost(f"the actor of a node is lost: {error}") from None
        return lines

    def end(self) -> None:
        self._actor.end.remote()

    def kill(self) -> None:
        ray.kill(self._actor)


def _require_alike(node: Node, facts: Mapping[str, str | bool], shared: str) -> None:
    """Check that a node has what this machine has.

    Raises:
        ConfigError: it has not.
    """
    expected = {"Python": platform.python_version(), "muster": VERSION}
    for name, here in expected.items():
        if facts[name] != here:
            raise ConfigError(
                f"the node {node.address} has {name} {facts[name]}, but this machine has {here}; "
                "install the same on all nodes"
            )
    if not facts["sees"]:
        raise ConfigError(
            f"the node {node.address} does not see {shared}; expected the run folder on a file "
            "system that all nodes share, under the same path: name such a folder with --out"
        )
