"""A fleet of `muster up --swarm`: the same containers as services of a Docker swarm.

Several machines carry them. Server and evaluation are on the machine of the command, which is a
manager of the swarm. All machines see the run folder under the same path.
"""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import docker
import docker.errors

from muster.common.errors import ConfigError
from muster.emulator.launch import doctor
from muster.emulator.launch.docker.daemon import connected, name_of_service, services_of
from muster.emulator.launch.docker.services import Mount, Service, group_network
from muster.emulator.launch.starting import SEARCHED_LINES, quoted
from muster.emulator.run_folder.folder import COMPOSE
from muster.emulator.scenario.scenario import Scenario

_EMPTY: Final = "setup/empty"

_FAILURES: Final = 3
"""A service whose tasks failed so often before the first round counts as dead."""

_FAILED: Final = ("failed", "rejected")


@dataclass(frozen=True, slots=True)
class Swarm:
    """Where the services of a fleet may be.

    Attributes:
        node: id of the machine of the command.
        labels: the labels that a machine must have to carry a network's containers, by the name of
            the network.
    """

    node: str
    labels: Mapping[str, Mapping[str, str]]

    def constraints(self, service: Service) -> list[str]:
        """The constraints of a service, as in `docker service create --constraint`."""
        if service.role not in ("gateway", "device"):
            return [f"node.id == {self.node}"]
        labels = self.labels.get(service.networks[-1], {})
        return [f"node.labels.{key} == {value}" for key, value in labels.items()]


def require_swarm(scenario: Scenario) -> Swarm:
    """Check, before anything starts, that a scenario can run in the swarm of this machine.

    Raises:
        ConfigError: it cannot.
    """
    if on_gpu := [group.name for group in scenario.groups if doctor.on_gpu(group, doctor.gpus())]:
        raise ConfigError(
            f"groups.device.torch_device: in a swarm devices train on the CPU, but "
            f"{', '.join(on_gpu)} would train on a GPU; set torch_device to cpu"
        )
    if shutil.which("docker") is None:
        raise ConfigError(
            "there is no `docker` command on this machine, which starts the services of a swarm: "
            "install Docker's command line"
        )
    with connected() as client:
        state = client.info().get("Swarm", {})
        if not state.get("ControlAvailable"):
            raise ConfigError(
                "this machine is no manager of a Docker swarm: `docker swarm init` makes a swarm "
                "of this machine alone, and says how others join it"
            )
        nodes = client.nodes.list()
    wanted = scenario.launch.cluster.labels
    for group, labels in wanted.items():
        if not any(_carries(node.attrs, labels) for node in nodes):
            missing = " ".join(f"--label-add {key}={value}" for key, value in labels.items())
            raise ConfigError(
                f"launch.cluster.labels: no machine of the swarm that is ready has the labels of "
                f"the group {group}: `docker node update {missing} NODE` gives them"
            )
    return Swarm(
        node=state["NodeID"],
        labels={group_network(group): labels for group, labels in wanted.items()},
    )


def deploy_command(folder: Path, project: str) -> list[str]:
    """The command that starts the services of a run folder's compose file."""
    file = str(folder / COMPOSE)
    deploy = ["docker", "stack", "deploy", "--resolve-image", "never", "--compose-file"]
    return [*deploy, file, project]


def empty_mounts(folder: Path, service: Service) -> list[Mount]:
    """The mounts that hide folders from a service of the run in `folder`. Services cannot set the
    owner of a folder in memory, so these are one folder of the run in all places."""
    return [Mount(str(folder / _EMPTY), hidden) for hidden in service.hidden]


def make_empty(folder: Path, services: Sequence[Service]) -> None:
    """Make the folder that hides others. It is empty but for the places of further mounts."""
    (folder / _EMPTY).mkdir()
    for service in services:
        for mount in service.mounts:
            for hidden in map(Path, service.hidden):
                if hidden in Path(mount.target).parents:
                    place = folder / _EMPTY / Path(mount.target).relative_to(hidden)
                    place.parent.mkdir(parents=True, exist_ok=True)
                    place.mkdir(exist_ok=True) if Path(mount.source).is_dir() else place.touch()


def problems(client: docker.DockerClient, folder: Path) -> Iterator[str]:
    """Report services that have no container that runs, a sentence for each. Those whose container
    ended with status 0 have done their work and are not reported."""
    for service in sorted(services_of(client, folder), key=name_of_service):
        tasks = _newest_first(service.tasks())
        if not tasks or tasks[0]["Status"]["State"] in ("running", "complete"):
            continue
        yield (
            f"{name_of_service(service)} does not run: {_described(tasks[0])}; "
            f"`docker service ps {service.name}` shows more, and `docker service logs "
            f"{service.name}` its log"
        )


class TaskDeaths:
    """What has died in a swarm, on whatever machine."""

    def __init__(self, client: docker.DockerClient, folder: Path) -> None:
        self._client = client
        self._folder = folder

    def dead(self, patient: bool = True) -> dict[str, str]:
        """Status and last lines of services that should run but do not.

        Args:
            patient: leave out those that the swarm starts again.
        """
        found = {}
        for service in services_of(self._client, self._folder):
            failed = self._failed(service)
            name = name_of_service(service)
            policy = service.attrs["Spec"]["TaskTemplate"].get("RestartPolicy", {})
            again = policy.get("Condition") != "none"
            if failed and not (again and patient and len(failed) < _FAILURES):
                found[name] = f"{_described(failed[0])}{_log_of(service)}"
        return found

    def restarted(self) -> dict[str, str]:
        """The last lines of services that died and run again, by name."""
        return {
            name_of_service(service): _log_of(service)
            for service in services_of(self._client, self._folder)
            if self._failed(service)
            and _newest_first(service.tasks())[0]["Status"]["State"] == "running"
        }

    def _failed(self, service: Any) -> list[dict[str, Any]]:
        tasks = _newest_first(service.tasks())
        return [task for task in tasks if task["Status"]["State"] in _FAILED]


def _carries(node: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Whether a machine is ready and has the labels."""
    ready = node["Status"]["State"] == "ready" and node["Spec"]["Availability"] == "active"
    return ready and labels.items() <= dict(node["Spec"].get("Labels", {})).items()


def _newest_first(tasks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(tasks, key=lambda task: str(task["CreatedAt"]), reverse=True)


def _described(task: Mapping[str, Any]) -> str:
    """How a task stands: the status with which its container ended, or the swarm's own words."""
    status = task["Status"]
    code = status.get("ContainerStatus", {}).get("ExitCode")
    if code:
        return str(code)
    return f"{status['State']} ({status['Err']})" if status.get("Err") else str(status["State"])


def _log_of(service: Any) -> str:
    try:
        lines = service.logs(stdout=True, stderr=True, tail=SEARCHED_LINES)
        return quoted(b"".join(lines).decode(errors="replace"))
    except docker.errors.APIError:  # none of its tasks got a container
        return ""
