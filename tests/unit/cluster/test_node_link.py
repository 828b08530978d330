"""When a node counts as lost: no program may be alive there any more."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest

from muster.common.errors import ConfigError, LaunchFailed
from muster.common.testing import ManualClock
from muster.emulator.launch.backend import EndedBeforeReady
from muster.emulator.launch.ray.messages import failure_from_json, failure_to_json
from muster.emulator.launch.ray.node_link import NodeLink, NodeLost

LEASE_S = 10.0


class FakePipe:
    """A pipe to a program that answers every request while `answers` holds."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.lines: asyncio.Queue[str | None] = asyncio.Queue()
        self.answers = True
        self.killed = False

    def send(self, line: str) -> None:
        request = json.loads(line)
        self.sent.append(request)
        if self.answers:
            self.tell({"id": request["id"], "result": request["do"]})

    def tell(self, message: dict[str, Any]) -> None:
        self.lines.put_nowait(json.dumps(message))

    def break_down(self) -> None:
        self.lines.put_nowait(None)

    async def receive(self) -> Sequence[str]:
        line = await self.lines.get()
        if line is None:
            raise NodeLost("gone")
        return [line]

    def end(self) -> None:
        self.tell({"ended": 0})

    def kill(self) -> None:
        self.killed = True


class World:
    """A link with its clock and its pipe."""

    def __init__(self) -> None:
        self.clock, self.pipe = ManualClock(), FakePipe()
        self.told: list[dict[str, Any]] = []
        self.losses = 0
        self.link = NodeLink(self.pipe, self.clock, LEASE_S, self.told.append, self.lose)

    def lose(self) -> None:
        self.losses += 1

    async def wait(self, seconds: float) -> None:
        """Let time pass in steps of a second, and let everything happen that is due."""
        for _ in range(int(seconds)):
            self.clock.advance(1.0)
            await settle()


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.fixture
async def world() -> World:
    world = World()
    await settle()
    return world


async def test_a_node_that_answers_is_never_lost(world: World) -> None:
    await world.wait(10 * LEASE_S)
    assert await world.link.ask("signal") == "signal"
    assert world.losses == 0
    await world.link.close()


async def test_a_node_whose_program_has_ended_is_lost_at_once(world: World) -> None:
    world.pipe.tell({"ended": -9})
    await settle()
    assert world.losses == 1
    with pytest.raises(NodeLost):
        await world.link.ask("signal")


async def test_a_node_that_cannot_be_reached_is_lost_when_its_lease_is_over(world: World) -> None:
    await world.wait(3)
    world.pipe.break_down()
    await settle()
    assert world.pipe.killed
    words = len(world.pipe.sent)
    await world.wait(LEASE_S - 1)
    assert world.losses == 0
    await world.wait(3)
    assert world.losses == 1
    assert len(world.pipe.sent) == words  # a word might have renewed the lease


async def test_a_silent_node_is_lost_a_lease_after_the_last_word_to_it(world: World) -> None:
    await world.wait(3)
    world.pipe.answers = False
    await world.wait(LEASE_S)
    assert world.pipe.killed
    assert world.losses == 0
    await world.wait(LEASE_S + 1)
    assert world.losses == 1


async def test_requests_to_a_node_that_may_be_lost_wait_for_the_end_of_its_lease(
    world: World,
) -> None:
    world.pipe.break_down()
    await settle()
    asking = asyncio.create_task(world.link.ask("start_packs"))
    await world.wait(LEASE_S - 1)
    assert not asking.done()
    await world.wait(3)
    with pytest.raises(NodeLost):
        await asking


async def test_a_node_that_is_closed_is_not_lost(world: World) -> None:
    await world.link.close()
    assert world.losses == 0


async def test_what_the_program_tells_is_handed_on(world: World) -> None:
    world.pipe.tell({"died": "dev-0001", "status": 1})
    await settle()
    assert world.told == [{"died": "dev-0001", "status": 1}]
    await world.link.close()


async def test_failures_come_back_as_they_were(world: World) -> None:
    world.pipe.answers = False
    asking = asyncio.create_task(world.link.ask("start_nursery"))
    await settle()
    number = world.pipe.sent[-1]["id"]
    world.pipe.tell({"id": number, **failure_to_json(EndedBeforeReady("nursery", 3, ". Why"))})
    with pytest.raises(EndedBeforeReady) as ended:
        await asking
    assert (ended.value.name, ended.value.status) == ("nursery", 3)
    assert str(ended.value).endswith("before it was ready. Why")
    await world.link.close()


@pytest.mark.parametrize(
    ("error", "comes_back"),
    [
        (ConfigError("no data"), ConfigError),
        (LaunchFailed("too slow"), LaunchFailed),
        (OSError("disk"), LaunchFailed),
    ],
)
def test_kinds_of_failures_are_kept(error: Exception, comes_back: type[Exception]) -> None:
    back = failure_from_json(json.loads(json.dumps(failure_to_json(error))))
    assert type(back) is comes_back
    assert str(back) == str(error)
