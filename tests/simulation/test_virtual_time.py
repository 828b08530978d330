"""The event loop of the simulation."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from random import Random
from typing import Any

import pytest

from muster.simulation.virtual_time import (
    EPOCH_S,
    SimulatedProcess,
    Stuck,
    VirtualClock,
    VirtualLoop,
)


def a_loop(seed: int = 0, most_s: float = 1000.0) -> VirtualLoop:
    return VirtualLoop(Random(seed), lambda process: None, most_s)


def test_time_jumps_to_the_next_timer() -> None:
    loop = a_loop()
    clock, seen = VirtualClock(loop), []

    async def wait(seconds: float) -> None:
        await clock.sleep_until(seconds)
        seen.append((seconds, clock.monotonic(), clock.now()))

    async def main() -> None:
        await asyncio.gather(wait(300.0), wait(20.0))

    loop.run_until_complete(main())
    assert seen == [(20.0, 20.0, EPOCH_S + 20.0), (300.0, 300.0, EPOCH_S + 300.0)]
    loop.abandon()


def test_a_run_in_which_nobody_can_go_on_is_stuck() -> None:
    loop = a_loop()
    with pytest.raises(Stuck, match="none can run"):
        loop.run_until_complete(asyncio.Event().wait())
    loop.abandon()


def test_a_run_that_takes_too_long_is_stuck() -> None:
    loop = a_loop(most_s=10.0)
    with pytest.raises(Stuck, match="not over after 10 virtual seconds"):
        loop.run_until_complete(asyncio.sleep(11.0))
    loop.abandon()


def order_of(seed: int) -> list[str]:
    """In which order the steps of two processes run."""
    loop, seen = a_loop(seed), []

    async def steps(name: str) -> None:
        for number in range(4):
            seen.append(f"{name}{number}")
            await asyncio.sleep(0)

    async def main() -> None:
        started = [loop.start(name, partial(steps, name)) for name in "ab"]
        await asyncio.gather(*(task for _, task in started))

    loop.run_until_complete(main())
    loop.abandon()
    return seen


def test_the_seed_decides_the_order_of_processes_and_asyncio_that_within_one() -> None:
    orders = [order_of(seed) for seed in range(20)]
    assert orders == [order_of(seed) for seed in range(20)]
    assert len({tuple(order) for order in orders}) > 5
    for order in orders:
        for name in "ab":
            own = [step for step in order if step.startswith(name)]
            assert own == [f"{name}{number}" for number in range(4)]


def test_a_killed_process_does_nothing_more_not_even_clean_up() -> None:
    loop, seen = a_loop(), []

    async def victim() -> None:
        try:
            seen.append("began")
            await asyncio.sleep(5.0)
            seen.append("woke")
        finally:
            seen.append("cleaned up")

    async def main() -> None:
        process, _ = loop.start("victim", victim)
        await asyncio.sleep(1.0)
        loop.kill(process)
        await asyncio.sleep(10.0)

    loop.run_until_complete(main())
    assert seen == ["began"]
    loop.abandon()


def test_a_paused_process_goes_on_where_it_was() -> None:
    loop, seen = a_loop(), []

    async def victim() -> None:
        await asyncio.sleep(1.0)
        seen.append(loop.time())

    async def main() -> None:
        process, task = loop.start("victim", victim)
        await asyncio.sleep(0.5)
        loop.pause(process)
        await asyncio.sleep(5.0)
        assert not seen
        loop.resume(process)
        await task

    loop.run_until_complete(main())
    assert 5.5 <= seen[0] < 6.0
    loop.abandon()


def test_worker_threads_run_their_jobs_one_after_the_other() -> None:
    loop, executor = a_loop(3), ThreadPoolExecutor(1)
    seen: list[int] = []

    async def main() -> list[Any]:
        jobs = [loop.run_in_executor(executor, seen.append, number) for number in range(10)]
        return await asyncio.gather(*jobs)

    loop.run_until_complete(main())
    assert seen == list(range(10))
    loop.abandon()


def test_a_job_that_raises_raises_where_it_is_awaited() -> None:
    loop = a_loop()

    def fail() -> None:
        raise OSError("the disk is full")

    async def main() -> None:
        await loop.run_in_executor(None, fail)

    with pytest.raises(OSError, match="the disk is full"):
        loop.run_until_complete(main())
    loop.abandon()


def test_an_exception_that_nobody_takes_is_found() -> None:
    loop = a_loop()

    async def fail() -> None:
        raise ValueError("lost")

    async def careless() -> None:
        task = asyncio.create_task(fail())
        await asyncio.wait({task})

    async def main() -> None:
        _, task = loop.start("careless", careless)
        await task

    loop.run_until_complete(main())
    assert ["lost" in found for found in loop.unclaimed()] == [True]
    loop.abandon()


def test_before_every_step_the_loop_says_whose_it_is() -> None:
    seen: list[str] = []

    def note(process: SimulatedProcess) -> None:
        seen.append(process.name)

    loop = VirtualLoop(Random(0), note, 10.0)

    async def main() -> None:
        _, task = loop.start("one", lambda: asyncio.sleep(0))
        await task

    loop.run_until_complete(main())
    assert "one" in seen
    assert len(seen) == loop.steps
    loop.abandon()
