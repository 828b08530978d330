"""The faults of a simulated history.

A fault is a plain value with the count at which it strikes. Therefore a history can be reproduced
from its faults, shortened by leaving some out, and searched by listing all of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from types import MappingProxyType
from typing import Any, Literal


@dataclass(frozen=True)
class Break:
    """A connection breaks when the frame `frame` of the history is about to arrive.

    Attributes:
        how: "before" the frame arrives, "after" it arrived, or "silently": nothing arrives any
            more, and both ends notice it when their keepalive runs out.
    """

    frame: int
    how: Literal["before", "after", "silently"] = "before"


@dataclass(frozen=True)
class Kill:
    """A process is killed before its callback `step`, and started again.

    Attributes:
        sent: of the server: what it has sent arrives nevertheless.
    """

    process: str
    step: int
    sent: bool = False


@dataclass(frozen=True)
class KillAt:
    """A process is killed when the journal tells an event of a round, and started again.

    Attributes:
        process: "server", or the name of a device's process, which is that of the device or of its
            pack.
        event: the event: the round opens, the first update of it arrives, the server asks for a
            step of its secure sum, or it is committed.
        step: of an event `secure_step`: "keys", "shares", "update" or "opening".
        client: of an event `received`: the device whose update it is; empty: any.
    """

    process: str
    event: Literal["round_opened", "received", "secure_step", "round_committed"]
    round: int
    step: str = ""
    client: str = ""

    def is_at(self, event: Mapping[str, Any]) -> bool:
        """Whether it happens at an event of the journal."""
        told = event["event"], event.get("round"), event.get("step", "")
        client = event.get("client") if self.client else ""
        return (*told, client) == (self.event, self.round, self.step, self.client)


@dataclass(frozen=True)
class RevokeAt:
    """The operator revokes the credentials of a device's process at an event of the journal.

    Attributes:
        at: the event, as if it killed that process.
    """

    at: KillAt

    def is_at(self, event: Mapping[str, Any]) -> bool:
        """Whether it happens at an event of the journal."""
        return self.at.is_at(event)


@dataclass(frozen=True)
class ShortMessages:
    """The server puts fewer calls than usual into a message. This changes nothing but the number of
    messages.

    Attributes:
        calls: the most calls, and the most receipts, in one message.
    """

    calls: int


@dataclass(frozen=True)
class PowerCut:
    """The machine loses power before callback `step` of the history: every process is killed, and
    the seed decides how much of the unsynced data the files keep."""

    step: int


@dataclass(frozen=True)
class Pause:
    """A process stands still for some seconds before its callback `step`."""

    process: str
    step: int
    seconds: float


@dataclass(frozen=True)
class GatewayDown:
    """The gateway of a device is killed at callback `step` of the history: its connections break,
    and no connection can be made for some seconds."""

    device: str
    step: int
    seconds: float


@dataclass(frozen=True)
class ClockJump:
    """The UNIX time of all processes jumps at callback `step` of the history."""

    step: int
    seconds: float


Written = Literal["ledger", "journal", "model", "upload", "memory"]


@dataclass(frozen=True)
class DiskFull:
    """The disk is full for one kind of file that the server writes.

    Attributes:
        what: the kind of file: "ledger" (a commit), "journal", "model", "upload" or
            "memory".
        write: number of the first write of that kind that fails.
        fails: the number of writes that fail before there is room again; None: all of them.
    """

    what: Written
    write: int
    fails: int | None = None


RogueKind = Literal["header", "empty", "unread", "forged"]

HOLDING: Sequence[RogueKind] = ("header", "empty", "unread")
"""What a hostile device does that holds transfers open. It needs a large model."""


@dataclass(frozen=True)
class Rogue:
    """A hostile device: it accepts every call, does not do what was agreed, and gives up.

    Attributes:
        kind: what it does: uploads that send only the header ("header"), uploads with empty chunks
            ("empty"), downloads that it does not read ("unread"), or bodies and calls that it has
            made up ("forged").
    """

    kind: RogueKind


_WRITTEN: Sequence[Written] = ("ledger", "ledger", "journal", "model", "upload", "memory")

_TURNS: Sequence[Literal["round_opened", "received", "round_committed"]] = (
    "round_opened",
    "received",
    "received",
    "round_committed",
)
"""The events at which somebody has decided something that a new process must know."""

Fault = (
    Break
    | Kill
    | KillAt
    | RevokeAt
    | ShortMessages
    | PowerCut
    | Pause
    | GatewayDown
    | ClockJump
    | DiskFull
    | Rogue
)

_REVOKED = 0.15
"""The share of histories in which a process is revoked, if one may be and no device is hostile."""

_SHORT = 0.1
"""The share of histories with short messages."""


@dataclass(frozen=True)
class HistoryExtent:
    """The size of an undisturbed history, which bounds where faults can strike.

    Attributes:
        frames: number of frames on the network.
        steps: number of callbacks of all processes.
        processes: number of callbacks of each process.
    """

    frames: int
    steps: int
    processes: dict[str, int]


def drawn(
    random: Random,
    extent: HistoryExtent,
    hostile: Sequence[RogueKind],
    rounds: int,
    clients: Mapping[str, Sequence[str]] = MappingProxyType({}),
    revocable: Sequence[str] = (),
) -> list[Fault]:
    """Draw up to four faults of a history, and what happens in it beside them: a hostile device, a
    process that is revoked, or short messages. In half of the histories one of the faults is the
    death of the server, a device or both, at a turn of a round.

    Args:
        hostile: the kinds of the hostile device; none if there is to be none.
        rounds: the number of rounds.
        clients: the devices of each process.
        revocable: the processes that may be revoked.
    """
    faults: list[Fault] = [Rogue(random.choice(hostile))] if hostile else []
    number = random.choice([0, 1, 1, 2, 2, 3, 4])
    faults += [_one(random, extent) for _ in range(number)]
    if random.random() < 0.5:
        device = random.choice(_devices(extent))
        dying = random.choice([("server",), ("server",), (device,), ("server", device)])
        turn = _turn(random, device, rounds, clients)
        del faults[len(faults) - min(number, 1) :]  # in place of another fault, so it costs no time
        faults += [replace(turn, process=process) for process in dying]
    if revocable and not hostile and random.random() < _REVOKED:
        faults.append(RevokeAt(_turn(random, random.choice(revocable), rounds, clients)))
    if random.random() < _SHORT:
        faults.append(ShortMessages(random.choice([1, 2])))
    return faults


def _turn(
    random: Random, process: str, rounds: int, clients: Mapping[str, Sequence[str]]
) -> KillAt:
    """The death of a device's process at a turn of a round."""
    turn = KillAt(process, random.choice(_TURNS), random.randint(1, rounds))
    if turn.event == "received" and clients.get(process) and random.random() < 0.5:
        return replace(turn, client=random.choice(clients[process]))
    return turn


def _devices(extent: HistoryExtent) -> list[str]:
    """The processes of devices."""
    return sorted(set(extent.processes) - {"server", "evaluation"})


def _one(random: Random, extent: HistoryExtent) -> Fault:
    # Faults make a history longer, so later faults may strike beyond the undisturbed end.
    frame = random.randrange(int(1.5 * extent.frames) + 1)
    step = random.randrange(int(1.5 * extent.steps) + 1)
    process = random.choice(sorted(extent.processes))
    own_step = random.randrange(int(1.5 * extent.processes[process]) + 1)
    device = random.choice(_devices(extent))
    kind = random.random()
    if kind < 0.40:
        return Break(frame, random.choice(["before", "before", "after", "silently"]))
    if kind < 0.70:
        return Kill(process, own_step)
    if kind < 0.78:
        return Pause(process, own_step, random.choice([0.5, 5.0, 50.0]))
    if kind < 0.84:
        return GatewayDown(device, step, random.choice([0.5, 5.0]))
    if kind < 0.89:
        return PowerCut(step)
    if kind < 0.93:
        return ClockJump(step, random.choice([-3600.0, -1.0, 1.0, 3600.0]))
    return DiskFull(random.choice(_WRITTEN), random.randrange(8), random.choice([None, 1, 3]))
