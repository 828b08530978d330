"""The fleet: the devices that may train, and the sessions of their processes."""

import asyncio
import secrets
from collections.abc import Iterable, Sequence

from muster.common.errors import Unauthenticated
from muster.common.exchange import Fingerprint, Identity
from muster.server.fleet.devices import ConnectedPack, EnrolledDevice, Outbox

_SESSION_BYTES = 16


class Fleet:
    """The devices that may train, by client, and their packs, by session.

    Attributes:
        devices: by client.
        expected: number of devices that can come: all but those whose credentials are revoked.
        present: number of devices whose pack has a stream.
    """

    def __init__(self, devices: Iterable[EnrolledDevice]) -> None:
        self.devices = {device.client: device for device in devices}
        self.expected = len(self.devices)
        self.present = 0
        self._packs: dict[bytes, ConnectedPack] = {}

    def revoke(self, clients: Iterable[str]) -> None:
        """Expect nothing more from these devices."""
        for client in clients:
            self.devices[client].revoke()
        self.expected = sum(not device.revoked for device in self.devices.values())

    def packs(self) -> list[ConnectedPack]:
        """All packs that have a session, whether they are present or not."""
        return list(self._packs.values())

    def packs_of(self, clients: Iterable[str]) -> list[ConnectedPack]:
        """The packs that hold a session for any of these devices."""
        found = (self.devices[client].pack for client in clients)
        return list(dict.fromkeys(pack for pack in found if pack is not None))

    def enroll(
        self, identities: Sequence[Identity], fingerprint: Fingerprint, caller: str = ""
    ) -> ConnectedPack:
        """Give devices of the population a new session. An older session of any of them ends.

        Args:
            caller: the name under which their process is known.
        """
        devices = {identity.client: self.devices[identity.client] for identity in identities}
        for identity in identities:
            device = devices[identity.client]
            device.capacity, device.z = identity.capacity, identity.z
        group = devices[identities[0].client].group
        session = secrets.token_bytes(_SESSION_BYTES)
        pack = ConnectedPack(devices, group, session, fingerprint, caller=caller)
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
            Unauthenticated: no pack holds it; the device must enroll.
        """
        pack = self._packs.get(session) if session else None
        if pack is None:
            raise Unauthenticated("no such session; enroll (a restarted server knows none)")
        return pack

    def attend(self, pack: ConnectedPack, now: float) -> Outbox:
        """Open a new outbox for a pack. If the pack has a stream already, that stream ends.

        Args:
            now: in seconds of `Patience`.
        """
        self._close(pack)
        self.present += len(pack.devices)
        pack.outbox = asyncio.Queue()
        pack.heard_at = now
        pack.sent_commit = None
        return pack.outbox

    def leave(self, pack: ConnectedPack, outbox: Outbox) -> bool:
        """Close the outbox of a pack; return False if that of another stream has replaced it."""
        if pack.outbox is not outbox:
            return False
        self._close(pack)
        return True

    def _close(self, pack: ConnectedPack) -> None:
        if pack.outbox is not None:
            pack.outbox.put_nowait(None)
            pack.outbox = None
            self.present -= len(pack.devices)
