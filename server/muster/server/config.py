"""The [server] table of a scenario, and what the server's process is started with."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, SerializeAsAny

from muster.common.bounds import DeviceCount, LongTime, NotNegative, Number, Positive, RoundCount
from muster.common.compression import AnyCodec
from muster.common.config import Section
from muster.common.lines import LinkModel, SharedLine
from muster.common.schedules import Rate
from muster.server.aggregators import AGGREGATORS, Aggregator
from muster.server.aggregators.fedavg import FedAvg
from muster.server.knowledge.population import Oracle
from muster.server.rounds.selection import SELECTIONS, SelectAll, Selection


class Target(Section):
    """Stop when every value given here is reached; the run then waits for each evaluation."""

    accuracy: Annotated[float, Field(gt=0, le=1)] | None = None
    """Reached when the accuracy is at least this."""

    loss: Number | None = None
    """Reached when the loss is at most this."""

    @property
    def given(self) -> bool:
        """Whether there is one at all."""
        return self.accuracy is not None or self.loss is not None

    def reached(self, loss: float, accuracy: float | None) -> bool:
        """Whether an evaluation meets it; a target that names nothing is never met."""
        if not self.given:
            return False
        return (self.loss is None or loss <= self.loss) and (
            self.accuracy is None or (accuracy is not None and accuracy >= self.accuracy)
        )


class Guard(Section):
    """What an update must satisfy besides the schema."""

    finite: Literal[True] = True
    """Updates with a NaN or an infinity are refused; an exact sum cannot hold them."""

    max_norm: Positive | None = None
    """Largest Euclidean norm of an update; absent: any."""


class ServerSettings(Section):
    """How rounds are run."""

    rounds: RoundCount
    """Rounds to run."""

    mode: Literal["synchronous"] = "synchronous"
    """A round closes at its goal, when every device called has spoken, or at its deadline."""

    goal: DeviceCount | None = None
    """Updates that close a round; absent: all that were accepted, or the k of an over-selecting
    policy."""

    deadline_s: LongTime | None = None
    """How long a round waits for updates; absent: without end. In lockstep it is compared with
    each update's modelled duration, on the wall clock it is a timer."""

    minimum: DeviceCount = 1
    """With fewer updates the round is recorded as empty and the model stays."""

    evaluate_every: RoundCount = 1
    """Rounds between evaluations; the last version is always evaluated."""

    evaluate_groups: bool = False
    """Whether each evaluation also measures the model on what the devices of every group hold:
    their validation examples, or with `task.validation_ratio = 0` those they train on."""

    evaluate_devices: bool = False
    """Likewise on every device by itself: a row for each of them in every evaluation."""

    port: Annotated[int, Field(ge=0, le=65535)] = 0
    """TCP port on 127.0.0.1; 0: any free one."""

    information: Literal["full", "limited"] = "full"
    """What the server knows of the population. full: covariates Z and enrollment of every device.
    limited: those of the enrolled alone, and the population's means of Z."""

    transfers: DeviceCount = 8
    """Uploads and downloads at once; the rest queue in order."""

    transfer_idle_s: Annotated[float, Field(ge=0.01, le=1e6)] = 30.0
    """Wall seconds without new bytes after which the server ends an upload or download, so that the
    next one in the queue can begin; the device resumes it later. Over an emulated link the limit is
    longer, by what the link's rate and round trip ask for. Also the time that a whole transfer may
    take beyond twice what its link needs for it."""

    stall_s: Annotated[float, Field(ge=0.01, le=1e6)] = 120.0
    """Lockstep: wall seconds without a word from any device after which the run fails; a
    scenario has at least 1."""

    heartbeat_s: Annotated[float, Field(ge=0.01, le=1e7)] = 10.0
    """Wall seconds between a device's heartbeats; two without a word and it counts as absent."""

    moments_noise: NotNegative = 0.0
    """How far the population's means are from the truth that the server is told: standard deviation
    of a normal error, drawn once for each of them."""

    selection: Annotated[SerializeAsAny[Selection], BeforeValidator(SELECTIONS.parse)] = SelectAll(
        kind="all"
    )
    """Whom a round calls."""

    aggregator: Annotated[SerializeAsAny[Aggregator], BeforeValidator(AGGREGATORS.parse)] = FedAvg(
        kind="fedavg"
    )
    """The rule that makes the next version: a name or module:Class, its settings beside it."""

    target: Target = Target()
    """Stop early when reached."""

    guard: Guard = Guard()
    """Refuse updates that break it."""

    def round_goal(self) -> int | None:
        """Updates that close a round, if a number does."""
        return self.goal if self.goal is not None else self.selection.goal()


class PopulationMember(Section):
    """One device of the population, as the server's books know it before it enrolls."""

    client: str
    group: str
    examples: int
    enrolled: bool = True
    """Whether it may train; decided once, before the run."""

    z: dict[str, float] | None = None
    """Covariates Z as numbers; absent with limited information, until the device enrolls."""

    line: LinkModel | None = None
    """Its link in the scenario's model; absent: transfers take no time in it."""


class TensorShape(Section):
    """One tensor of the model."""

    name: str
    shape: list[int]


class ServerProcess(Section):
    """What a server is started with: `setup/server.json` of the run folder."""

    run: str
    """Identity of the run."""

    seed: int
    clock: Literal["rounds", "wall", "scaled"]
    round_s: float = 60.0
    """Lockstep: scenario seconds from one round to the next."""

    scale: float = 1.0
    """Scaled: scenario seconds per second."""

    server: ServerSettings
    task: str
    """JSON of the scenario's [task], handed to devices and to the evaluation as it is."""

    training: str
    """JSON of the scenario's [training], handed to devices as it is."""

    gradient_step: Rate | None = None
    """Set when devices return gradients: the learning rate with which the server descends."""

    population: list[PopulationMember]
    """All devices, by position; `server.information` says which of them the books may show."""

    z: list[str] = Field(default_factory=list)
    """Columns of the covariates Z that any group has."""

    moments: dict[str, float] = Field(default_factory=dict)
    """Population means of the columns of Z, and of the features that the aggregator asks for."""

    oracle: Oracle = Oracle()
    """The truth, as far as the aggregator asks for it."""

    x: dict[str, list[str]] = Field(default_factory=dict)
    """Names of the covariates X by group, in the order in which devices report them."""

    calls_ahead: bool = False
    """Whether a round may be called while the one before is written down, where models are inline:
    not if devices live, who would have to live a step again when the server forgets it."""

    shared: dict[str, SharedLine] = Field(default_factory=dict)
    """What the devices of a group share, of the groups whose links limit or delay anything."""

    compression: dict[str, AnyCodec] = Field(default_factory=dict)
    """How updates of a group's devices travel; a group that is not in it sends them whole."""

    schema_: list[TensorShape]
    fleet_token: str
    """Hexadecimal; a device shows it when it enrolls."""

    operator_token: str
    """Hexadecimal; the operator shows it with every call."""

    host: str = "127.0.0.1"
    port: int = 0
    """0: any free port."""

    outside: str | None = None
    """host:port under which operators reach it; absent: where it listens."""

    evaluation: str | None = None
    """host:port of an evaluation that runs by itself; absent: the server starts one beside it."""
