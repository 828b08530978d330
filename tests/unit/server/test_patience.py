"""The clock of devices' silence: when it stands still, and what depends on it."""

import asyncio
import logging

import pytest

from muster.common.testing import ManualClock
from muster.server.fleet.patience import Patience

TICK_S = 2.5


class Server:
    """A server that looks at its clock regularly, as long as it is not stopped."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.patience = Patience(self.clock, TICK_S)
        self.watching = asyncio.create_task(self.patience.watch())

    async def run(self, ticks: int) -> None:
        for _ in range(ticks):
            await settle()
            self.clock.advance(TICK_S)
        await settle()

    async def stand_still(self, seconds: float) -> None:
        await settle()
        self.clock.advance(seconds)


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_server_that_is_not_stopped_has_the_clock_of_the_run() -> None:
    server = Server()
    await server.run(ticks=100)
    assert server.patience.monotonic() == server.clock.monotonic() == 250.0


@pytest.mark.parametrize("watched_first", [True, False])
async def test_the_time_in_which_the_server_was_stopped_does_not_count(
    watched_first: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever asks first after it."""
    server = Server()
    await server.run(ticks=4)
    await server.stand_still(30.0)
    if watched_first:
        await settle()
    assert server.patience.monotonic() == 10.0
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    await server.run(ticks=2)
    assert server.patience.monotonic() == 10.0 + 2 * TICK_S


async def test_a_short_pause_counts() -> None:
    server = Server()
    await server.stand_still(2 * TICK_S)
    await settle()
    assert server.patience.monotonic() == 2 * TICK_S


async def test_the_time_in_which_something_waits_for_room_does_not_count() -> None:
    server = Server()
    await server.run(ticks=2)
    with server.patience.without_room():
        await server.run(ticks=40)
        with server.patience.without_room():  # another write waits too
            await server.run(ticks=1)
        await server.run(ticks=1)
        assert server.patience.monotonic() == 5.0
    await server.run(ticks=1)
    assert server.patience.monotonic() == 7.5
    assert server.patience.running_s() == server.clock.monotonic() == 112.5


async def test_a_server_that_is_stopped_while_it_waits_for_room_takes_neither_twice() -> None:
    server = Server()
    await server.run(ticks=1)
    with server.patience.without_room():
        await server.run(ticks=1)
        await server.stand_still(100.0)
        await settle()
        assert server.patience.running_s() == 2 * TICK_S
    assert server.patience.monotonic() == TICK_S


async def test_a_sleep_lasts_longer_by_the_time_that_does_not_count() -> None:
    server = Server()
    sleeping = asyncio.create_task(server.patience.sleep_until(10.0))
    await server.run(ticks=1)
    with server.patience.without_room():
        await server.run(ticks=40)
    await server.run(ticks=2)
    assert not sleeping.done()
    await server.run(ticks=2)
    assert sleeping.done()
    assert server.patience.monotonic() == 12.5


async def test_progress_is_in_the_same_seconds(caplog: pytest.LogCaptureFixture) -> None:
    server = Server()
    with server.patience.without_room():
        await server.run(ticks=4)
    await server.run(ticks=1)
    server.patience.renew()
    assert server.patience.progress_at == TICK_S
    with caplog.at_level(logging.WARNING):
        await server.run(ticks=1)
    assert not caplog.records


async def test_nothing_is_taken_for_a_stop_if_nobody_looks_regularly() -> None:
    clock = ManualClock()
    patience = Patience(clock, TICK_S)
    clock.advance(1000.0)
    assert patience.monotonic() == 1000.0
    watching = asyncio.create_task(patience.watch())
    await settle()
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    clock.advance(1000.0)
    assert patience.monotonic() == 2000.0
