"""What a device remembers over its own death: one file, whole or not there.

A device keeps its state before a round, the state after it, and its update, until it learns that the
round was committed. If the server forgets the round (it was killed), the device is called again from
the state before, or sends the update it holds: nothing is trained, counted or drained twice.
"""

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from muster.common.exchange import Commit, Key, Update
from muster.common.files import remove_unfinished, write_atomic

_LENGTH_BYTES = 4


@dataclass(frozen=True, slots=True)
class State:
    """A device's own state; decision and training of a round are functions of the one before it.

    Attributes:
        trained: rounds this device has trained in, each counted once.
    """

    trained: int = 0


@dataclass(frozen=True, slots=True)
class Held:
    """A round that may not be committed yet.

    Attributes:
        update: as it was or will be sent; its key's attempt is that of the newest call.
    """

    base_version: int
    before: State
    after: State
    update: Update
    body: bytes

    @property
    def round(self) -> int:
        return self.update.key.round


class Memory:
    """The state file of one device.

    Args:
        folder: `devices/<client>` of the run folder; made if it is not there.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        remove_unfinished(folder)
        self._path = folder / "state.bin"
        self.held = self._read()

    def before(self, round: int, committed: Commit) -> State:
        """The state in which the device enters `round`."""
        if self.held is None:
            return State()
        finished = self.held.round < round and self.held.round <= committed.round
        return self.held.after if finished else self.held.before

    def update_for(self, key: Key, base_version: int) -> Held | None:
        """The update held for a call, under the call's key; None if it must be trained."""
        held = self.held
        if held is None or held.round != key.round or held.base_version != base_version:
            return None
        return replace(held, update=replace(held.update, key=key))

    def hold(self, held: Held) -> None:
        """Remember a round, in place of the one before."""
        update = asdict(held.update)
        update["checksum"] = held.update.checksum.hex()
        header = json.dumps(
            {
                "base_version": held.base_version,
                "before": asdict(held.before),
                "after": asdict(held.after),
                "update": update,
            }
        ).encode()
        write_atomic(self._path, len(header).to_bytes(_LENGTH_BYTES, "little"), header, held.body)
        self.held = held

    def _read(self) -> Held | None:
        try:
            content = self._path.read_bytes()
        except FileNotFoundError:
            return None
        end = _LENGTH_BYTES + int.from_bytes(content[:_LENGTH_BYTES], "little")
        header = json.loads(content[_LENGTH_BYTES:end])
        update = header["update"]
        update["key"] = Key(**update["key"])
        update["checksum"] = bytes.fromhex(update["checksum"])
        return Held(
            base_version=header["base_version"],
            before=State(**header["before"]),
            after=State(**header["after"]),
            update=Update(**update),
            body=content[end:],
        )
