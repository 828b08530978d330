"""Follows a run folder in a thread of its own, and publishes what the page shows.

It only reads. After a look that took long it waits long, so that it uses a small share of a core
beside a large run.
"""

import threading
from pathlib import Path

from muster.common.clock import Clock
from muster.emulator.live.frames import Publication, publication
from muster.emulator.live.run_reader import RunReader
from muster.emulator.run_folder.folder import COMPOSE, is_free, server_listens

LOOK_S = 0.25
"""Least seconds between two looks."""

_SHARE = 0.05
_MOST_WAIT_S = 2.0
_ALIVE_S = 2.0

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
        self._reader = RunReader(folder)
        self._run_state = ""
        self._alive_at = -_ALIVE_S
        self._lock = threading.Lock()
        self.newest: Publication | None = None

    def look(self) -> None:
        """Read what is new, and publish it if anything is."""
        with self._lock:
            changed = self._reader.read()
            before, self._run_state = self._run_state, self._judge(changed)
            if changed or self._run_state != before:
                number = self.newest.number + 1 if self.newest else 1
                self.newest = publication(number, self._reader.state, self._run_state)

    def follow(self, stopped: threading.Event) -> None:
        """Look again and again until `stopped` is set."""
        while True:
            began = self._clock.monotonic()
            self.look()
            took = self._clock.monotonic() - began
            if stopped.wait(min(max(LOOK_S, took * (1 / _SHARE - 1)), _MOST_WAIT_S)):
                return

    def _judge(self, changed: bool) -> str:
        """How the run stands; of a run that has ended, its status.

        Args:
            changed: whether there is something new in the folder.
        """
        if (status := self._reader.state.progress.status) is not None:
            return status
        now = self._clock.monotonic()
        if self._run_state and now - self._alive_at < _ALIVE_S:
            return self._run_state
        self._alive_at = now
        runs = not is_free(self.folder)
        if not runs and (self.folder / COMPOSE).is_file():  # a fleet that goes on without a process
            runs = changed or server_listens(self.folder)
        return RUNNING if runs else INTERRUPTED
