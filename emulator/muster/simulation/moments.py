"""The moments at which it makes a difference that a process is killed."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from zlib import crc32

from muster.server.updates.memory import MEMORY
from muster.simulation.faults import Kill

_OF_SERVER = ("ledger.sqlite", "ledger.sqlite-wal", "journal.jsonl", MEMORY, "models/*")


class Moments:
    """Notes the steps before which a process has sent or written something since its step before.
    What else a step has changed is lost with the process, so killing it one step earlier is the
    same.

    Attributes:
        kills: a kill at each of these steps, in their order.

    Args:
        folder: the run folder.
        clients: the devices of each process.
        sent: number of frames that each process has sent, which is read again and again.
    """

    def __init__(
        self, folder: Path, clients: Mapping[str, Sequence[str]], sent: Mapping[str, int]
    ) -> None:
        self.kills: list[Kill] = []
        self._folder = folder
        self._files = {
            "server": _OF_SERVER,
            **{name: [f"devices/{c}/*" for c in devices] for name, devices in clients.items()},
        }
        self._sent = sent
        self._known: dict[str, object] = {}

    def before(self, process: str, step: int) -> None:
        """A process is about to take a step."""
        if process not in self._files:
            return
        now = self._sent[process], [crc32(path.read_bytes()) for path in self._written(process)]
        if self._known.setdefault(process, now) != now:
            self._known[process] = now
            self.kills.append(Kill(process, step))

    def _written(self, process: str) -> Iterable[Path]:
        found = (self._folder.glob(name) for name in self._files[process])
        return sorted(path for path in chain(*found) if path.is_file())
