"""The configuration of the server's process."""

from typing import Self

from pydantic import Field, model_validator

from muster.common.clock_kinds import ClockKind, is_lockstep
from muster.common.compression import AnyCodec
from muster.common.config import Section
from muster.common.credentials import SECRETS, SERVER, credentials_path
from muster.common.masks import AnyMasking, UnitLayer
from muster.common.schedules import Rate
from muster.common.secure.grid import SumFormat
from muster.common.shared_lines import SharedLine
from muster.common.tensors import Schema, TensorSpec
from muster.server.knowledge.local_work import LocalWork
from muster.server.knowledge.population import Oracle
from muster.server.settings.population import PopulationMember
from muster.server.settings.privacy import DeviceSampling
from muster.server.settings.server import ServerSettings


class TensorShape(Section):
    """The name and shape of one tensor of the model."""

    name: str
    shape: list[int]
    counted: bool = False
    """Whether forward passes change it, and not training."""


class GroupMask(Section):
    """The masks of a group."""

    masking: AnyMasking
    capacity: float
    """The largest share of the parameters that a device trains."""


class RunInput(Section):
    """Something with which a run begins, as the ledger records it."""

    kind: str
    name: str
    sha256: str


class ServerProcess(Section):
    """The configuration of a server's process: `setup/server.json` of the run folder."""

    run: str
    """Identity of the run."""

    inputs: list[RunInput] = Field(default_factory=list)
    """What the run begins with."""

    seed: int
    clock: ClockKind
    round_s: float = 60.0
    """Scenario seconds of a step of device life; with the clock "rounds", of a round."""

    scale: float = 1.0
    """On the scaled clock: scenario seconds per second."""

    server: ServerSettings
    task: str
    """JSON of the scenario's [task], passed unchanged to devices and to the evaluation process."""

    training: str
    """JSON of the scenario's [training], passed unchanged to devices."""

    local_work: LocalWork = LocalWork()
    """What the aggregator may need to know of local training."""

    sample: DeviceSampling | None = None
    """How devices are sampled, if the account of privacy may claim amplification by sampling."""

    gradient_step: Rate | None = None
    """The learning rate of the server's step if devices return gradients; otherwise absent."""

    population: list[PopulationMember]
    """All devices, by position. `server.information` determines which of them the ledger may show
    before they enroll."""

    z: list[str] = Field(default_factory=list)
    """Columns of the covariates Z that at least one group has."""

    z_bounds: dict[str, dict[str, list[float]]] = Field(default_factory=dict)
    """By group, the columns of Z that its devices have, with the smallest and the largest value in
    the population. A group that is absent has no bounds."""

    moments: dict[str, float] = Field(default_factory=dict)
    """Population means of the columns of Z and of the features that the aggregator asks for."""

    oracle: Oracle = Oracle()
    """The true values that the aggregator asks for, if it asks for any."""

    x: dict[str, list[str]] = Field(default_factory=dict)
    """Names of the covariates X by group, in the order in which devices report them."""

    x_bounds: dict[str, dict[str, list[float]]] = Field(default_factory=dict)
    """The smallest and the largest value of each covariate X, by group. A group that is absent has
    no bounds."""

    life: str | None = None
    """The life record from which the run is played, relative to the run folder. Absent: there is
    none."""

    grade: str = "arrivals"
    """What is taken from the life record, a name of `rounds.grades`."""

    calls_ahead: bool = False
    """Whether a round may be called while the round before it is being committed. It has an effect
    only if models travel inside calls. It is false if the state of devices changes during the run:
    if the server were killed before the commit, the devices would have to repeat a step of their
    simulation."""

    shared: dict[str, SharedLine] = Field(default_factory=dict)
    """The shared link of each group whose links limit or delay anything."""

    compression: dict[str, AnyCodec] = Field(default_factory=dict)
    """The codec of each group's updates. A group that is absent sends them uncompressed."""

    partial_sums: list[str] = Field(default_factory=list)
    """The groups whose processes hold the updates of their devices and send sums of them."""

    sum_format: SumFormat | None = None
    """How devices send their updates for secure sums. Absent: sums are not secure, and then
    `server.secure` is absent too."""

    on_error_fail: list[str] = Field(default_factory=list)
    """The groups in which an error in the training of a device ends the run."""

    errors_in_a_row: dict[str, int] = Field(default_factory=dict)
    """By group, the number of errors in a row after which a device is left out. The devices of a
    group that is absent are never left out."""

    masks: dict[str, GroupMask] = Field(default_factory=dict)
    """The masks of each group whose devices train parts of the model."""

    units: list[UnitLayer] = Field(default_factory=list)
    """The layers of hidden units of the model, if any group has masks."""

    schema_: list[TensorShape]
    frozen: str = ""
    """The checksum of the parameters that do not travel, because training must not move them."""

    credentials: str = str(credentials_path(SECRETS, SERVER))
    """The file with the server's credentials and the callers that it knows; relative to the run
    folder."""

    host: str = "127.0.0.1"
    port: int = 0
    """0: any free port."""

    metrics_port: int | None = None
    """The port of the metrics, on the same host. Absent: there are none."""

    outside: str | None = None
    """host:port at which operators reach the server. Absent: the address at which it listens."""

    evaluation: str | None = None
    """host:port of an evaluation process that is started separately. Absent: the server starts
    one."""

    nursery: int | None = None
    """Descriptor of the socket at which a nursery of this machine takes the server's orders. It
    forks the evaluation. Absent: the server starts the evaluation as its child."""

    @model_validator(mode="after")
    def _no_secure_sum_is_asked_for_openly(self) -> Self:
        if (self.server.secure is None) != (self.sum_format is None):
            raise ValueError("sum_format: expected with server.secure, and not without it")
        return self

    @property
    def lockstep(self) -> bool:
        """Whether the clock advances with the rounds."""
        return is_lockstep(self.clock)

    @property
    def tensors(self) -> Schema:
        """The tensors of the model."""
        specs = tuple(TensorSpec(t.name, tuple(t.shape), t.counted) for t in self.schema_)
        return Schema(specs, self.frozen)
