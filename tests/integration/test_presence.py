"""The journal says when every device came and went, whatever ended its presence."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from muster.common.errors import RunFailed
from muster.common.testing import ManualClock
from muster.wire import SESSION

if TYPE_CHECKING:
    from tests.integration.conftest import MakeWorld, World


def story(w: World, client: str) -> list[tuple[str, str | None]]:
    """What the journal says of a device's presence, and why it left."""
    words = ("enrolled", "attended", "left")
    return [
        (event["event"], event.get("why"))
        for event in w.events
        if event["event"] in words and event["client"] == client
    ]


REPLACED = ("left", "its device enrolled again")


async def test_a_device_that_enrolls_again_has_left_before(world: MakeWorld) -> None:
    w = await world()
    await w.attend("a")
    await w.attend("a")
    came = [("enrolled", None), ("attended", None)]
    assert story(w, "a") == [*came, REPLACED, *came]
    assert w.coordinator.fleet.present == 1


async def test_all_devices_of_a_process_leave_when_one_of_them_enrolls_elsewhere(
    world: MakeWorld,
) -> None:
    w = await world()
    await w.attend("a", "b")
    await w.enroll("b")
    came = [("enrolled", None), ("attended", None)]
    assert story(w, "a") == [*came, REPLACED]
    assert story(w, "b") == [*came, REPLACED, ("enrolled", None)]
    assert w.coordinator.fleet.present == 0


async def test_a_device_without_a_stream_does_not_leave(world: MakeWorld) -> None:
    w = await world()
    await w.enroll("a")
    await w.enroll("a")
    assert story(w, "a") == [("enrolled", None), ("enrolled", None)]


async def test_a_second_stream_of_a_session_ends_the_presence_of_the_first(
    world: MakeWorld,
) -> None:
    w = await world()
    peer = await w.attend("a")
    stream = peer.stub.Attend(metadata=((SESSION, peer.session),))
    await stream.read()
    await peer.rest()
    assert story(w, "a") == [
        ("enrolled", None),
        ("attended", None),
        ("left", "it opened another stream"),
        ("attended", None),
    ]
    stream.cancel()


MODES = [{"kind": "opportunistic"}, {"kind": "buffered", "k": 2, "concurrency": 2}]


@pytest.mark.parametrize("mode", MODES, ids=["opportunistic", "buffered"])
async def test_a_run_whose_devices_have_all_gone_ends_with_a_reason(
    world: MakeWorld, mode: dict[str, int | str]
) -> None:
    clock = ManualClock()
    w = await world(clock="wall", mode=mode, rounds=1000, deadline_s=1.0, stall_s=20.0, time=clock)
    peers = await w.both()
    for peer in peers:
        call = await peer.called()
        await peer.decline(call)
    for peer in peers:
        peer.stream.cancel()
        await w.until("left", client=peer.client)
    assert w.running is not None
    clock.advance(19.0)
    await asyncio.sleep(0)
    assert not w.running.done()
    while not w.running.done():
        clock.advance(1.0)
        await asyncio.sleep(0)
    with pytest.raises(RunFailed, match=r"no device has been here for 20 s, .* server\.stall_s"):
        await w.running
