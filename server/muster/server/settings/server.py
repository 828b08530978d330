"""The [server] table of a scenario."""

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, SerializeAsAny, model_validator

from muster.common.bounds import DeviceCount, LongTime, NotNegative, Number, Positive, RoundCount
from muster.common.config import Section
from muster.server.aggregators import AGGREGATORS, Aggregator
from muster.server.aggregators.fedavg import FedAvg
from muster.server.rounds.modes import MODES, Mode
from muster.server.rounds.modes.synchronous import Synchronous
from muster.server.rounds.selection import SELECTIONS, SelectAll, Selection
from muster.server.settings.privacy import Privacy
from muster.server.settings.secure import Secure


class Target(Section):
    """The run stops when every value given here is reached. With a target, the run waits for each
    evaluation."""

    accuracy: Annotated[float, Field(gt=0, le=1)] | None = None
    """Reached when the accuracy is at least this."""

    loss: Number | None = None
    """Reached when the loss is at most this."""

    at_least: dict[str, Number] = Field(default_factory=dict)
    """Values of metrics that the task measures, by name: reached when each is at least this."""

    at_most: dict[str, Number] = Field(default_factory=dict)
    """The same: reached when each is at most this."""

    @property
    def given(self) -> bool:
        """Whether any value is given."""
        return bool(self.least or self.most)

    @property
    def least(self) -> dict[str, float]:
        """What each metric must be at least."""
        return self.at_least | ({} if self.accuracy is None else {"accuracy": self.accuracy})

    @property
    def most(self) -> dict[str, float]:
        """What each metric must be at most."""
        return self.at_most | ({} if self.loss is None else {"loss": self.loss})

    def reached(self, metrics: Mapping[str, float]) -> bool:
        """Whether an evaluation reaches the target. A target without values is never reached, and
        neither is one for a metric that was not measured."""
        nan = float("nan")
        return self.given and (
            all(metrics.get(name, nan) >= value for name, value in self.least.items())
            and all(metrics.get(name, nan) <= value for name, value in self.most.items())
        )


class Best(Section):
    """The best version of the run is kept in `best.safetensors`, and the run may end when none
    better comes. It then waits for each evaluation."""

    metric: str = "loss"
    """The metric of an evaluation that decides: `loss`, `accuracy`, or another that the task
    measures, by name."""

    larger: bool | None = None
    """Whether larger values are better. Absent: not of `loss`, but of all others."""

    least_change: NotNegative = 0.0
    """A version is better if its metric differs by more than this."""

    patience: RoundCount | None = None
    """The run ends, as completed, after so many evaluations in a row without a better version.
    Absent: it does not end early."""

    @property
    def upwards(self) -> bool:
        """Whether larger values are better."""
        return self.metric != "loss" if self.larger is None else self.larger


class Guard(Section):
    """The conditions that an update must satisfy besides the schema."""

    finite: Literal[True] = True
    """Updates with a NaN or an infinity are refused, because an exact sum cannot hold them."""

    max_norm: Positive | None = None
    """Largest Euclidean norm of an update. Absent: no limit."""

    max_loss: Positive | None = None
    """Largest loss that a device may report to a rule that weighs by losses: before its training
    (`q-fedavg`), or of a model on its validation examples (`incfl`, `aaggff-s`). A device that
    reports a larger one does not count in that round. Without a limit, one device that reports a
    huge loss decides the weights of all. Absent: that of the protocol."""


class ServerSettings(Section):
    """How the server runs rounds."""

    rounds: RoundCount
    """Number of rounds to run; in the buffered mode, number of versions to make."""

    mode: Annotated[SerializeAsAny[Mode], BeforeValidator(MODES.parse)] = Synchronous(
        kind="synchronous"
    )
    """The mode, which decides whom a round calls and what completes it: a name, or a table with
    the name as `kind` and the mode's settings."""

    goal: DeviceCount | None = None
    """Number of updates that closes a round. Absent: as many as devices accepted the call, or the
    k of an over-selecting policy. The buffered mode ignores it; there, the mode's `k` decides."""

    deadline_s: LongTime | None = None
    """How long a round waits for updates, in seconds. Absent: without limit. In lockstep it is
    compared with each update's modelled duration; otherwise it is a timer. In the opportunistic
    mode, an update that takes longer counts in a later round."""

    minimum: DeviceCount = 1
    """If fewer updates come, the round is recorded as empty and the model does not change."""

    evaluate_every: RoundCount = 1
    """Number of rounds (in the buffered mode, versions) from one evaluation to the next. The last
    version is always evaluated."""

    evaluate_on: Literal["server", "devices", "both"] = "server"
    """The place where versions are evaluated. server: beside the server, on the task's test
    examples. devices: every device that is called evaluates the model that it received on examples
    of its own, before it trains ([models.md](models.md#evaluate-on-devices)). both: the loss and
    accuracy of the run are those beside the server, and groups and devices are measured on
    devices."""

    evaluate_groups: bool = False
    """Whether each evaluation also measures the model on the data of each group's devices: on their
    validation examples or, if `task.validation_ratio = 0`, on their training examples."""

    evaluate_devices: bool = False
    """Whether each evaluation also measures the model on the same data of every single device. Each
    evaluation then has a row for every device."""

    port: Annotated[int, Field(ge=0, le=65535)] = 0
    """TCP port on 127.0.0.1 or, on a cluster, on the address of the command's machine; 0: any free
    port."""

    metrics_port: Annotated[int, Field(ge=1, le=65535)] | None = None
    """TCP port on 127.0.0.1 or, on a cluster, on the address of the command's machine, at which
    Prometheus can read metrics of the server ([metrics.md](metrics.md)). It needs
    the extra `metrics` ([installing](installing.md)). Absent: no metrics."""

    information: Literal["full", "limited"] = "full"
    """The server's knowledge of the population. With "full" it knows the covariates Z and the
    enrollment of every device. With "limited" it knows only those of the enrolled devices, and the
    population's means and ranges of Z."""

    transfers: DeviceCount = 8
    """Number of uploads and downloads at the same time. Others wait in a queue, in order."""

    transfer_idle_s: Annotated[float, Field(ge=0.01, le=1e6)] = 30.0
    """Wall seconds without new bytes after which the server ends an upload or download, so that the
    next one in the queue can begin. The device resumes it later. Over an emulated link the limit is
    longer, depending on the link's rate and round-trip time. A whole transfer may exceed twice the
    time that its link needs for it by at most this limit."""

    stall_s: Annotated[float, Field(ge=0.01, le=1e6)] = 120.0
    """In lockstep: wall seconds without a message from any device after which the run fails. In the
    modes in which updates may outlive their round, on the other clocks: wall seconds without any
    device. A scenario must set at least 1."""

    heartbeat_s: Annotated[float, Field(ge=0.01, le=1e7)] = 10.0
    """Wall seconds between a device's heartbeats. A device that sends nothing for the time of two
    heartbeats counts as absent."""

    moments_noise: NotNegative = 0.0
    """Error of the population's means that the server gets: standard deviation of a normal error,
    drawn once for each mean and added to the true value."""

    selection: Annotated[SerializeAsAny[Selection], BeforeValidator(SELECTIONS.parse)] = SelectAll(
        kind="all"
    )
    """The policy that selects the devices that a round calls."""

    aggregator: Annotated[SerializeAsAny[Aggregator], BeforeValidator(AGGREGATORS.parse)] = FedAvg(
        kind="fedavg"
    )
    """The aggregator, which makes the next version: a name or module:Class, with its settings
    beside it."""

    target: Target = Target()
    """The run stops early when this target is reached."""

    best: Best | None = None
    """Keep the best version, and end when none better comes. Absent: neither."""

    keep_versions: RoundCount | None = None
    """Keep every n-th version of the model in `versions/` of the run folder, as the run would offer
    it. Absent: none is kept beside the last one."""

    privacy: Privacy | None = None
    """Differential privacy: every update is clipped, and noise is added. Absent: neither."""

    secure: Secure | None = None
    """Secure aggregation: the server gets the sum of the updates of a round, and no update. Absent:
    it gets the updates."""

    keep_updates: bool = False
    """Whether to keep every update that counts, as it arrived, in `updates/` of the run folder.
    `muster audit` then makes every version again from them. They take as much disk as all updates
    of the run together, and every round writes its own before it is committed."""

    guard: Guard = Guard()
    """Updates that violate these conditions are refused."""

    @model_validator(mode="after")
    def _best_is_measured(self) -> Self:
        if self.best is not None and self.evaluate_on == "devices":
            raise ValueError(
                "best: the best version is found where the server evaluates, but evaluate_on = "
                '"devices"; expected "server" or "both"'
            )
        return self

    @property
    def ends_early(self) -> bool:
        """Whether evaluations decide if there is another round."""
        return self.target.given or (self.best is not None and self.best.patience is not None)

    @property
    def clip(self) -> float | None:
        """The norm to which the server clips updates, all of which it weighs alike; None: it does
        neither."""
        return self.privacy.clip if self.privacy is not None and self.privacy.place.clips else None

    def round_goal(self) -> int | None:
        """Return the number of updates that closes a round; None if no number does."""
        return self.goal if self.goal is not None else self.selection.goal()

    def round_sizes(self, devices: int) -> tuple[int, int]:
        """Return the fewest updates with which a round is not empty, and the most that can count.

        Args:
            devices: number of devices in the population.
        """
        completion = self.mode.completion(self.round_goal(), self.deadline_s)
        limits = [devices, completion.goal]
        if not self.mode.outlives_round():
            limits.append(self.selection.most())
        most = min(limit for limit in limits if limit is not None)
        return max(self.minimum, completion.least), most
