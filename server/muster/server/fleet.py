"""The server's book of the population: who enrolled, who is present, what each must be told."""

import asyncio
import hmac
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field

from muster.common.errors import Unauthenticated
from muster.common.exchange import Call, Commit, Fingerprint, Receipt, ToDevice

_SESSION_BYTES = 16


@dataclass(slots=True, eq=False)
class Device:
    """One device of the population.

    Attributes:
        examples: training examples it holds.
        session: secret of its newest enrollment with this incarnation; None before.
        outbox: messages to its stream; None while it is away. A None in it ends the stream.
        heard_at: monotonic seconds of its last word.
        receipts: to be sent with the next message.
        told: the newest commit it was told of.
    """

    client: str
    group: str
    index: int
    examples: int
    session: bytes | None = None
    fingerprint: Fingerprint | None = None
    outbox: "asyncio.Queue[ToDevice | None] | None" = None
    heard_at: float = 0.0
    receipts: list[Receipt] = field(default_factory=list)
    told: Commit | None = None

    def send(
        self,
        committed: Commit,
        calls: list[Call] | None = None,
        model: tuple[int, bytes] | None = None,
        goodbye: str | None = None,
    ) -> None:
        """Queue a message, with what has not been told yet; nothing happens while it is away."""
        if self.outbox is None:
            return
        news = committed if committed != self.told else None
        self.outbox.put_nowait(ToDevice(self.receipts, news, model, calls or [], goodbye))
        self.receipts, self.told = [], committed


class Fleet:
    """The population by client and by session."""

    def __init__(self, devices: Iterable[Device]) -> None:
        self.devices = {device.client: device for device in devices}
        self._sessions: dict[bytes, Device] = {}
        self.present = 0

    def enroll(self, client: str, fingerprint: Fingerprint) -> Device | None:
        """Give a device a new session; None when the population has no such client."""
        device = self.devices.get(client)
        if device is None:
            return None
        if device.session is not None:
            del self._sessions[device.session]
        device.session = secrets.token_bytes(_SESSION_BYTES)
        device.fingerprint = fingerprint
        self._sessions[device.session] = device
        return device

    def of_session(self, session: bytes | None) -> Device:
        """The device that holds a session.

        Raises:
            Unauthenticated: nobody does; the device must enroll.
        """
        device = self._sessions.get(session) if session else None
        if device is None:
            raise Unauthenticated("no such session; enroll (a restarted server knows none)")
        return device

    def attend(self, device: Device, now: float) -> "asyncio.Queue[ToDevice | None]":
        """Open a device's outbox; a stream that it replaces is told to end."""
        if device.outbox is not None:
            device.outbox.put_nowait(None)
        else:
            self.present += 1
        device.outbox = asyncio.Queue()
        device.heard_at = now
        device.told = None
        return device.outbox

    def leave(self, device: Device, outbox: "asyncio.Queue[ToDevice | None]") -> bool:
        """Close an outbox; False when another stream of the device has replaced it."""
        if device.outbox is not outbox:
            return False
        device.outbox = None
        self.present -= 1
        return True


def same_token(shown: bytes | None, expected: bytes) -> bool:
    """Compare secrets in constant time."""
    return shown is not None and hmac.compare_digest(shown, expected)
