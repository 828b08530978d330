"""Writes the compose file of a run, and the settings with which its containers start."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from muster.common.clock import Clock
from muster.common.files import write_atomic
from muster.emulator.gateway.config import Ports
from muster.emulator.gateway.words import no_words
from muster.emulator.launch.docker.compose import (
    ENVIRONMENT,
    Project,
    compose_text,
    environment_text,
)
from muster.emulator.launch.docker.daemon import free_port
from muster.emulator.launch.docker.monitoring import monitoring
from muster.emulator.launch.docker.services import INSIDE, SERVER_PORT, Service, Site, project_of
from muster.emulator.launch.docker.stack import Swarm, make_empty
from muster.emulator.launch.process_configs import ProcessConfigs
from muster.emulator.launch.processes import Processes
from muster.emulator.records.inputs import announce_own_code
from muster.emulator.run_folder.folder import COMPOSE, shown
from muster.emulator.scenario.scenario import Scenario


async def prepare(scenario: Scenario, folder: Path, clock: Clock, swarm: Swarm) -> None:
    """Prepare the task, and write all files with which the containers of a swarm start."""
    processes = Processes(folder, clock, lambda name, status: None)
    try:
        prepared = await processes.start_nursery(ProcessConfigs(scenario, folder).nursery())
    finally:
        await processes.close()
    write_compose_file(scenario, folder, prepared, swarm)


def write_compose_file(
    scenario: Scenario, folder: Path, prepared: dict[str, Any], swarm: Swarm | None
) -> None:
    """Write the compose file of a run, and all files that its containers need to be made.

    Args:
        prepared: `examples` and `schema` of the task, as the nursery reported them.
        swarm: the swarm that runs them; None: Docker Compose.
    """
    announce_own_code(folder)
    configs, site = ProcessConfigs(scenario, folder), Site(scenario, folder)
    project = Project(
        name=project_of(folder),
        scenario=scenario.name,
        folder=folder,
        shown=shown(folder),
        user=site.user,
        cores=os.cpu_count() or 1,
        networks=site.networks(),
        restarts=scenario.launch.restarts,
        swarm=swarm,
    )
    services = fleet(configs, site, prepared, free_port)
    if swarm is not None:  # a stack has no services that start only when they are asked for
        services = [service for service in services if not service.profile]
        make_empty(folder, services)
    write_atomic(folder / COMPOSE, compose_text(project, services).encode())
    write_atomic(folder / ENVIRONMENT, environment_text(project).encode())


def fleet(
    configs: ProcessConfigs, site: Site, prepared: dict[str, Any], free_port: Callable[[], int]
) -> list[Service]:
    """The containers of a scenario's fleet. Writes their programs' settings into the run folder.

    Args:
        prepared: `examples` and `schema` of the task, as the nursery reported them.
        free_port: returns a free port of this machine, another one with every call.
    """
    outside = site.scenario.server.port or free_port()
    server = site.with_addresses(configs.server(prepared), outside)
    write_atomic(site.folder / "setup/server.json", server.to_json().encode())
    services = [site.server(outside, [COMPOSE, ENVIRONMENT]), site.evaluation()]
    address, ports = f"server:{SERVER_PORT}", dict[str, Ports]()
    for config in configs.gateways(everywhere=True):
        no_words(config.words)
        leading = config.model_copy(update={"upstream": address})
        gateway, ports[config.group] = site.gateway(leading, free_port())
        services.append(gateway)
    packs = list(configs.packs(server, address, ports.get, INSIDE))
    for member in (member for pack in packs for member in pack.devices):
        (site.folder / "devices" / member.client).mkdir(exist_ok=True)
    devices = (service for service, _ in site.devices(packs))
    return [*services, *devices, *monitoring(configs)]
