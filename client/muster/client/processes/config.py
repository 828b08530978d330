"""The configurations that the processes of devices get when they start."""

from pydantic import Field

from muster.client.connection.slots import SlotsPort
from muster.client.faults.scheduled import DeviceFault
from muster.client.life.participation import UtilitySettings
from muster.client.life.settings import ClockSettings, Life, PackMember
from muster.client.training.settings import GroupTraining, Training
from muster.common.compression import AnyCodec, Whole
from muster.common.config import Section
from muster.common.lines import LinkModel
from muster.common.masks import AnyMasking
from muster.common.secure.grid import SumFormat


class PackProcess(Section):
    """The configuration of a pack's process. A pack usually has one device."""

    name: str
    """Name of the process and its log: the client, or the first and the last client."""

    devices: list[PackMember]
    compression: AnyCodec = Whole(kind="none")
    """How updates are compressed."""

    life: Life | None = None
    """The settings of the simulated lives. Absent: the devices accept every call."""

    clock: ClockSettings = ClockSettings()
    """The clock of the simulated lives."""

    utility: UtilitySettings | None = None
    """How the devices decide whether a model serves them. Absent: they do not ask."""

    faults: list[DeviceFault] = Field(default_factory=list)
    """The faults of the devices' updates."""

    capacity: float = 1.0
    """Share of a model that each device can train."""

    training: GroupTraining = GroupTraining()
    """What differs in the devices' training from that which the server announces."""

    partial_sums: bool = False
    """Whether the devices hold their updates back, and the process sends sums of them."""

    secure: SumFormat | None = None
    """How they send their updates for secure sums. Then the process sends no others, whatever the
    server asks. Absent: sums are not secure."""

    mask: AnyMasking | None = None
    """Which part of the model each device trains. Absent: the whole model."""

    line: LinkModel = LinkModel()
    """The model of each device's link. The gateway emulates the network itself."""

    least: LinkModel = LinkModel()
    """The model of the link when all devices that may transfer at once share it. It decides
    timeouts and how much to send at once."""

    slots: SlotsPort | None = None
    """The port at which channel slots are granted. Absent: the devices need no slots."""

    torch_device: str = "cpu"
    """Torch's name of the processor that trains: cpu, cuda:0 and so on."""

    seed: int
    population: int
    """Number of devices in the whole scenario."""

    task: str
    """JSON of the scenario's [task]; the task that the server announces must be the same."""

    address: str
    """host:port of the server or of the pack's gateway."""

    credentials: str
    """The file with the credentials of this process."""

    folder: str
    """The folder `devices` of the run folder, with a folder for each device."""


class PackContainer(Section):
    """The configuration of a container with several packs."""

    packs: list[PackProcess]


class GroupTrial(Section):
    """What is tried of a group of devices before a run starts."""

    name: str
    """The name of the group."""

    devices: dict[str, int]
    """The indices of its enrolled devices, by name."""

    training: GroupTraining = GroupTraining()
    """As in `PackProcess`."""


class Trial(Section):
    """What is tried before a run starts (`muster.client.processes.trial`)."""

    training: Training
    """The training that the server announces to devices."""

    groups: list[GroupTrial]
    """The groups with enrolled devices."""


class Surroundings(Section):
    """Where a nursery is, which may have been started before its run was known."""

    directory: str | None = None
    """Its current directory; None: that of the command."""

    own_code: str | None = None
    """What `muster.common.own_code` has announced; None: there is no code of the user's own."""


class NurseryProcess(Section):
    """The configuration of a nursery."""

    task: str
    """JSON of the scenario's [task]."""

    population: int
    seed: int
    folder: str
    """The run folder."""

    writes_model: bool = True
    """Whether it writes the initial model into the run folder. If a run has several nurseries, on
    different machines, one of them does."""

    rational: dict[str, int] = Field(default_factory=dict)
    """The index of each enrolled device that is rational, by its name."""

    together: bool = False
    """Whether devices train at the same time, which not every model allows."""

    trial: Trial | None = None
    """What is tried before the start; None: the scenario has no code and no data of its own."""

    packs: int = 0
    """The number of packs that it may have to fork."""
