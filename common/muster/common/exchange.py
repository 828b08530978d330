"""The values that devices and the server exchange, independent of protobuf.

`muster.wire` converts them to protobuf and back. The names of enum members are those of
proto/muster/v1. Values are named tuples, because several are made for every device of every round,
and a frozen dataclass takes three times as long.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

from muster.common.facts import NO_FACTS, Facts

PROPENSITY = "participation_propensity"
"""Name of a covariate X that devices report for oracles: their true propensity to take part when
they are called."""


Body = bytes | memoryview
"""The bytes of a model or an update as they are transferred."""


class Decision(StrEnum):
    """A device's answer to a call."""

    ACCEPT = "accept"
    DECLINE = "decline"
    ABORT = "abort"


class Reason(StrEnum):
    """Why a call was declined, or an update was refused or left out."""

    BUSY = "busy"
    OFFLINE = "offline"
    BATTERY = "battery"
    NOT_CHARGING = "not charging"
    METERED = "metered"
    UNWILLING = "unwilling"
    POWERED_OFF = "powered off"
    DROP_OUT = "drop-out"
    INTERRUPTED = "interrupted"
    SLOT_TAKEN = "slot taken"
    NO_GAIN = "no gain"
    TRAINING_FAILED = "training failed"

    PROTOCOL_VERSION = "protocol version"
    UNKNOWN_CLIENT = "unknown client"
    WRONG_ROUND = "wrong round"
    NOT_CALLED = "not called"
    LENGTH = "length"
    CHECKSUM = "checksum"
    NOT_FINITE = "not finite"
    NORM = "norm"
    OTHER_BODY = "other body"
    EXAMPLES = "examples"
    STEPS = "steps"
    LOSS = "loss"
    VALUATION = "valuation"
    MALFORMED = "malformed"

    DEADLINE = "deadline"
    GOAL_REACHED = "goal reached"
    ROUND_CLOSED = "round closed"
    STALE = "stale"
    SUM_MISSING = "sum missing"


SILENT = frozenset({Reason.DROP_OUT, Reason.POWERED_OFF})
"""Why a device that loses its work cannot say so. In lockstep it reports the reason nevertheless,
because rounds wait for it. On other clocks it says nothing, and the server has to find out."""


class Outcome(StrEnum):
    """The outcome of an update, which a receipt reports."""

    ACCEPTED = "accepted"
    LATE = "late"
    REFUSED = "refused"
    RESUME = "resume"


class Key(NamedTuple):
    """The key that identifies an update within a run."""

    client: str
    round: int
    attempt: int


class Call(NamedTuple):
    """The server's call to a device to train for a round.

    Attributes:
        deadline_s: seconds that the round stays open, in the scenario's clock; 0: no deadline.
        model_checksum: XXH3-128 of the base version's body.
        called_in_group: number of devices of the same group that are called for the round.
        step: in lockstep, the step of the device's simulated life at which it is called.
        counted_round: if devices keep control variates or are told weights, the round of the call
            for the device's newest update that counted; 0: none.
        weight: the device's weight in the base version; None: the aggregator announces none.
        retains_model: whether the device's part in the base version is the model that it has sent
            last, not the version before plus its last update.
        instruction: what the strategy of an app tells the device; empty if no strategy runs.
    """

    key: Key
    base_version: int
    deadline_s: float
    model_checksum: bytes
    called_in_group: int = 0
    step: int = 0
    counted_round: int = 0
    weight: float | None = None
    retains_model: bool = False
    instruction: bytes = b""


class Held(NamedTuple):
    """What the server gets to know of an update that its process holds back for a partial sum.

    Attributes:
        largest: its largest absolute entry; not finite if an entry is not.
        squared_norm: ‖Δ‖², as `muster.common.exact_sum.squared_norm` computes it.
    """

    largest: float
    squared_norm: float


class Update(NamedTuple):
    """The update that a device returns, without the body.

    Attributes:
        examples: number of training examples behind it; > 0.
        checksum: XXH3-128 of the body as it is transferred.
        length: length of the body in bytes.
        train_s: wall seconds of training.
        fetch_s: wall seconds of fetching the model.
        loss: mean training loss over the local steps; NaN if there were none.
        modelled_s: seconds of work and transfers in the scenario's model of the device.
        fetch_wait_s: the part of `fetch_s` before the model's first byte.
        fetched_at: UNIX seconds when the device asked for the model; 0: it came with the call.
        slot_wait_s: wall seconds of waiting for a channel slot.
        steps: number of local steps behind it.
        facts: what else the device has measured.
        report: what an app reports beside the update; of other tasks, the metrics that the device
            measured of the received model (`muster.common.device_metrics`), if it was asked to.
        held: what the server needs to know if the device's process holds the update back for a
            partial sum; None: its body travels.
    """

    key: Key
    examples: int
    checksum: bytes
    length: int
    train_s: float
    fetch_s: float
    loss: float
    modelled_s: float = 0.0
    fetch_wait_s: float = 0.0
    fetched_at: float = 0.0
    slot_wait_s: float = 0.0
    steps: int = 0
    facts: Facts = NO_FACTS
    report: bytes = b""
    held: Held | None = None


class DeviceState(NamedTuple):
    """The state of a device that it can report.

    Attributes:
        battery: charge as a share of full; 1 on mains.
        idle: whether nobody uses the device.
        network: "ethernet", "wifi" or "cellular".
        hour: local hour of the day, in [0, 24).
    """

    battery: float
    charging: bool
    idle: bool
    network: str
    unmetered: bool
    hour: float


class Identity(NamedTuple):
    """The identity with which a device enrolls.

    Attributes:
        capacity: share of a model that the device can train.
        z: covariates Z as numbers, by name; a category is `name=level`. None: they are not known.
    """

    client: str
    examples: int
    capacity: float = 1.0
    z: Mapping[str, float] | None = MappingProxyType({})


class Observation(NamedTuple):
    """An observation of a device at a moment.

    Attributes:
        state: None for a device whose state never changes.
        x: covariates X in the scenario's order.
    """

    client: str
    state: DeviceState | None
    x: tuple[float, ...]


class UtilityCurve(NamedTuple):
    """A device's utility u(r) = −a·r² + b·r + c as a function of its weight r in the model.

    Attributes:
        a: > 0.
        threshold: the utility γ below which the device leaves.
    """

    a: float
    b: float
    c: float
    threshold: float

    def at(self, r: float) -> float:
        """The utility at a weight."""
        return (self.b - self.a * r) * r + self.c


LARGEST_UTILITY = 1e6
"""The largest absolute value of a number in a valuation. Coefficients that are fitted to accuracies
at weights up to 0.005 are at most 160,000."""


class Valuation(NamedTuple):
    """How a rational device values the model of a call, on its own validation examples.

    Attributes:
        received_accuracy: share of right predictions of the received model; this is the device's
            measured utility at its weight in that model.
        own_accuracy: the same of the device's own model; None in its first round.
        curve: its utility after this round's training; None if the call had no weight. If the
            device could not fit one in this round, this is the newest that it has fitted.
        gains: whether the received model is better for the device than its own, whatever rule the
            device follows (eq. 1 of FedUCA with its margin and tolerance); None without a model of
            its own.
        forced: whether the device had to accept, without a test.
        fitted_utility: the utility at the weight of the call by the curve before this round; None
            without a curve or a weight.
        r_squared: R² of `curve` on a grid of more weights; at most 1, None if it was not measured.
        received_loss: loss of the received model on the validation examples; None if it is not
            finite or larger than LARGEST_UTILITY.
        own_loss: the same of the device's own model.
    """

    received_accuracy: float
    own_accuracy: float | None
    curve: UtilityCurve | None = None
    gains: bool | None = None
    forced: bool = False
    fitted_utility: float | None = None
    r_squared: float | None = None
    received_loss: float | None = None
    own_loss: float | None = None


class Answer(NamedTuple):
    """A device's answer to a call; the body of a small update travels with it.

    Attributes:
        modelled_s: seconds of work and transfers in the scenario's model of the device.
        update: the update, if it is small enough to travel inline.
        state: the state at the moment of the decision; None for a device whose state never changes.
        x: covariates X at that moment, in the scenario's order.
        away_steps: in lockstep and for a device that is offline: number of steps after this one
            at which it would give the same answer.
        foreseen: what it would report at each of these steps; empty if it has neither a state nor
            X.
        valuation: how a rational device valued the model; None for all others.
        fault: what is wrong with the valuation that was sent, which is then None; empty: nothing.
        detail: the error for which the device gives up; empty without one.
    """

    key: Key
    decision: Decision
    modelled_s: float = 0.0
    reason: Reason | None = None
    update: Update | None = None
    state: DeviceState | None = None
    x: tuple[float, ...] = ()
    away_steps: int = 0
    valuation: Valuation | None = None
    fault: str = ""
    foreseen: Sequence[Observation] = ()
    detail: str = ""


class Receipt(NamedTuple):
    """The server's receipt of an update. An update is accepted only by its receipt.

    Attributes:
        offset: with RESUME, the number of bytes that the server holds.
    """

    key: Key
    outcome: Outcome
    reason: Reason | None = None
    detail: str = ""
    offset: int = 0


class Commit(NamedTuple):
    """The newest committed round and version, which are durable; 0 and 0 before the first."""

    round: int = 0
    version: int = 0


class Fingerprint(NamedTuple):
    """The fingerprint of the software and hardware that decide the bits of training."""

    torch: str
    cpu_capability: str
    device: str
    threads: int


class SumRequest(NamedTuple):
    """The server's request for the sum of updates that a process holds, or a part of the request.

    Attributes:
        number: the number of the sum, within an incarnation of the server.
        weights: one per call of the message.
        begins: whether the sum begins with this message.
        ends: whether the sum is complete with the updates of this message.
        step: of a secure sum (`muster.common.secure.steps`), which is asked for in place of the
            sum; empty: the sum is asked for.
    """

    number: int
    weights: Sequence[float]
    begins: bool
    ends: bool
    step: bytes = b""


class SumHeader(NamedTuple):
    """What a process says of a sum before its bytes.

    Attributes:
        length: bytes of the sum; 0 if all of its updates are missing.
        checksum: XXH3-128 of the sum.
        missing: clients whose updates are not in it.
    """

    number: int
    length: int
    checksum: bytes
    missing: Sequence[str] = ()


@dataclass(slots=True)
class ToDevice:
    """One message of the server to a pack of devices.

    Attributes:
        model: body of the base version of the calls, if it is small.
        goodbye: status of the run, which is over; this is the last message.
        scenario_s: scenario seconds now, if the clock is wall or scaled and scenario time has
            begun.
        sum_request: the calls ask for the sum of held updates, not for answers; None: they ask for
            answers.
    """

    receipts: Sequence[Receipt] = ()
    committed: Commit | None = None
    model: Body | None = None
    calls: Sequence[Call] = ()
    goodbye: str | None = None
    scenario_s: float | None = None
    sum_request: SumRequest | None = None
