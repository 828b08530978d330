"""The events of a run: a class for each, whose fields are those of its line in `journal.jsonl`.

The table of events in docs/results.md is generated from this module (`make docs`).
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar


class Event:
    """Something that happened in a run. Each kind of event is a dataclass.

    Attributes:
        name: the value of `event` in the journal, made of the class's name: `RoundOpened` is
            `round_opened`.
    """

    name: ClassVar[str]

    def __init_subclass__(cls) -> None:
        cls.name = re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()

    def fields(self) -> Mapping[str, Any]:
        """The fields of the event by name."""
        return vars(self)


def event_kinds(base: type[Event] = Event) -> list[type[Event]]:
    """The kinds of events of all modules that are imported, without classes that only other kinds
    derive from."""
    kinds = [(kind, event_kinds(kind)) for kind in base.__subclasses__()]
    return [each for kind, below in kinds for each in below or [kind]]


Tell = Callable[[Event], None]
"""Records an event in the journal, and forwards it to watchers if the server calls it."""


# --- from the server -----------------------------------------------------------------------------


@dataclass(frozen=True)
class ServerStarted(Event):
    """A server is ready.

    Attributes:
        round: the last committed round.
        version: the newest version of the model.
        population: the number of devices that the server knows.
        rounds: the number of rounds of the run, or of versions if `counts` says so.
        counts: "rounds" or "versions".
        bytes_up, bytes_down: the bytes of the run so far.
    """

    run: str
    round: int
    version: int
    population: int
    rounds: int
    counts: str
    bytes_up: int
    bytes_down: int


@dataclass(frozen=True)
class Enrolled(Event):
    """A device got a session."""

    client: str


@dataclass(frozen=True)
class Attended(Event):
    """A device opened its stream: it can be called."""

    client: str


@dataclass(frozen=True)
class Left(Event):
    """The stream of a device ended, the device was silent for two heartbeats, or it was replaced
    because a device of its process enrolled again or opened another stream."""

    client: str
    why: str


@dataclass(frozen=True)
class Revoked(Event):
    """The operator revoked the credentials of a device process (`muster revoke`): its calls are
    refused from now on.

    Attributes:
        process: the name of the process, as in the names of its credentials.
        clients: its devices.
    """

    process: str
    clients: Sequence[str]


@dataclass(frozen=True)
class RoundOpened(Event):
    """A round begins.

    Attributes:
        base_version: the version of the model that the devices train from.
        called: the number of devices that are called.
        scenario_s: the scenario time in seconds.
    """

    round: int
    base_version: int
    called: int
    scenario_s: float | None


@dataclass(frozen=True)
class Answered(Event):
    """A client accepted a call, or gave up (`abort`). If the answer contains the update, the event
    of the update is written instead.

    Attributes:
        reason: why it gave up; null if it accepted.
    """

    round: int
    client: str
    decision: str
    reason: str | None


@dataclass(frozen=True)
class Declined(Event):
    """Devices declined in one message. Their names are in the ledger.

    Attributes:
        reasons: the number of devices by reason.
    """

    round: int
    reasons: Mapping[str, int]


@dataclass(frozen=True)
class Received(Event):
    """An update arrived whole and was accepted.

    Attributes:
        attempt: how often this server process had called the client for the round, from 1.
        bytes: the size of the update.
    """

    round: int
    client: str
    attempt: int
    bytes: int


@dataclass(frozen=True)
class Late(Event):
    """An update arrived after its round was closed, so it does not count."""

    round: int
    client: str
    reason: str | None


@dataclass(frozen=True)
class Refused(Event):
    """An update does not count, because something in it is wrong."""

    round: int
    client: str
    reason: str | None


@dataclass(frozen=True)
class Duplicate(Event):
    """An update arrived again. It does not count again."""

    round: int
    client: str
    reason: str | None


@dataclass(frozen=True)
class SecureStep(Event):
    """The server asks devices for a step of a secure sum, or goes on from it.

    Attributes:
        attempt: number of the attempt, from 1. Devices that have died begin with new keys.
        step: "keys", "shares", "update" or "opening".
        asked: the number of devices that are asked.
        answered: how many have taken the step; null when it begins.
    """

    round: int
    attempt: int
    step: str
    asked: int
    answered: int | None


@dataclass(frozen=True)
class SecureSumFailed(Event):
    """The secure sum of a round could not be opened, and nothing of it is known.

    Attributes:
        step: the step that too few devices have taken; null if fewer have an update than a sum
            needs.
        answered: how many have taken it, or have an update.
        needed: how many should have.
        members: the number of devices with an update.
    """

    round: int
    step: str | None
    answered: int
    needed: int
    members: int


@dataclass(frozen=True)
class Waiting(Event):
    """In lockstep, no device has said anything for some seconds, and the round waits.

    Attributes:
        clients: the first devices that it waits for.
        number: the number of devices that it waits for.
    """

    round: int
    clients: Sequence[str]
    number: int


@dataclass(frozen=True)
class TrainingFailed(Event):
    """The training of a client raised an error, so it gave up. Its log has the traceback.

    Attributes:
        error: the kind of the error and its text, at most 500 characters.
    """

    round: int
    client: str
    error: str


@dataclass(frozen=True)
class LeftOut(Event):
    """The training of a client has failed in so many calls in a row (`groups.errors_in_a_row`) that
    the server calls it no more.

    Attributes:
        errors: the number of calls.
    """

    round: int
    client: str
    errors: int


BY_MUSTER = "muster"
"""Who gives the warnings of the supervisor."""


@dataclass(frozen=True)
class Warned(Event):
    """An aggregator gave a warning, a device reports covariates that it cannot have, so that they
    count as not known, users of the data have no device, or a run is resumed with other software
    than it began with. Each server process writes the same warning once.

    Attributes:
        round: 0: the run starts or is resumed.
        by: the name of the aggregator, or "muster": the supervisor.
        warning: a sentence.
    """

    round: int
    by: str
    warning: str


@dataclass(frozen=True)
class RoundCommitted(Event):
    """A round is durable. Most fields are those of its row in the table `rounds`.

    Attributes:
        epsilon: null without `server.privacy`.
        staleness: the number of updates that count, by their staleness.
    """

    round: int
    version: int
    outcome: str
    called: int
    accepted: int
    folded: int
    bytes_up: int
    bytes_down: int
    seconds: float
    epsilon: float | None = None
    staleness: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class AppMeasured(Event):
    """The server side of a Flower app measured the model that a round made. The event comes before
    that of the round. In the table `estimates` the metrics have its name.

    Attributes:
        round: 0: the initial model; it comes before the event of round 1.
        metrics: by name, which begins with `train.`, `evaluate.` or `server.`; a number that is not
            finite is a word.
    """

    round: int
    metrics: Mapping[str, float | str]


@dataclass(frozen=True)
class Evaluated(Event):
    """A version of the model was evaluated.

    Attributes:
        accuracy: null if the task has none.
        seconds: how long the evaluation took.
    """

    version: int
    round: int
    loss: float
    accuracy: float | None
    seconds: float


@dataclass(frozen=True)
class DiskRanFull(Event):
    """The server found no room on the disk, and waits for some. It writes this event when there is
    room again.

    Attributes:
        what: what was to be written.
        reason: the reason that the system gave.
    """

    what: str
    reason: str


@dataclass(frozen=True)
class DiskHasRoom(Event):
    """The server could write again, and goes on.

    Attributes:
        what: what was written.
        seconds: how long the server waited, in wall time.
    """

    what: str
    seconds: float


@dataclass(frozen=True)
class Ended(Event):
    """The run is over.

    Attributes:
        status: as in `summary.json`.
        detail: why the run ended.
        bytes_up, bytes_down: the bytes since the last commit.
        server_peak_rss_mib: the peak memory of the server in MiB.
    """

    status: str
    detail: str
    bytes_up: int
    bytes_down: int
    server_peak_rss_mib: float


# --- from the supervisor -------------------------------------------------------------------------


@dataclass(frozen=True)
class Started(Event):
    """The supervisor started a process."""

    process: str


@dataclass(frozen=True)
class Died(Event):
    """A process ended unexpectedly.

    Attributes:
        status: its exit status; a negative status is the signal that killed it.
        devices: the number of devices in the process.
        cause: what the system knows of the reason, for example "out of memory" if the kernel killed
            a container at its memory limit; empty if it knows nothing.
    """

    process: str
    status: int
    devices: int
    cause: str = ""


@dataclass(frozen=True)
class Restarted(Event):
    """The supervisor started a process again."""

    process: str


@dataclass(frozen=True)
class Placed(Event):
    """The supervisor gave the server a core of its own, or took the core back.

    Attributes:
        server: the cores on which the server runs from now on.
        others: the cores on which all other processes run from now on.
    """

    server: Sequence[int]
    others: Sequence[int]


@dataclass(frozen=True)
class Verifying(Event):
    """With `verify = true`, before the run: a measurement of the links begins.

    Attributes:
        step: what is measured.
    """

    step: str


@dataclass(frozen=True)
class Verified(Event):
    """With `verify = true`, before the run: the links were measured.

    Attributes:
        ok: whether all links match their settings.
        measured: how many rows were measured.
    """

    ok: bool
    measured: int


@dataclass(frozen=True)
class Traffic(Event):
    """Data moved through the gateway of a group. Written about every second.

    Attributes:
        group: the group, or the name of the link that groups share.
        seconds: the time before `at` that the event covers.
        bytes_up, bytes_down: the bytes that were delivered from and to all devices of the group.
        capacity_up, capacity_down: the bytes that the shared link of the group could have moved;
            null if the group shares no link.
        cells: the same four for each cell of the shared link in which something moved, by its name.
    """

    group: str
    seconds: float
    bytes_up: int
    bytes_down: int
    capacity_up: float | None
    capacity_down: float | None
    cells: Mapping[str, Mapping[str, float | None]] = field(default_factory=dict)
