"""What the strategy of a run wanted of every round, and what it was told, in files of the run
folder.

A strategy keeps its state in its process. A restarted server starts it again from the beginning and
gives it the stored replies, which brings it to where it was.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import xxhash

from muster.common.errors import LedgerError
from muster.common.files import write_atomic
from muster.server.account.round_files import prepare_round_files, round_file
from muster.server.strategy.pipe import (
    LENGTHS,
    Push,
    message_of,
    replies_in,
    replies_parts,
    told_from_json,
    told_to_json,
)
from muster.tasks.replies import DeviceReply
from muster.wire.bodies import body_view, checksum

STRATEGY = "strategy"
"""Name of the folder in the run folder."""

_KIND = "replies"

_DIGEST_BYTES = 16
"""Length of an XXH3-128."""

_AROUND = 60
"""Bytes that are shown on both sides of the first difference of two instructions."""


class StrategyRound(NamedTuple):
    """A round of a strategy.

    Attributes:
        model: hexadecimal XXH3-128 of the model that it pushed.
        instructions: what it told each device, by index.
        timeout_s: as in `Push`.
        replies: what it was told.
    """

    model: str
    instructions: Mapping[int, bytes]
    timeout_s: float | None
    replies: Mapping[int, DeviceReply]

    def difference(self, push: Push) -> str:
        """How a push differs from the one that made this round; empty if it does not."""
        if self.instructions.keys() != push.instructions.keys():
            return (
                f"it called the devices {sorted(self.instructions)}, and now it calls "
                f"{sorted(push.instructions)}"
            )
        for index, told in self.instructions.items():
            if told != (now := push.instructions[index]):
                return f"it told device {index} {_first_difference(told, now)}"
        if self.timeout_s != push.timeout_s:
            return f"its timeout was {self.timeout_s} s, and now it is {push.timeout_s} s"
        if self.model != model_checksum(push):
            return "it sent another model"
        return ""


class StrategyHistory:
    """Writes a file for each round, before the transaction that commits the round.

    A file is a message with replies (`pipe`), after its XXH3-128. Its header also says what the
    strategy wanted of the round.

    Args:
        folder: `strategy/` of the run folder.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def load(self, newest: int) -> None:
        """Make the folder, and remove the files of rounds that were never committed.

        Args:
            newest: the newest committed round.
        """
        prepare_round_files(self._folder, _KIND, newest)

    def write(self, round: int, push: Push, replies: Mapping[int, DeviceReply]) -> None:
        """Store a round durably.

        Raises:
            OSError: the disk is full.
        """
        told = told_to_json(push.instructions)
        facts = {"model": model_checksum(push), "timeout_s": push.timeout_s, "told": told}
        parts = replies_parts(replies, **facts)
        digest = xxhash.xxh3_128()
        for part in parts:
            digest.update(part)
        write_atomic(self._folder / round_file(round, _KIND), digest.digest(), *parts, durable=True)

    def read(self, round: int) -> StrategyRound:
        """Return a stored round.

        Raises:
            LedgerError: it is missing or damaged.
        """
        path = self._folder / round_file(round, _KIND)
        stored = path.read_bytes() if path.exists() else b""
        data = stored[_DIGEST_BYTES:]
        if not stored or xxhash.xxh3_128_digest(data) != stored[:_DIGEST_BYTES]:
            raise LedgerError(
                f"{path} is {'damaged' if stored else 'missing'}; without it the strategy cannot "
                f"be brought to where it was. Restore a copy of it, or start afresh"
            )
        start = LENGTHS.size + LENGTHS.unpack_from(data)[0]
        message = message_of(data[LENGTHS.size : start], data[start:])
        told = told_from_json(message.header["told"])
        facts = message.header["model"], told, message.header["timeout_s"]
        return StrategyRound(*facts, replies_in(message))


def model_checksum(push: Push) -> str:
    """Return the checksum of the model of a push."""
    return checksum(body_view(push.model)).hex()


def _first_difference(before: bytes, now: bytes) -> str:
    """Both versions of a text around the first byte in which they differ."""
    pairs = enumerate(zip(before, now, strict=False))
    same = next((at for at, (old, new) in pairs if old != new), min(len(before), len(now)))
    at = max(same - _AROUND, 0)
    shown = [each[at : at + 2 * _AROUND].decode(errors="replace") for each in (before, now)]
    return f"… {shown[0]!r} …, and now … {shown[1]!r} …"
