"""Reads a run folder into the state of its fleet, and into JSON for a page that has no program."""

from contextlib import suppress
from pathlib import Path

import orjson

from muster.common.errors import LedgerError
from muster.emulator.live.device_life import MOST_CALLS, Life, device_lives
from muster.emulator.live.fleet_state import FleetState
from muster.emulator.live.frames import PageReader, publication
from muster.emulator.live.ledger_feed import LedgerFeed
from muster.emulator.live.run_setup import run_setup
from muster.emulator.run_folder.folder import JOURNAL, LEDGER
from muster.emulator.run_folder.journal_tail import Tail

_CHUNK_BYTES = 8 << 20
_NUMBER = (int, float)
_COMMITS = {"server_started", "round_committed", "evaluated", "ended"}


class RunReader:
    """Reads what is new in the journal and the ledger of a run folder.

    Attributes:
        state: the state of the fleet according to what was read.

    Raises:
        ConfigError: the folder's scenario cannot be read.
    """

    def __init__(self, folder: Path) -> None:
        self.state = FleetState(run_setup(folder))
        self._tail = Tail(folder / JOURNAL, from_start=True)
        self._feed = LedgerFeed(folder / LEDGER)
        self._commits = True  # a ledger may be ahead of its journal after a crash

    def read(self) -> bool:
        """Read what is new, and say whether the journal has grown."""
        changed = self._read_journal()
        if self._commits:
            self._read_ledger()
        return changed

    def _read_journal(self) -> bool:
        changed = False
        while events := self._tail.new(_CHUNK_BYTES):
            changed = True
            for event in events:
                if not (isinstance(event["event"], str) and isinstance(event.get("at"), _NUMBER)):
                    continue  # it cannot be shown
                with suppress(LookupError, TypeError, ValueError):  # no program of muster wrote it
                    self.state.happen(event)
                self._commits = self._commits or event["event"] in _COMMITS
        self.state.progress.notices.clear()
        return changed

    def _read_ledger(self) -> None:
        try:
            self.state.learn(self._feed.new())
        except LedgerError:
            return  # the next commit may mend it; meanwhile the page shows the journal
        self._commits = False


MOST_LIVES = 400
"""The largest fleet with the calls of its devices; a larger one is shown without tiles, too."""

_MOST_CALLS_OF_ALL = 4000


def run_data(folder: Path, status: str) -> bytes:
    """The first frame of the page, and the `lives` of all devices by name, or null.

    Its size is bounded: charts have at most 2,000 rounds, the journal the newest events of each
    kind, and devices some characters each. Their calls are in it only if the fleet is small.

    Args:
        status: how the run stands, if its journal does not say it.

    Raises:
        ConfigError: the folder's scenario cannot be read.
        LedgerError: there is no ledger that can be read.
    """
    reader = RunReader(folder)
    reader.read()
    frame = PageReader().frame(publication(1, reader.state, status))
    assert frame is not None
    devices = len(reader.state.setup.clients)
    lives: dict[str, Life] | None = None
    if devices <= MOST_LIVES:
        rounds = min(MOST_CALLS, _MOST_CALLS_OF_ALL // devices)
        lives = device_lives(folder / LEDGER, rounds)
    return orjson.dumps({"frame": orjson.Fragment(frame), "lives": lives})
