"""The wait for room on a full disk: what is repeated, how long, and what is told of it."""

import asyncio
import errno
import os
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from muster.common.errors import RunFailed, reason_of
from muster.common.events import DiskHasRoom, DiskRanFull, Event
from muster.common.full_disk import is_full
from muster.common.testing import ManualClock
from muster.server.account.ledger import Ledger
from muster.server.account.run_rows import StoredVector
from muster.server.account.transaction import PendingTransaction
from muster.server.fleet.patience import Patience
from muster.server.runtime.room_on_disk import LOOK_S, RoomOnDisk
from muster.server.runtime.signals import RunSignals


def refusal(number: int = errno.ENOSPC) -> OSError:
    return OSError(number, os.strerror(number))


class Bench:
    """A disk without room, and somebody who writes to it."""

    def __init__(self, sign: Path, patience_s: float) -> None:
        self.clock, self.told = ManualClock(), list[Event]()
        self.signals = RunSignals(self.clock)
        self.patience = Patience(self.clock, tick_s=1.0)
        self.error: Exception | None = refusal()
        self.writes = 0
        self.room = RoomOnDisk(
            patience_s,
            self.clock,
            self.told.append,
            self.patience,
            self.signals,
            sign,
        )

    async def write(self) -> str:
        self.writes += 1
        if self.error is not None:
            raise self.error
        return "written"

    def begin(self) -> "asyncio.Task[str]":
        return asyncio.create_task(self.room.write("round 3", self.write))

    async def look(self) -> None:
        await asyncio.sleep(0)
        self.clock.advance(LOOK_S)
        for _ in range(5):
            await asyncio.sleep(0)


def small_write(refusals: int) -> Callable[[], Awaitable[None]]:
    """A write that is refused so often, and then finds room."""
    left = [refusal() for _ in range(refusals)]

    async def write() -> None:
        if left:
            raise left.pop()

    return write


async def test_a_write_is_repeated_until_there_is_room_and_the_wait_is_no_stall(
    tmp_path: Path,
) -> None:
    bench = Bench(tmp_path / "sign", patience_s=60.0)
    writing = bench.begin()
    for _ in range(4):
        await bench.look()
    assert (bench.writes, bench.patience.monotonic()) == (5, 0.0)
    bench.error = None
    await bench.look()
    assert await writing == "written"
    bench.clock.advance(1.0)
    assert bench.patience.monotonic() == 1.0
    full, again = bench.told
    assert full == DiskRanFull("round 3", "the operating system refused: No space left on device")
    assert again == DiskHasRoom("round 3", 5 * LOOK_S)


async def test_patience_ends_and_then_nothing_waits_again(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "sign", patience_s=2 * LOOK_S)
    writing = bench.begin()
    for _ in range(3):
        await bench.look()
    with pytest.raises(RunFailed, match=r"no room on the disk for 1 s .*No space left on device"):
        await writing
    with pytest.raises(OSError, match="No space"):
        await bench.begin()
    bench.error = None  # what is smaller finds room, but the run ends for want of it
    await bench.begin()
    assert [type(event) for event in bench.told] == [DiskRanFull]


async def test_a_run_that_is_to_stop_waits_no_longer(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "sign", patience_s=1e6)
    writing = bench.begin()
    await bench.look()
    bench.signals.stop("stopped", "asked")
    await bench.look()
    with pytest.raises(RunFailed, match="no room on the disk"):
        await writing


async def test_a_small_write_that_finds_room_does_not_end_the_wait_of_a_large_one(
    tmp_path: Path,
) -> None:
    bench = Bench(tmp_path / "sign", patience_s=5 * LOOK_S)
    large = bench.begin()
    await bench.look()
    small = asyncio.create_task(bench.room.write("the journal", small_write(refusals=1)))
    await bench.look()
    await small
    assert (tmp_path / "sign").exists()
    assert [type(event) for event in bench.told] == [DiskRanFull]
    for _ in range(5):
        await bench.look()
    with pytest.raises(RunFailed, match="no room on the disk"):
        await large
    assert not (tmp_path / "sign").exists()


async def test_a_wait_that_is_cancelled_leaves_nothing_to_the_next_one(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "sign", patience_s=4 * LOOK_S)
    cancelled = bench.begin()
    await bench.look()
    cancelled.cancel()
    await asyncio.gather(cancelled, return_exceptions=True)
    assert not (tmp_path / "sign").exists()
    for _ in range(10):
        await bench.look()
    writing = bench.begin()
    await bench.look()
    await bench.look()
    bench.error = None
    await bench.look()
    assert await writing == "written"
    assert bench.told[-1] == DiskHasRoom("round 3", 3 * LOOK_S)


async def test_after_a_wait_that_was_cancelled_the_next_write_tells_of_room(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "sign", patience_s=4 * LOOK_S)
    cancelled = bench.begin()
    await bench.look()
    cancelled.cancel()
    await asyncio.gather(cancelled, return_exceptions=True)
    bench.error = None
    for _ in range(2):
        assert await bench.begin() == "written"
    assert bench.told == [
        DiskRanFull("round 3", reason_of(refusal())),
        DiskHasRoom("round 3", LOOK_S),
    ]


async def test_another_error_is_not_waited_for(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "sign", patience_s=60.0)
    bench.error = refusal(errno.EIO)
    with pytest.raises(OSError, match="Input/output error"):
        await bench.begin()
    assert not bench.told


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_full_disk_a_quota_and_a_limit_of_files_are_alike(number: int) -> None:
    assert is_full(refusal(number))
    assert not is_full(refusal(errno.EACCES))
    assert not is_full(ValueError())


def test_a_ledger_that_found_no_room_commits_when_there_is_some(tmp_path: Path) -> None:
    path, made = tmp_path / "ledger.sqlite", list[sqlite3.Connection]()

    def connect(*args: Any, **options: Any) -> sqlite3.Connection:
        made.append(sqlite3.connect(*args, **options))
        return made[0]

    ledger = Ledger(path, connect)
    ledger.begin("run", [], 0.0, 1, {})
    (pages,) = made[0].execute("PRAGMA page_count").fetchone()
    made[0].execute(f"PRAGMA max_page_count = {pages + 1}")  # SQLite's own full disk
    body = bytes(100_000)
    for _ in range(2):
        with pytest.raises(sqlite3.OperationalError, match="full") as refused:
            ledger.enter_initial(StoredVector("0" * 64, len(body), body), None)
        assert is_full(refused.value)
        assert not made[0].in_transaction
    ledger.note(PendingTransaction())
    made[0].execute("PRAGMA max_page_count = 100000")
    ledger.enter_initial(StoredVector("0" * 64, len(body), body), None)
    ledger.close()
    with closing(sqlite3.connect(path)) as again:
        assert again.execute("SELECT count(*) FROM versions").fetchone() == (1,)


async def test_who_calls_again_and_again_does_not_renew_the_patience(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "sign", patience_s=4 * LOOK_S)
    for _ in range(3):  # each call is cancelled after one look
        writing = bench.begin()
        await asyncio.sleep(0)
        await bench.look()
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
    writing = bench.begin()
    await asyncio.sleep(0)
    await bench.look()
    with pytest.raises(RunFailed, match="there was no room on the disk for 2 s"):
        await writing


async def test_what_is_not_wanted_any_more_finds_no_room(tmp_path: Path) -> None:
    """In the buffered mode an assignment that is open for too long ends while its update waits."""
    bench, wanted = Bench(tmp_path / "sign", patience_s=4 * LOOK_S), [True]

    def write() -> None:
        raise refusal()

    async def keep() -> None:
        wanted[0] = True
        keeping = asyncio.create_task(bench.room.keep("an update", write, lambda: wanted[0]))
        await asyncio.sleep(0)
        wanted[0] = False
        await bench.look()
        await keeping

    for _ in range(3):
        await keep()
    assert [type(event) for event in bench.told] == [DiskRanFull]
    writing = asyncio.create_task(bench.room.write("an update", bench.write))
    await asyncio.sleep(0)
    await bench.look()
    with pytest.raises(RunFailed, match="there was no room on the disk for 2 s"):
        await writing


async def test_a_write_that_finds_room_at_once_gives_the_whole_patience_again(
    tmp_path: Path,
) -> None:
    bench = Bench(tmp_path / "sign", patience_s=4 * LOOK_S)
    for full in (True, True, True, False, True, True):
        bench.error = refusal() if full else None
        writing = bench.begin()
        await asyncio.sleep(0)
        await bench.look()
        if full:
            assert not writing.done()
            writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
