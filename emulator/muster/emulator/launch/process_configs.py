"""Computes the settings with which every process of a run starts, for all backends."""

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

from muster.client.connection.slots import SlotsPort
from muster.client.faults.scheduled import faults_of, update_faults
from muster.client.life.settings import Life
from muster.client.processes.config import GroupTrial, NurseryProcess, PackProcess, Trial
from muster.common.credentials import (
    SECRETS,
    SUPERVISOR,
    Credentials,
    credentials_path,
    device_name,
    gateway_identity,
    read_credentials,
)
from muster.common.errors import ConfigError
from muster.common.exchange import PROPENSITY
from muster.common.files import write_atomic
from muster.common.life_record import RECORD, write_life
from muster.common.tensors import WIRE
from muster.emulator.credentials.issuing import Certifier, Issuer
from muster.emulator.fleet.lives import (
    by_group,
    life_of,
    members_of,
    speeds_of,
    task_of,
    z_of,
)
from muster.emulator.fleet.masks import check_masks, layout_of
from muster.emulator.fleet.packs import (
    DeviceFolders,
    pack_name,
    packs_by_gateway,
    packs_by_group,
    split_into_packs,
)
from muster.emulator.fleet.sampling import sample_of
from muster.emulator.fleet.scenario_faults import ScenarioFaults, write_timeline
from muster.emulator.gateway.config import GatewayProcess, Ports
from muster.emulator.gateway.rates import model_of_device
from muster.emulator.launch import doctor
from muster.emulator.launch.gateway_configs import gateways_of
from muster.emulator.monitoring import prometheus
from muster.emulator.planning import plan
from muster.emulator.planning.oracle import oracle_of
from muster.emulator.planning.plan import Progress, can_plan, instants, must_play
from muster.emulator.planning.result import Learning, left_out_text, write_plan
from muster.emulator.planning.server_view import moments_of, z_bounds_of
from muster.emulator.records.inputs import inputs_in, inputs_of, require_unchanged
from muster.emulator.scenario.combinations import require_fitting_model
from muster.emulator.scenario.local_work import (
    announced_training,
    most_steps,
    needs_trial,
    training_time,
)
from muster.emulator.scenario.population import (
    Resident,
    population,
    with_examples,
    write_population,
)
from muster.emulator.scenario.recorded_life import as_played, record_of
from muster.emulator.scenario.scenario import Scenario
from muster.emulator.scenario.settings import Group
from muster.emulator.scenario.slow_links import check_links
from muster.server.settings.population import PopulationMember
from muster.server.settings.privacy import DeviceSampling
from muster.server.settings.process import GroupMask, RunInput, ServerProcess, TensorShape
from muster.wire import CHUNK_BYTES

_PLANNED = 10_000_000
"""Most simulated steps, over all devices, for which a run writes its plan. Computing so many takes
some seconds, and the end of a run waits for its plan. For more, `muster plan` writes it."""

_PLAYED = 1_000_000
"""Likewise, most rounds, over all devices, if updates may outlive their round."""


class ProcessConfigs:
    """The settings of all processes of a scenario that runs in a folder.

    Attributes:
        scenario: as its programs play it. With a life record, it describes neither the lives nor
            the links of devices.
        residents: the population.
        faults: the faults of the run.
        task: the task that every process of the run opens.
    """

    def __init__(self, scenario: Scenario, folder: Path) -> None:
        self._described = scenario
        self._record = record_of(scenario)
        self.scenario = scenario = as_played(scenario)
        self.folder = folder
        self.residents = population(scenario)
        self.faults = ScenarioFaults.of(scenario, self.residents)
        self.task = task_of(scenario, self.residents)
        size = len(self.task.to_json())
        if size > CHUNK_BYTES:  # every device gets the task in one message
            raise ConfigError(
                f"task.covariates: the covariates of {scenario.devices} devices make a task of "
                f"{size:,} bytes, expected at most {CHUNK_BYTES:,}; use fewer covariates or devices"
            )
        self._lines = {
            resident.client: model_of_device(resident.shape, scenario.seed, resident.client)
            for group, residents in by_group(scenario, self.residents)
            for resident in residents
            if group.link.shapes
        }

    def nursery(self) -> NurseryProcess:
        """Settings of the nursery, which prepares the task and forks device processes."""
        scenario = self.scenario
        return NurseryProcess(
            task=self.task.to_json(),
            population=scenario.devices,
            seed=scenario.seed,
            folder=str(self.folder),
            rational={
                resident.client: resident.index
                for group, residents in by_group(scenario, self.residents)
                for resident in residents
                if group.participation.rational and resident.enrolled
            },
            together=scenario.training.together > 1,
            trial=self._trial(),
            packs=sum(map(len, packs_by_group(scenario, self.residents).values())),
        )

    def _trial(self) -> Trial | None:
        """What the nursery tries first: code and data of the user's own."""
        scenario = self.scenario
        of_groups = [group.training for group in scenario.groups]
        if not needs_trial(scenario.task, scenario.training, *of_groups):
            return None
        enrolled = (
            GroupTrial(
                name=group.name,
                devices={each.client: each.index for each in residents if each.enrolled},
                training=group.training,
            )
            for group, residents in by_group(scenario, self.residents)
        )
        return Trial(
            training=announced_training(scenario.training, scenario.server),
            groups=[group for group in enrolled if group.devices],
        )

    @property
    def credentials(self) -> str:
        """The folder of the credentials of all programs."""
        return str(self.folder / SECRETS)

    def issue_credentials(
        self, certifier: Certifier | None, metrics_host: str = "127.0.0.1"
    ) -> Issuer:
        """Write new credentials for every program of the run, and return who can renew them.

        Args:
            certifier: None: there is no TLS.
            metrics_host: as in `Backend`.
        """
        port = self.scenario.server.metrics_port
        issuer = Issuer(Path(self.credentials), self._run_identity(), certifier)
        issuer.issue(packs_by_gateway(self.scenario, self.residents), metrics=port is not None)
        if port is not None:
            config = self.prometheus(f"{metrics_host}:{port}", certifier is not None)
            write_atomic(self.folder / prometheus.CONFIG, config.encode())
        return issuer

    def prometheus(self, address: str, encrypted: bool) -> str:
        """The configuration of a Prometheus that reads the server's metrics.

        Args:
            address: host:port of the metrics.
            encrypted: whether the server has TLS.
        """
        name, run = self.scenario.name, self._run_identity()
        return prometheus.prometheus_config(name, run, address, encrypted)

    def supervisor(self) -> Credentials:
        """The credentials with which the supervisor controls gateways, as last issued."""
        return read_credentials(credentials_path(self.credentials, SUPERVISOR))

    def gateways(self, everywhere: bool) -> Iterator[GatewayProcess]:
        """Yield the settings of a gateway for every group that has links.

        Args:
            everywhere: whether every group gets a gateway, also without links.
        """
        setup, folder = self.folder / "setup", self.credentials
        return gateways_of(self.scenario, self.residents, setup, folder, everywhere)

    def server(self, prepared: Mapping[str, Any]) -> ServerProcess:
        """Settings of the server; also writes population.csv, and the timeline of faults.

        Args:
            prepared: `examples`, `schema` and `units` of the task, as the nursery reported them,
                and the inputs that it knows.

        Raises:
            ConfigError: a group's mask does not fit the model, or its links are too slow for it.
        """
        scenario = self.scenario
        residents = with_examples(self.residents, prepared["examples"])
        without = zip(self.residents, prepared["examples"], strict=True)
        self.faults.require_targets({resident.client for resident, held in without if not held})
        write_population(self.folder / "population.csv", residents, None)
        write_timeline(self.folder, self.faults.timeline)
        full = scenario.server.information == "full"
        members, described = [], self._described
        if self._record is not None:
            write_life(self.folder / RECORD, self._record)
        for group, of_group in by_group(described, residents):
            columns = z_of(group, of_group)
            clients = [resident.client for resident in of_group]
            places = [resident.index for resident in of_group]
            speeds = speeds_of(group.device, scenario.seed, clients, places)
            of_all = scenario.training.of(group.training)
            held = [prepared["examples"][place] for place in places]
            trainings = [of_all.of_device(*device) for device in zip(clients, held, strict=True)]
            members += [
                PopulationMember(
                    client=resident.client,
                    group=group.name,
                    examples=held[i],
                    enrolled=resident.enrolled,
                    z={k: float(v[i]) for k, v in columns.items()} if full else None,
                    most_steps=most_steps(trainings[i], held[i]),
                    training_time=training_time(
                        trainings[i],
                        resident.client,
                        held[i],
                        None if speeds is None else float(speeds[i]),
                        self.faults.inside,
                        group.device.speed_sigma,
                    ),
                    line=self._lines.get(resident.client),
                )
                for i, resident in enumerate(of_group)
            ]
        training = announced_training(scenario.training, scenario.server)
        layout = layout_of(prepared)
        require_fitting_model(scenario, layout.schema)
        check_masks(scenario, layout)
        check_links(scenario, layout.parameters * WIRE.itemsize)
        limits = {g.name: g.errors_in_a_row for g in scenario.groups if g.errors_in_a_row}
        return ServerProcess(
            run=self._run_identity(),
            inputs=[RunInput(**row._asdict()) for row in inputs_of(self.folder, prepared)],
            seed=scenario.seed,
            clock=scenario.clock.kind,
            round_s=scenario.clock.round_s,
            scale=scenario.clock.scale,
            port=scenario.server.port,
            metrics_port=scenario.server.metrics_port,
            server=scenario.server,
            task=self.task.to_json(),
            training=training.to_json(),
            local_work=scenario.local_work,
            sample=self._sample(residents),
            gradient_step=training.learning_rate if training.gradient else None,
            population=members,
            z=scenario.z_columns,
            z_bounds=z_bounds_of(scenario, residents),
            moments=moments_of(described, residents),
            oracle=oracle_of(described, residents),
            x={group.name: list(_reported_x(described, group)) for group in described.groups},
            x_bounds={group.name: _reported_x(described, group) for group in described.groups},
            life=None if self._record is None else RECORD,
            grade="arrivals" if scenario.life is None else scenario.life.grade,
            calls_ahead=scenario.clock.lockstep and not self._declines() and not self._record,
            shared={g.name: g.shared_line(scenario.seed) for g in scenario.groups if g.shaped},
            compression={group.name: group.link.compression for group in scenario.groups},
            partial_sums=[group.name for group in scenario.groups if scenario.holds(group)],
            sum_format=scenario.sum_format(max((m.examples for m in members), default=0)),
            on_error_fail=[group.name for group in scenario.groups if group.on_error == "fail"],
            errors_in_a_row=limits,
            masks={
                group.name: GroupMask(masking=group.mask, capacity=group.device.capacity)
                for group in scenario.groups
                if group.mask is not None
            },
            units=list(layout.layers) if scenario.conditions.masked else [],
            schema_=[TensorShape(**tensor) for tensor in prepared["schema"]],
            frozen=prepared.get("frozen", ""),
        )

    def warnings(self, prepared: Mapping[str, Any]) -> list[str]:
        """Warnings about users of the data that have no device, and about what has changed since
        the run began, and may.

        Raises:
            ConfigError: something has changed that binds the run.
            LedgerError: the ledger cannot be read.
        """
        users = prepared.get("left_out", 0)
        without = [left_out_text(users, self.scenario.devices)] if users else []
        return [*without, *require_unchanged(inputs_in(self.folder), self.folder, prepared)]

    def _eventful(self) -> bool:
        """Whether any group has devices whose state changes during the run."""
        groups = self.scenario.groups
        return any(self._life(group).eventful for group in groups)

    def _declines(self) -> bool:
        """Whether devices may decline, so that not the server alone decides who takes part."""
        groups = self.scenario.groups
        return self._eventful() or any(group.participation.rational for group in groups)

    def _life(self, group: Group) -> Life:
        return life_of(self.scenario, group, self.faults.inside)

    def _sample(self, residents: Sequence[Resident]) -> DeviceSampling | None:
        enrolled = sum(resident.enrolled for resident in residents)
        chosen = self._declines() or self._record is not None
        return None if chosen else sample_of(self.scenario, enrolled)

    def _run_identity(self) -> str:
        path = self.folder / "setup/run"
        if not path.exists():
            write_atomic(path, secrets.token_hex(8).encode())
        return path.read_text()

    def packs(
        self,
        server: ServerProcess,
        address: str,
        ports: Callable[[str], Ports | None],
        folders: DeviceFolders,
    ) -> Iterator[PackProcess]:
        """Yield the settings of the packs of enrolled devices. A pack keeps its name, and its
        credentials, without its devices that have no examples.

        Args:
            address: the server's, host:port.
            ports: returns the ports of a group's gateway, or None if it has no gateway.
            folders: where the devices find their states and their credentials.
        """
        gpus = doctor.gpus()
        # In turn over all groups, so that no GPU gets more packs than `launch.devices_per_gpu`. A
        # backend of several machines gives each pack a GPU of its node instead.
        in_turn = cycle(range(max(1, gpus)))
        training = {member.client for member in server.population if member.enrolled}
        at_gateways = self.scenario.devices_at_gateways()
        for group, residents in by_group(self.scenario, self.residents):
            devices = members_of(self.scenario, group, residents)
            life, reached = self._life(group), ports(group.gateway_group)
            on_gpu = doctor.on_gpu(group, gpus)
            for together in split_into_packs(group, devices):
                clients = [device.client for device in together]
                first, name = clients[0], pack_name(clients)
                where = f"{reached.host}:{reached.devices[first]}" if reached else address
                together = [device for device in together if device.client in training]
                if not together:
                    continue
                clients = [device.client for device in together]
                yield PackProcess(
                    name=name,
                    devices=together,
                    compression=group.link.compression,
                    life=life.of(clients) if life.eventful and not self._record else None,
                    faults=faults_of(update_faults(self.faults.inside), clients),
                    clock=self.scenario.clock,
                    utility=group.participation.rational,
                    capacity=group.device.capacity,
                    training=group.training,
                    partial_sums=self.scenario.holds(group),
                    secure=server.sum_format,
                    mask=group.mask,
                    torch_device=f"cuda:{next(in_turn)}" if on_gpu else "cpu",
                    population=self.scenario.devices,
                    seed=self.scenario.seed,
                    task=server.task,
                    line=together[0].line,
                    least=group.shared_line(self.scenario.seed).least(
                        together[0].line,
                        min(at_gateways[group.gateway_group], self.scenario.server.transfers),
                    ),
                    slots=_slots_port(group, reached),
                    address=where,
                    credentials=str(credentials_path(folders.credentials, device_name(name))),
                    folder=folders.devices,
                )

    def write_plan(self, prepared: Mapping[str, Any], progress: Progress) -> None:
        """Write the plan of the run into its folder, for the report and for oracles. A run without
        events or slots needs no plan, a plan that takes too long is left to `muster plan`, and
        there is none if updates count in the order in which they arrive."""
        scenario = self.scenario
        slots = any(group.shared_link.slots is not None for group in scenario.groups)
        if self._record is not None or not (self._eventful() or slots):
            return
        if not can_plan(scenario):
            return
        if must_play(scenario):
            if scenario.devices * scenario.server.rounds > _PLAYED:
                return
        elif scenario.devices * instants(scenario) > _PLANNED:
            return
        learning = Learning.with_layout(scenario, prepared["examples"], layout_of(prepared))
        write_plan(self.folder, plan(scenario, learning, progress))


def _reported_x(scenario: Scenario, group: Group) -> dict[str, list[float]]:
    """The values that devices of a group report before a round, in order, with their bounds."""
    oracle = {PROPENSITY: (0.0, 1.0)} if life_of(scenario, group).tells_propensity else {}
    bounds = group.covariates.x_bounds() | oracle
    return {name: [*ends] for name, ends in bounds.items()}


def _slots_port(group: Group, ports: Ports | None) -> SlotsPort | None:
    shared = group.shared_link
    if shared.slots is None or ports is None:
        return None
    address = f"{ports.host}:{ports.control}"
    queue = shared.overflow == "queue"
    return SlotsPort(address=address, gateway=gateway_identity(group.gateway_group), queue=queue)
