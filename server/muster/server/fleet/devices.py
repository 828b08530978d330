"""The devices of the population, the processes that connect them, and the messages to these."""

import asyncio
import math
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from muster.common.exchange import (
    Body,
    Call,
    Commit,
    Fingerprint,
    Observation,
    Receipt,
    SumRequest,
    ToDevice,
)
from muster.common.lines import LinkModel

_FOREVER = sys.maxsize
MESSAGE_ITEMS = 1000
"""The most calls, and the most receipts, in one message. With a small model, such a message stays
well below the largest size of a message."""

_INSTRUCTION_BYTES = 512 << 10
"""The most bytes of the instructions in one message: half of what a message holds."""

Outbox = asyncio.Queue[ToDevice | None]
"""The queue of messages to a stream; None ends the stream."""


@dataclass(slots=True, eq=False)
class EnrolledDevice:
    """One device of the population that may train.

    Attributes:
        index: position in the population, from 0.
        examples: number of training examples that the device holds.
        capacity: share of a model that it can train.
        z: its covariates Z as numbers, by name, as it reported them when it enrolled; None before.
        pack: its pack in its newest session; None before it has enrolled with this incarnation of
            the server.
        seen: its newest report of its state and covariates X. A restarted server restores it from
            the ledger. None before the first report, and for a device whose state is not simulated.
        seen_at: monotonic seconds of that report.
        most_steps: the most local steps that it can take in a round; infinite: not known.
        training_s: the least and the most modelled seconds of its training in a round; None: not
            known.
        line: the scenario's model of its link.
        away_until: in lockstep, the last step of its life for which it has already said that it is
            offline. A device whose credentials are revoked is offline for ever.
        foreseen: what it has reported in advance for these steps, by step; empty if it has neither
            a state nor X.
        busy_until_s: in lockstep, scenario seconds at which its newest work ends, if that may
            outlive the round of its call.
    """

    client: str
    group: str
    index: int
    examples: int
    capacity: float = 1.0
    z: Mapping[str, float] | None = None
    pack: "ConnectedPack | None" = None
    seen: Observation | None = None
    seen_at: float = 0.0
    most_steps: float = math.inf
    training_s: tuple[float, float] | None = None
    line: LinkModel = field(default_factory=LinkModel)
    away_until: int = -1
    foreseen: Mapping[int, Observation] = field(default_factory=dict)
    busy_until_s: float = 0.0

    @property
    def present(self) -> bool:
        """Whether the device's pack has a stream."""
        return self.pack is not None and self.pack.outbox is not None

    @property
    def revoked(self) -> bool:
        """Whether its credentials have been revoked, so that it cannot come."""
        return self.away_until == _FOREVER

    def is_of(self, callers: Collection[str]) -> bool:
        """Whether its newest session is that of one of these processes."""
        return self.pack is not None and self.pack.caller in callers

    def revoke(self) -> None:
        """Expect nothing more from it."""
        self.away_until = _FOREVER

    def see(self, seen: Observation, now: float) -> None:
        """Keep the device's newest report; `now` is in monotonic seconds."""
        self.seen, self.seen_at = seen, now


@dataclass(slots=True, eq=False)
class ConnectedPack:
    """The devices of one process, which share its session and its stream.

    Attributes:
        devices: by client.
        group: their group. All devices of a process are of one group.
        session: the session's identifier, a secret that the devices present with their calls.
        outbox: messages to the stream; None while the devices are away.
        heard_at: when their last message or chunk came, in seconds of `Patience`.
        receipts: receipts that go with the next message.
        sent_commit: the newest commit that was sent over the stream; None if none was.
        fetched: the version that they fetched last, and how many bytes of it have been sent; by
            client if each downloads its own part of the model, otherwise under "".
        caller: the name under which the process is known.
    """

    devices: Mapping[str, EnrolledDevice]
    group: str
    session: bytes
    fingerprint: Fingerprint
    outbox: Outbox | None = None
    heard_at: float = 0.0
    receipts: list[Receipt] = field(default_factory=list)
    sent_commit: Commit | None = None
    fetched: dict[str, tuple[int, int]] = field(default_factory=dict)
    caller: str = ""

    def send(
        self,
        committed: Commit,
        calls: Sequence[Call] = (),
        model: Body | None = None,
        goodbye: str | None = None,
        scenario_s: float | None = None,
    ) -> int:
        """Queue messages with the receipts, the calls, and the newest commit if it is not sent yet.

        Nothing happens while the devices are away.

        Args:
            committed: the newest commit.
            model: body of the base version of the calls, if it travels inside them.
            goodbye: status of the run, if it is over.
            scenario_s: scenario seconds now, if scenario time has begun.

        Returns:
            The bytes of the models in the messages.
        """
        if self.outbox is None:
            return 0
        new_commit = committed if committed != self.sent_commit else None
        receipts, self.receipts, self.sent_commit = self.receipts, [], committed
        items = _items_of_a_message(calls) if len(calls) > 1 else MESSAGE_ITEMS
        starts = range(0, max(len(calls), len(receipts), 1), items)
        for start in starts:
            part = slice(start, start + items)
            message = ToDevice(
                receipts=receipts[part],
                committed=new_commit,
                model=model if calls[part] else None,
                calls=calls[part],
                goodbye=goodbye if start == starts[-1] else None,
                scenario_s=scenario_s,
            )
            self.outbox.put_nowait(message)
        return 0 if model is None else len(model) * -(-len(calls) // items)

    def ask_for_sum(
        self,
        number: int,
        calls: Sequence[Call],
        weights: Sequence[float],
        model: Body | None,
        step: bytes,
    ) -> int:
        """Queue messages that ask for the sum of held updates. Nothing happens while the devices
        are away.

        Args:
            number: the number of the sum.
            calls: the calls for which the updates were made.
            weights: one per call.
            model: body of the base version, for devices that may have lost their updates.
            step: of a secure sum; empty: the sum is asked for.

        Returns:
            The bytes of the models in the messages.
        """
        if self.outbox is None:
            return 0
        items = _items_of_a_message(calls)
        starts = range(0, len(calls), items)
        for start in starts:
            part = slice(start, start + items)
            first, last = start == 0, start == starts[-1]
            request = SumRequest(number, weights[part], first, last, step)
            self.outbox.put_nowait(ToDevice(model=model, calls=calls[part], sum_request=request))
        return 0 if model is None else len(model) * len(starts)


def _items_of_a_message(calls: Sequence[Call]) -> int:
    """The most calls in a message: fewer if they have long instructions."""
    longest = max([len(call.instruction) for call in calls])
    return min(MESSAGE_ITEMS, _INSTRUCTION_BYTES // max(longest, 1))
