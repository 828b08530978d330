"""The configurations of the processes of a simulated fleet."""

import json
from dataclasses import dataclass
from pathlib import Path

from muster.client.processes.config import PackProcess
from muster.client.processes.nursery import prepare
from muster.common.credentials import SECRETS, credentials_path, device_name
from muster.common.files import write_atomic
from muster.common.life_record import RECORD
from muster.emulator.credentials.issuing import Issuer
from muster.emulator.fleet.packs import DeviceFolders
from muster.emulator.fleet.scenario_faults import ScenarioFaults
from muster.emulator.launch.process_configs import ProcessConfigs
from muster.emulator.scenario.scenario import Scenario
from muster.server.settings.process import ServerProcess
from muster.tasks.opening import open_task
from muster.tasks.task import OpenTask

SERVER = "server:5001"
"""Where the server listens on the simulated network."""


@dataclass(frozen=True)
class Programs:
    """The configurations with which the processes of a fleet are started.

    Attributes:
        initial: content of the file of the initial model.
        packs: configurations of the packs, in which the folder `devices` is not yet set.
        faults: the faults of the run.
        life: content of the file of the life record that the run is played from; None: it has none.
    """

    scenario: Scenario
    server: ServerProcess
    initial: bytes
    packs: tuple[PackProcess, ...]
    task: OpenTask
    faults: ScenarioFaults
    life: bytes | None = None

    def enter(self, folder: Path) -> list[PackProcess]:
        """Make the run folder with its settings, and return the packs of that folder."""
        for part in ("setup", "logs", "devices", "models"):
            (folder / part).mkdir(parents=True, exist_ok=True)
        write_atomic(folder / "setup/server.json", self.server.to_json().encode())
        write_atomic(folder / "setup/initial.safetensors", self.initial)
        if self.life is not None:
            write_atomic(folder / RECORD, self.life)
        secrets, devices = folder / SECRETS, str(folder / "devices")
        groups = {member.client: member.group for member in self.server.population}
        packs: dict[str, dict[str, list[str]]] = {}
        for pack in self.packs:
            clients = [member.client for member in pack.devices]
            packs.setdefault(groups[clients[0]], {})[pack.name] = clients
        Issuer(secrets, self.server.run, None).issue(packs)
        return [
            pack.model_copy(
                update={
                    "folder": devices,
                    "credentials": str(credentials_path(secrets, device_name(pack.name))),
                }
            )
            for pack in self.packs
        ]


def programs_of(scenario: Scenario, folder: Path) -> Programs:
    """Prepare a scenario's process configurations as a run does; `folder` is needed only here."""
    for part in ("setup", "devices"):
        (folder / part).mkdir(parents=True)
    configs = ProcessConfigs(scenario, folder)
    task = open_task(configs.task.to_json(), scenario.devices, scenario.seed)
    nursery = configs.nursery()
    prepared = prepare(task, folder, nursery.rational, nursery.together)
    host, _, port = SERVER.rpartition(":")
    update = {"host": host, "port": int(port), "metrics_port": None}  # nobody could read them
    server = configs.server(prepared).model_copy(update=update)
    packs = configs.packs(server, SERVER, lambda group: None, DeviceFolders("", ""))
    life = None if server.life is None else (folder / server.life).read_bytes()
    initial = (folder / "setup/initial.safetensors").read_bytes()
    # Parse the JSON as a process does, so that the configuration has only what JSON carries.
    server = ServerProcess.from_json(json.dumps(json.loads(server.to_json())))
    return Programs(configs.scenario, server, initial, tuple(packs), task, configs.faults, life)
