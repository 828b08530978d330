"""Follows a run folder in a thread of its own, and publishes what the page shows.

It only reads. After a look that took long it waits long, so that it uses a small share of a core
beside a large run.
"""

import threading
from contextlib import suppress
from pathlib import Path

from muster.common.clock import Clock
from muster.common.errors import LedgerError
from muster.emulator.launch import COMPOSE
from muster.emulator.live.fleet_state import FleetState
from muster.emulator.live.frames import Publication, publication
from muster.emulator.live.ledger_feed import LedgerFeed
from muster.emulator.live.run_setup import run_setup
from muster.emulator.runs.journal_tail import Tail
from muster.emulator.runs.run_folder import JOURNAL, LEDGER, is_free

LOOK_S = 0.25
"""Least seconds between two looks."""

_SHARE = 0.05
_MOST_WAIT_S = 2.0
_ALIVE_S = 2.0
_CHUNK_BYTES = 8 << 20
_NUMBER = (int, float)
_COMMITS = {"server_started", "round_committed", "evaluated", "ended"}

RUNNING, INTERRUPTED = "running", "interrupted"


class Follower:
    """Follows the run in a folder.

    Attributes:
        newest: what was published last; None before the first look.

    Raises:
        ConfigError: the folder's scenario cannot be read.
    """

    def __init__(self, folder: Path, clock: Clock) -> None:
        self.folder = folder
        self._clock = clock
        self._state = FleetState(run_setup(folder))
        self._tail = Tail(folder / JOURNAL, from_start=True)
        self._feed = LedgerFeed(folder / LEDGER)
        self._commits = True  # a ledger may be ahead of its journal after a crash
        self._run_state = ""
        self._alive_at = -_ALIVE_S
        self._lock = threading.Lock()
        self.newest: Publication | None = None

    def look(self) -> None:
        """Read what is new, and publish it if anything is."""
        with self._lock:
            changed = self._read_journal()
            if self._commits:
                self._read_ledger()
            before, self._run_state = self._run_state, self._judge()
            if changed or self._run_state != before:
                number = self.newest.number + 1 if self.newest else 1
                self.newest = publication(number, self._state, self._run_state)

    def follow(self, stopped: threading.Event) -> None:
        """Look again and again until `stopped` is set."""
        while True:
            began = self._clock.monotonic()
            self.look()
            took = self._clock.monotonic() - began
            if stopped.wait(min(max(LOOK_S, took * (1 / _SHARE - 1)), _MOST_WAIT_S)):
                return

    def _read_journal(self) -> bool:
        changed = False
        while events := self._tail.new(_CHUNK_BYTES):
            changed = True
            for event in events:
                if not (isinstance(event["event"], str) and isinstance(event.get("at"), _NUMBER)):
                    continue  # it cannot be shown
                with suppress(LookupError, TypeError, ValueError):  # no program of muster wrote it
                    self._state.happen(event)
                self._commits = self._commits or event["event"] in _COMMITS
        self._state.progress.notices.clear()
        return changed

    def _read_ledger(self) -> None:
        try:
            self._state.learn(self._feed.new())
        except LedgerError:
            return  # the next commit may mend it; meanwhile the page shows the journal
        self._commits = False

    def _judge(self) -> str:
        """How the run stands; of a run that has ended, its status."""
        if (status := self._state.progress.status) is not None:
            return status
        now = self._clock.monotonic()
        if self._run_state and now - self._alive_at < _ALIVE_S:
            return self._run_state
        self._alive_at = now
        killed = not (self.folder / COMPOSE).is_file() and is_free(self.folder)
        return INTERRUPTED if killed else RUNNING
