"""Every setting of a scenario, as the tables of a TOML file have them."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import tomli_w
from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from muster.client.availability import AnyAvailability
from muster.client.availability.always import Always
from muster.client.life.covariates import Covariates, column_names
from muster.client.life.device_settings import DeviceSettings
from muster.client.life.participation import ParticipationSettings
from muster.client.life.settings import ClockSettings
from muster.client.training.settings import GroupTraining, Training
from muster.common.bounds import DeviceCount, Name
from muster.common.catalogue import read_catalogue, require_known
from muster.common.config import Section
from muster.common.installation import VERSION
from muster.common.masks import AnyMasking
from muster.common.secure.grid import SumFormat
from muster.common.shared_lines import SharedLine
from muster.emulator.expectations.settings import Expectation
from muster.emulator.faults.settings import Faults
from muster.emulator.links.settings import LinkSettings
from muster.emulator.links.shared import SharedLink, with_shared_links
from muster.emulator.scenario.device_table import DeviceTable, with_columns
from muster.emulator.scenario.energy import EnergySettings
from muster.emulator.scenario.enrollment import AnyEnrollment, EnrollAll
from muster.emulator.scenario.local_work import local_work_of
from muster.server.aggregators import Conditions
from muster.server.knowledge.local_work import LocalWork
from muster.server.settings.server import ServerSettings
from muster.tasks.tasks import AnyTask

"""A name that becomes part of file names. It is so short that a file name made of two of them and
a suffix is still valid."""


LIVES = read_catalogue(Path(__file__).with_name("lives.toml"))
"""The presets of `life`, by name."""

Life = Annotated[
    str, AfterValidator(lambda name: require_known(name, [*LIVES], "lives")), Field(max_length=100)
]


def _with_life(group: Mapping[str, Any]) -> Mapping[str, Any]:
    """The settings of a group with the presets of its life; what is given takes precedence."""
    preset = LIVES.get(str(group.get("life")))
    if preset is None:
        return group
    found = {**preset.values, **group}
    given = group.get("participation", {})
    if isinstance(given, Mapping):
        found["participation"] = {**preset.values.get("participation", {}), **given}
    return found


def _parse_table(value: object) -> object:
    """Read the table of devices; a bare path is enough."""
    return {"path": value} if isinstance(value, str) else value


class Group(Section):
    """A group of devices that share a description."""

    name: Name
    """Name of the group. The names of its devices and of their folders begin with it."""

    count: DeviceCount
    """Number of devices in the group."""

    table: Annotated[DeviceTable | None, BeforeValidator(_parse_table)] = None
    """A file with what differs between the devices: its path, or a table."""

    devices_per_process: DeviceCount = 1
    """Number of devices that share a process and its connection, so that one message carries many
    answers. Each device still has its own identity, state, data and random streams. With 1, every
    device has its own process."""

    partial_sums: bool = False
    """Whether every process of the group holds the updates of its devices back and sends the server
    their weighted sum instead, once for all devices of a round. The model is the same, bit for bit
    ([partial-sums.md](partial-sums.md))."""

    devices_per_container: DeviceCount = 1
    """With the docker backend, number of devices that share a container. Each of them still has
    its own process."""

    covariates: Covariates = Covariates()
    """Covariates of the devices: Z is observed before enrollment, X before every round."""

    training: GroupTraining = GroupTraining()
    """What differs in the local training of the group's devices: its length, minibatches and
    learning rate. Absent: nothing."""

    on_error: Literal["abort", "fail"] = "abort"
    """What an error in the training of a device ends, also if memory runs out. With "abort" it ends
    the call: the device gives up, the ledger has the error, and the device takes part in later
    rounds. With "fail" it ends the run, as failed, with the error as the reason."""

    errors_in_a_row: DeviceCount | None = None
    """Number of calls in a row in which the training of a device fails before the server leaves the
    device out of all later rounds. Absent: it is never left out."""

    enrollment: AnyEnrollment = EnrollAll(kind="all")
    """Rule that decides which devices are enrolled. The others never train."""

    device: DeviceSettings = DeviceSettings()
    """Hardware and state of the devices, for example their speed and battery."""

    life: Life | None = None
    """Presets of `availability` and `participation`, by name ([lives](#lives)). Absent: none."""

    availability: AnyAvailability = Always(kind="always")
    """When the devices can be reached."""

    participation: ParticipationSettings = ParticipationSettings()
    """How the devices respond to a call of the server."""

    mask: AnyMasking | None = None
    """Which part of the model each device trains and returns: a kind of mask, or a table with the
    kind and its settings. `groups.device.capacity` is the largest size of the part. Absent: the
    whole model."""

    link: LinkSettings = LinkSettings()
    """Link of each device to the server."""

    shared_link: SharedLink = SharedLink()
    """Link that all devices of the group share."""

    @model_validator(mode="before")
    @classmethod
    def _with_presets(cls, values: object) -> object:
        """Set the keys for which the table of devices has columns, and those of a life."""
        return with_columns(_with_life(values)) if isinstance(values, Mapping) else values

    @model_validator(mode="after")
    def _one_end(self) -> Self:
        if self.on_error == "fail" and self.errors_in_a_row is not None:
            raise ValueError(
                f"errors_in_a_row = {self.errors_in_a_row} leaves a device out, but on_error = "
                f'"fail" ends the run at the first error; expected one of them'
            )
        return self

    @property
    def gateway(self) -> bool:
        """Whether the devices reach the server through a gateway."""
        return self.link.gateway or self.shared_link.gateway

    @property
    def shaped(self) -> bool:
        """Whether the gateway delays, limits or denies anything."""
        return self.link.shapes or self.shared_link.gateway

    def shared_line(self, seed: int) -> SharedLine:
        """The model of the shared link. Its cross traffic is drawn from the scenario's seed."""
        return self.shared_link.line(seed, self.gateway_group)

    @property
    def gateway_group(self) -> str:
        """The name of its gateway: that of the shared link, if several groups share one, otherwise
        that of the group."""
        return self.shared_link.name or self.name

    @property
    def keeps_state(self) -> bool:
        """Whether what a device did in earlier rounds decides what it does in later ones: its
        battery, what compression has left out of its updates, how often it took part, or its own
        model."""
        recent = "recent" in self.covariates.x.values()
        kept = recent or self.participation.rational is not None
        return self.device.lives or self.link.compression.feedback or kept

    @property
    def processes(self) -> int:
        """Number of processes in which the group's devices run."""
        return -(-self.count // self.devices_per_process)


class ClusterSettings(Section):
    """With the ray backend, the nodes that carry the devices of a run, and what is reserved for
    them; with `muster up --swarm`, their labels ([cluster.md](cluster.md))."""

    nodes: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """Number of nodes that carry devices. Absent: all nodes that the cluster has."""

    resources: dict[str, Annotated[float, Field(ge=0.0001, le=1e15)]] = Field(
        default_factory=lambda: {"CPU": 0.002, "memory": 20.0 * 2**20}
    )
    """What is reserved for each process of devices, by Ray's name of the resource: CPU (logical
    cores), memory (bytes), or a resource of your own. Ray reserves but does not limit. The default
    is what a small model needs: 500 processes to a core, 20 MiB each. GPUs are reserved by
    themselves, for devices with `torch_device`."""

    labels: dict[Name, dict[str, str]] = Field(default_factory=dict)
    """Labels that a node must have to carry a group, by the name of the group:
    `labels = { vision = { zone = "b" } }`. Groups that are absent may be on any node."""

    server_labels: dict[str, str] = Field(default_factory=dict)
    """Labels that the node with the server must have: `server_labels = { place = "server" }`. The
    server is on the node where the command is started; on a node without these labels, the run is
    refused, and the refusal names the nodes that have them."""

    lease_s: Annotated[float, Field(ge=1, le=3600)] = 10.0
    """Wall seconds without a word from the command that runs the fleet after which the programs of
    a node end. If a node is lost, its devices are started elsewhere a second later, so that no
    device is there twice unless the last message to the node took longer than that second."""


class Launch(Section):
    """How the processes of a run are started, restarted and placed."""

    restarts: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    """Number of deaths after which a process is restarted instead of failing the run. Deaths of
    the server, of gateways and of devices count, also while they start; so do deaths of the
    evaluation if it is a container of its own. If a node of a cluster is lost, this counts once for
    all its devices and once for each gateway. The nursery is restarted only if it dies while it
    starts. Whatever the number, a run that failed can be resumed."""

    start: Literal["fork", "spawn"] = "fork"
    """How device processes are started. `fork` forks them from a warm parent, which takes
    milliseconds and shares the parent's memory. With `spawn`, every process imports torch and reads
    its data by itself, which takes seconds. Devices on a GPU are always spawned."""

    own_core: bool = True
    """Whether the server gets a CPU core of its own while rounds wait for the server rather than
    for devices, as with tiny models. The devices then share the other cores. Applies to Linux and
    the processes backend."""

    tls: bool = False
    """Whether the processes of a run encrypt their connections and show certificates to each other
    ([security.md](security.md)). Containers and clusters always do."""

    authority: str | None = None
    """The folder of a certificate authority of your own, from `muster certs`, which signs the
    certificates of the run; relative to the scenario file. By default every start of a run makes an
    authority of its own, whose key is never written anywhere."""

    server_image: str = f"muster-server:{VERSION}"
    """With the docker backend, image of the server and of gateways."""

    client_image: str = f"muster-client:{VERSION}"
    """With the docker backend, image of the devices and of the evaluation. You may use an image
    derived from ours that adds packages of your own."""

    devices_per_gpu: DeviceCount = 8
    """Number of processes that may train on one GPU, of this machine or of a node of a cluster.
    Each takes some hundred MiB of its memory. With 1, every process has a GPU of its own."""

    cluster: ClusterSettings = ClusterSettings()


class LifeSettings(Section):
    """The life record from which a scenario is played ([what-if.md](what-if.md))."""

    record: str
    """The file of the record, as `muster life export` writes it; relative to the scenario file. It
    takes the place of availability, participation, links, batteries, and what `grade` says."""

    grade: Literal["arrivals", "life"] = "arrivals"
    """What else is taken from the record. `arrivals`: in every round the same devices train, and
    the same updates count, without deadlines. `life`: the answers and durations of devices; the
    server selects and decides anew."""


class ScenarioSettings(Section):
    """The settings of a whole experiment, each of which is possible by itself."""

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

    life: LifeSettings | None = None
    """The life record from which the scenario is played. Absent: its devices live their own lives.
    """

    energy: EnergySettings | None = None
    """The energy account. Absent: none is computed."""

    faults: Faults = Field(default_factory=list)
    """What goes wrong, for whom and when ([faults.md](faults.md))."""

    expect: Annotated[list[Expectation], Field(max_length=1_000)] = Field(default_factory=list)
    """What must hold when the run has ended; otherwise `muster run` exits with status 1."""

    modules: str | None = None
    """The folder from which every process imports code of your own, which a scenario names as
    `module:Class` or `module:function`; relative to the scenario file. By default it is the folder
    of the scenario file."""

    verify: bool = False
    """Whether to measure every link briefly before the run. (`muster verify` measures at length.)
    If a link does not match its settings, the run ends before it begins."""

    @model_validator(mode="before")
    @classmethod
    def _with_shared_links(cls, values: object) -> object:
        """Give every group the whole table of the shared link that it names."""
        if not isinstance(values, Mapping) or "groups" not in values:
            return values
        return {**values, "groups": with_shared_links(values["groups"])}

    def devices_at_gateways(self) -> Mapping[str, int]:
        """How many devices each gateway has, by `Group.gateway_group`."""
        found = Counter[str]()
        for group in self.groups:
            found[group.gateway_group] += group.count
        return found

    @property
    def devices(self) -> int:
        """Number of devices in the population."""
        return sum(group.count for group in self.groups)

    def holds(self, group: Group) -> bool:
        """Whether devices of a group hold their updates back, and the server gets sums of them."""
        return group.partial_sums or self.server.secure is not None

    def sum_format(self, examples: int) -> SumFormat | None:
        """How devices send their updates for secure sums; None: sums are not secure.

        Args:
            examples: the most that a device has.
        """
        server = self.server
        if server.secure is None:
            return None
        most = server.round_sizes(self.devices)[1]
        return server.secure.format(most, examples, server.privacy, server.minimum)

    @property
    def longest_round_s(self) -> float:
        """Seconds after which a round ends at the latest, as far as plans know it: its deadline, or
        without one a step of device life. On the scaled clock these are wall seconds."""
        return self.server.deadline_s or self.clock.round_s

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
        least, most = self.server.round_sizes(self.devices)
        return Conditions(
            z=frozenset(self.z_columns),
            x=frozenset(name for group in self.groups for name in group.covariates.x),
            full=self.server.information == "full",
            selection=self.server.selection.kind,
            lockstep=self.clock.lockstep,
            gradient=self.training.gradient,
            masked=any(group.mask is not None for group in self.groups),
            least=least,
            most=most,
            discounts=self.server.mode.discounts(),
            local_work=self.local_work,
            rational=all(group.participation.rational for group in self.groups),
        )

    @property
    def trainings(self) -> list[Training]:
        """The different trainings of groups, without what differs for single devices."""
        found: list[Training] = []
        for group in self.groups:
            if (training := self.training.of(group.training)) not in found:
                found.append(training)
        return found

    @property
    def local_work(self) -> LocalWork:
        """What the aggregator may know of local training."""
        return local_work_of(self.training, [group.training for group in self.groups])

    def to_toml(self) -> str:
        """The scenario with every default, as it is written into the run folder."""
        return tomli_w.dumps(self.model_dump(exclude_none=True))
