"""What wakes the main loop, and the scenario's time."""

import asyncio
from pathlib import Path

import pytest

from muster.common.errors import RunFailed
from muster.common.testing import ManualClock
from muster.server.account.ledger import Ledger
from muster.server.coordination.scenario_time import ScenarioTime
from muster.server.runtime.signals import RunSignals


async def test_a_change_ends_a_wait_and_so_does_its_instant() -> None:
    clock = ManualClock()
    signals = RunSignals(clock)
    waiting = asyncio.ensure_future(signals.wait_until(10.0))
    await asyncio.sleep(0)
    signals.notify()
    assert await waiting is True
    signals.clear()
    waiting = asyncio.ensure_future(signals.wait_until(10.0))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    clock.advance(10.0)
    assert await waiting is False


async def test_the_first_request_to_stop_decides_and_wakes() -> None:
    signals = RunSignals(ManualClock())
    signals.stop("stopped", "first")
    signals.stop("failed", "second")
    assert signals.stop_request == ("stopped", "first")
    await signals.wait()


async def test_the_first_failure_reaches_who_watches_for_it() -> None:
    signals = RunSignals(ManualClock())
    signals.fail(OSError("first"))
    signals.fail(OSError("second"))
    with pytest.raises(OSError, match="first"):
        await signals.watch_for_failure()


def ledger(folder: Path) -> Ledger:
    made = Ledger(folder / "ledger.sqlite")
    made.begin("run", [], at=1.0, population=0, moments={})
    return made


def test_in_lockstep_a_round_opens_when_the_mode_says_so(tmp_path: Path) -> None:
    time = ScenarioTime(lockstep=True, round_s=900.0, scale=1.0, clock=ManualClock())
    time.load(ledger(tmp_path))
    assert time.now_s() is None
    assert time.opens_s() == 0.0
    time.next_s = 3600.0
    assert time.opens_s() == 3600.0


def test_rounding_does_not_lose_a_step_of_life() -> None:
    time = ScenarioTime(lockstep=True, round_s=0.1, scale=1.0, clock=ManualClock())
    assert [time.step_at(number * 0.1) for number in range(1000)] == list(range(1000))
    assert time.step_at(0.19) == 1
    assert time.step_at(None) == 0


def test_on_a_clock_that_runs_time_goes_on_after_a_restart(tmp_path: Path) -> None:
    clock, book = ManualClock(), ledger(tmp_path)
    time = ScenarioTime(lockstep=False, round_s=1.0, scale=10.0, clock=clock)
    time.load(book)
    assert time.now_s() is None, "it begins when the fleet has assembled"
    time.begin(book)
    clock.advance(5.0)
    assert time.now_s() == time.opens_s() == 50.0
    restarted = ScenarioTime(lockstep=False, round_s=1.0, scale=10.0, clock=clock)
    restarted.load(book)
    assert restarted.now_s() == 50.0


@pytest.mark.parametrize("seconds", [-3600.0, 3600.0])
def test_a_unix_clock_that_is_set_anew_does_not_move_the_time_of_a_run(
    tmp_path: Path, seconds: float
) -> None:
    clock, book = ManualClock(), ledger(tmp_path)
    time = ScenarioTime(lockstep=False, round_s=1.0, scale=10.0, clock=clock)
    time.begin(book)
    clock.advance(5.0)
    clock.set_unix(seconds)
    assert time.now_s() == 50.0
    assert time.instant_of(60) == 6.0


@pytest.mark.parametrize("lockstep", [True, False])
def test_a_step_that_no_call_can_state_ends_the_run_with_a_reason(lockstep: bool) -> None:
    time = ScenarioTime(lockstep, round_s=0.5, scale=1.0, clock=ManualClock())
    assert time.step_at(2147483647.5) == 2**32 - 1
    with pytest.raises(RunFailed, match=r"second 2\.14748e\+09, .* a longer clock\.round_s"):
        time.step_at(2147483648.0)
