"""A run beside hostile connections of every kind, with real processes."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from muster.chaos.hostile_connections import BEGINNINGS, HostileConnections
from muster.emulator import Run, run

if TYPE_CHECKING:
    from tests.system.conftest import MakeScenario

pytestmark = pytest.mark.usefixtures("nothing_left")

T = TypeVar("T")

CONNECTIONS = 10 * len(BEGINNINGS)
ROUNDS = 100
MEMORY_MIB = 64
"""By how much more the server's memory may grow beside the hostile connections."""


class Attack:
    """Attacks the server of a run from a thread: begins before the first round, and goes on with
    every round until the run ends.

    Attributes:
        struck: connections that were open before the first round.
        closed: connections that the server has closed.
        files: the most files that the server had open.
        peak_mib: the peak memory of the server.
    """

    def __init__(self, folder: Path, number: int) -> None:
        self._folder = folder
        self._number = number
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._peers: HostileConnections | None = None
        self._pid = 0
        self.files = self.closed = self.struck = 0
        self.peak_mib = 0.0
        self._thread.start()

    def look(self, event: dict[str, Any]) -> None:
        if event["event"] == "server_started":
            address = json.loads((self._folder / "address.json").read_bytes())
            self._pid = address["pid"]
            self._peers = HostileConnections(address["host"], address["port"])
            self._do(self._peers.open(self._number))
            self.struck = len(self._peers)
        elif event["event"] == "ended":
            self.peak_mib = event["server_peak_rss_mib"]
        elif event["event"] == "round_committed" and self._peers is not None:
            self.files = max(self.files, files_of(self._pid))
            self._do(self._peers.annoy())
            self.closed = self._peers.closed.total()

    def _do(self, what: Coroutine[Any, Any, T]) -> T:
        done: Future[T] = asyncio.run_coroutine_threadsafe(what, self._loop)
        return done.result(60)

    def close(self) -> None:
        if self._peers is not None:
            self._do(self._peers.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def files_of(pid: int) -> int:
    """How many files a process has open; 0 if it has ended."""
    with suppress(OSError):
        return len(list(Path(f"/proc/{pid}/fd").iterdir()))
    return 0


def attacked(scenario: MakeScenario, folder: Path, number: int) -> tuple[Run, Attack]:
    """A run beside a number of hostile connections."""
    attack = Attack(folder, number)
    try:
        done = run(scenario(server={"rounds": ROUNDS}), out=folder, show=attack.look)
    finally:
        attack.close()
    return done, attack


def test_a_run_beside_hostile_connections_ends_with_the_same_model(
    scenario: MakeScenario, tmp_path: Path
) -> None:
    alone, quiet = attacked(scenario, tmp_path / "alone", 0)
    beside, attack = attacked(scenario, tmp_path / "beside", CONNECTIONS)
    assert beside.status == "completed"
    assert beside.summary["model_sha256"] == alone.summary["model_sha256"]
    assert attack.struck == CONNECTIONS
    assert attack.closed > 0, "the server closed what is no HTTP/2"
    assert attack.files <= quiet.files + CONNECTIONS
    assert attack.peak_mib < quiet.peak_mib + MEMORY_MIB
    # Not a line of the server's log for each of them, or its disk would fill.
    log = (tmp_path / "beside/logs/server.log").read_bytes()
    assert len(log) < 10_000
