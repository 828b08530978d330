"""The steps of a secure sum, as bytes inside the server's requests and the devices' replies.

A request begins with the number of the step and the name of the attempt. All records have a fixed
length. Replies have none but the records, in the order of those of the request.
"""

import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from muster.common.errors import RemoteProtocolError
from muster.common.secure.sharing import SHARE_BYTES

ATTEMPT_BYTES: Final = 16
KEYS_BYTES: Final = 64
"""Two public keys of X25519: for the shares, and for the pads."""
SEALED_BYTES: Final = 2 * SHARE_BYTES + 16
"""Two shares, of the device's own pad and of its key for pads, encrypted and authenticated."""


class SumStep(IntEnum):
    """What a device is asked for."""

    KEYS = 1
    """New public keys."""
    SHARES = 2
    """Shares of its secrets, encrypted for each of its neighbours."""
    UPDATE = 3
    """Its weighted update under its pads."""
    OPENING = 4
    """One share of each neighbour: of its own pad if its update came, otherwise of its key for
    pads."""


_RECORD: Final = {
    SumStep.KEYS: 0,
    SumStep.SHARES: KEYS_BYTES,
    SumStep.UPDATE: SEALED_BYTES,
    SumStep.OPENING: 1,
}

_HEAD: Final = struct.Struct(f"<B{ATTEMPT_BYTES}sII")
_INDEX: Final = struct.Struct("<I")


class StepRequest(NamedTuple):
    """One step of one attempt.

    Attributes:
        attempt: drawn anew for every attempt.
        device: the index of the device that is asked, among all devices of the run.
        threshold: see `muster.common.secure.graph.Sharing`; 0 in the first step.
        records: by index of a neighbour: its keys, the shares that it has encrypted for this
            device, or b"\\1" if its update came and b"\\0" if it did not.
    """

    step: SumStep
    attempt: bytes
    device: int
    threshold: int = 0
    records: Sequence[tuple[int, bytes]] = ()

    def encoded(self) -> bytes:
        """The request as bytes."""
        head = _HEAD.pack(self.step, self.attempt, self.device, self.threshold)
        return head + b"".join(_INDEX.pack(index) + record for index, record in self.records)


def decode_step(data: bytes) -> StepRequest:
    """Decode a request.

    Raises:
        RemoteProtocolError: it is none, or names a device twice.
    """
    try:
        number, attempt, device, threshold = _HEAD.unpack_from(data)
        step = SumStep(number)
    except (struct.error, ValueError) as error:
        raise RemoteProtocolError(f"a step of a secure sum that does not exist: {error}") from None
    size = _INDEX.size + _RECORD[step]
    if (len(data) - _HEAD.size) % size:
        raise RemoteProtocolError(
            f"{len(data) - _HEAD.size} bytes of records in a step of a secure sum; expected a "
            f"multiple of {size}"
        )
    starts = range(_HEAD.size, len(data), size)
    records = [
        (_INDEX.unpack_from(data, at)[0], data[at + _INDEX.size : at + size]) for at in starts
    ]
    indices = {index for index, _ in records}
    if len(indices) != len(records) or device in indices:
        raise RemoteProtocolError("a step of a secure sum names a device twice")
    return StepRequest(step, attempt, device, threshold, records)


def bytes_besides(neighbours: int) -> int:
    """The bytes of a device's replies in one attempt, besides those of its padded update."""
    return KEYS_BYTES + SEALED_BYTES * neighbours + SHARE_BYTES * (1 + neighbours)


def request_bytes(neighbours: int) -> int:
    """The bytes of the server's requests to a device in one attempt."""
    of_neighbour = sum(_INDEX.size + size for size in _RECORD.values() if size)
    return len(SumStep) * _HEAD.size + of_neighbour * neighbours


def reply_bytes(request: StepRequest, padded: int) -> int:
    """The length of the reply to a request.

    Args:
        padded: bytes of a padded update.
    """
    if request.step is SumStep.KEYS:
        return KEYS_BYTES
    if request.step is SumStep.UPDATE:
        return padded
    if request.step is SumStep.SHARES:
        return SEALED_BYTES * len(request.records)
    return SHARE_BYTES * (1 + len(request.records))
