"""The server's book of the population: who enrolled, who is present, what each must be told."""

import asyncio
import hmac
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from muster.common.errors import Unauthenticated
from muster.common.exchange import (
    Body,
    Call,
    Commit,
    Fingerprint,
    Identity,
    Observation,
    Receipt,
    ToDevice,
)
from muster.common.lines import LinkModel

_SESSION_BYTES = 16
_TOGETHER = 1000
"""Calls, and receipts, of one message: with a small model they stay well below its largest size."""

Outbox = asyncio.Queue[ToDevice | None]
"""Messages to a stream; None ends it."""


@dataclass(slots=True, eq=False)
class EnrolledDevice:
    """One device of the population.

    Attributes:
        examples: training examples it holds.
        capacity: share of a model that it can train.
        z: its covariates Z as numbers, by name; what it enrolled with. None before.
        pack: of its newest enrollment with this incarnation; None before.
        seen: the last it told of itself, which a restarted server knows from its ledger; None
            before, and for a device without a life.
        seen_at: monotonic seconds of that.
        line: its link in the scenario's model.
        away_until: in lockstep, the last round for which it has already said that it is offline.
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
    line: LinkModel = field(default_factory=LinkModel)
    away_until: int = 0

    @property
    def present(self) -> bool:
        """Whether its pack has a stream."""
        return self.pack is not None and self.pack.outbox is not None

    def see(self, seen: Observation, now: float) -> None:
        """Keep the last it told of itself."""
        self.seen, self.seen_at = seen, now


@dataclass(slots=True, eq=False)
class ConnectedPack:
    """The devices of one process, which share its session and its stream.

    Attributes:
        session: their secret.
        outbox: messages to the stream; None while they are away.
        heard_at: monotonic seconds of their last word.
        receipts: to be sent with the next message.
        told: the newest commit they were told of.
        fetched: version that they last fetched, and how many bytes of it.
    """

    devices: Mapping[str, EnrolledDevice]
    session: bytes
    fingerprint: Fingerprint
    outbox: Outbox | None = None
    heard_at: float = 0.0
    receipts: list[Receipt] = field(default_factory=list)
    told: Commit | None = None
    fetched: tuple[int, int] = (0, 0)

    @property
    def group(self) -> str:
        """Of its devices: a process has devices of one group."""
        return next(iter(self.devices.values())).group

    def send(
        self,
        committed: Commit,
        calls: Sequence[Call] = (),
        model: Body | None = None,
        goodbye: str | None = None,
        scenario_s: float | None = None,
    ) -> int:
        """Queue what has not been told yet, and return the bytes of the models in it; nothing
        happens while they are away."""
        if self.outbox is None:
            return 0
        news = committed if committed != self.told else None
        receipts, self.receipts, self.told = self.receipts, [], committed
        starts = range(0, max(len(calls), len(receipts), 1), _TOGETHER)
        for start in starts:
            part = slice(start, start + _TOGETHER)
            based_on = model if calls[part] else None
            last_word = goodbye if start == starts[-1] else None
            message = ToDevice(receipts[part], news, based_on, calls[part], last_word, scenario_s)
            self.outbox.put_nowait(message)
        return 0 if model is None else len(model) * -(-len(calls) // _TOGETHER)


class Fleet:
    """The population by client and by session.

    Attributes:
        present: devices that are there now.
    """

    def __init__(self, devices: Iterable[EnrolledDevice]) -> None:
        self.devices = {device.client: device for device in devices}
        self.present = 0
        self._packs: dict[bytes, ConnectedPack] = {}

    def packs(self) -> list[ConnectedPack]:
        """All that have a session, present or not."""
        return list(self._packs.values())

    def packs_of(self, clients: Iterable[str]) -> list[ConnectedPack]:
        """The packs that hold a session for any of these devices."""
        found = (self.devices[client].pack for client in clients)
        return list(dict.fromkeys(pack for pack in found if pack is not None))

    def enroll(self, identities: Sequence[Identity], fingerprint: Fingerprint) -> ConnectedPack:
        """Give devices of the population a new session; an older one of any of them ends."""
        devices = {identity.client: self.devices[identity.client] for identity in identities}
        for identity in identities:
            device = devices[identity.client]
            device.capacity, device.z = identity.capacity, identity.z
        pack = ConnectedPack(devices, secrets.token_bytes(_SESSION_BYTES), fingerprint)
        for old in self.packs_of(devices):
            del self._packs[old.session]
            self._close(old)
            for device in old.devices.values():
                device.pack = None
        for device in devices.values():
            device.pack = pack
        self._packs[pack.session] = pack
        return pack

    def of_session(self, session: bytes | None) -> ConnectedPack:
        """The pack that holds a session.

        Raises:
            Unauthenticated: nobody does; the device must enroll.
        """
        pack = self._packs.get(session) if session else None
        if pack is None:
            raise Unauthenticated("no such session; enroll (a restarted server knows none)")
        return pack

    def attend(self, pack: ConnectedPack, now: float) -> Outbox:
        """Open a pack's outbox; a stream that it replaces is told to end."""
        self._close(pack)
        self.present += len(pack.devices)
        pack.outbox = asyncio.Queue()
        pack.heard_at = now
        pack.told = None
        return pack.outbox

    def leave(self, pack: ConnectedPack, outbox: Outbox) -> bool:
        """Close an outbox; False when another stream has replaced it."""
        if pack.outbox is not outbox:
            return False
        self._close(pack)
        return True

    def _close(self, pack: ConnectedPack) -> None:
        if pack.outbox is not None:
            pack.outbox.put_nowait(None)
            pack.outbox = None
            self.present -= len(pack.devices)


def same_token(shown: bytes | None, expected: bytes) -> bool:
    """Compare secrets in constant time."""
    return shown is not None and hmac.compare_digest(shown, expected)
