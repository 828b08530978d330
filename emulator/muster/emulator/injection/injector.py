"""Injects the faults of a timeline that strike programs and links, and measures their effect.

Each occurrence is a task that waits for its end. Its beginning is a line of the journal (a round
that opens, or any event), or on clocks that run a scenario time. In lockstep a duration in seconds
is wall time, because scenario time stands still while a round waits.
"""

import asyncio
import heapq
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import count
from typing import Any

from muster.common.clock import Clock
from muster.common.events import Tell
from muster.common.fault_events import FaultApplied, FaultHealed, FaultObserved, FaultVerified
from muster.emulator.faults.injection import FaultSite
from muster.emulator.faults.times import RunTime
from muster.emulator.fleet.fault_timeline import FaultTimeline
from muster.emulator.injection.waiting_injections import (
    PlannedInjection,
    WaitingInjections,
    planned_injections,
)

_LOOK_S = 0.02
"""Seconds between the first two looks at the effect of a fault."""

_SLOWER = 1.25
"""Factor of the time from one look to the next, so that what is seen is at most a quarter of the
waiting late."""

_RARELY_S = 0.5
"""Most seconds between two looks."""

_MOST_LOOK_S = 10.0
"""Most seconds for which the effect of a fault without duration is awaited."""

_LAST_LOOK_S = 1.0
"""Most seconds for which a fault that ends waits for the last look at its effect."""

_BACK = frozenset({"attended", "server_started"})
"""Events with which a target may be back."""


class _Injection:
    """One occurrence that has begun, with what has become of it."""

    def __init__(self, planned: PlannedInjection) -> None:
        self.planned = planned
        self.fault, self.do, self.occurrence = planned
        self.observed = False
        self.targets: Sequence[str] = ()
        self.applied = asyncio.Event()
        self.end = asyncio.Event()
        self.healed = asyncio.Event()

    @property
    def acts(self) -> bool:
        """Whether it has been applied and not healed."""
        return self.applied.is_set() and not self.healed.is_set()


class FaultInjector:
    """Injects faults into a running fleet.

    Args:
        scale: scenario seconds per wall second.
        failed: called if an injection fails, for example because a program cannot be started again.
        done: (fault, number) of the occurrences that an earlier part of the run has had.
    """

    def __init__(
        self,
        timeline: FaultTimeline,
        time: RunTime,
        site: FaultSite,
        clock: Clock,
        scale: float,
        record: Tell,
        failed: Callable[[Exception], None],
        done: set[tuple[str, int]],
    ) -> None:
        self._time = time
        self._site = site
        self._clock = clock
        self._scale = scale
        self._record = record
        self._failed = failed
        self._round: int | None = None
        self._scenario_s: float | None = None
        self._ended = False
        self._news = asyncio.Event()
        self._timer: asyncio.Task[None] | None = None
        self._waiting = WaitingInjections(
            each
            for each in planned_injections(timeline)
            if (each.fault, each.occurrence.number) not in done
        )
        self._running: dict[asyncio.Task[None], _Injection] = {}
        self._ends: list[tuple[int, int, _Injection]] = []
        self._order = count()
        self._zero: float | None = None

    @property
    def round(self) -> int | None:
        """The round that opened last; None before the first."""
        return self._round

    @property
    def scenario_s(self) -> float | None:
        """The scenario time; in lockstep, that at which the round has opened. None before the first
        round."""
        if self._zero is None:
            return self._scenario_s
        return (self._clock.monotonic() - self._zero) * self._scale

    def happen(self, line: Mapping[str, Any]) -> None:
        """Begin and end what a line of the journal begins and ends."""
        if self._ended:
            return
        event = line["event"]
        if event == "ended":
            self.end()
            return
        if event in _BACK:
            self._tell_news()
        if event == "round_opened":
            self._round, self._scenario_s = line["round"], line["scenario_s"]
            self._begin_timed(line["at"])
        for planned in self._waiting.take_at(line):
            self._begin(planned)
        while self._ends and self._round is not None and self._ends[0][0] <= self._round:
            heapq.heappop(self._ends)[2].end.set()

    def _begin_timed(self, at: float) -> None:
        """Begin what begins at the scenario time of the round that opens. On clocks that run, wait
        from the first round on for the scenario times of the others."""
        if self._scenario_s is None:
            return
        if self._time.lockstep:
            for planned in self._waiting.take_until(self._scenario_s):
                self._begin(planned)
        elif self._timer is None:
            clock = self._clock
            zero = clock.monotonic() - (clock.now() - at) - self._scenario_s / self._scale
            self._zero = zero
            now_s = (clock.monotonic() - zero) * self._scale
            for planned in self._waiting.take_until(now_s):
                begin_s, lasts_s = planned.occurrence.begin_s, planned.occurrence.lasts_s
                assert begin_s is not None
                if begin_s + (lasts_s or math.inf) >= now_s:  # else it passed while the run stood
                    self._begin(planned)
            self._timer = asyncio.create_task(self._follow_time(zero))

    async def _follow_time(self, zero: float) -> None:
        while (next_s := self._waiting.next_s) is not None:
            await self._clock.sleep_until(zero + next_s / self._scale)
            if self._ended:
                return
            for planned in self._waiting.take_until(next_s):
                self._begin(planned)

    async def inject(self, planned: PlannedInjection) -> bool:
        """Begin an occurrence now; return whether it acts, when that is known."""
        if self._ended:
            return False
        task, injection = self._begin(planned)
        await _first_of(injection.applied.wait(), asyncio.shield(task))
        return injection.applied.is_set()

    async def heal(self, chosen: Callable[[PlannedInjection], bool]) -> list[str]:
        """End the faults that act and are chosen; return their names when they are healed."""
        ending = [each for each in self._running.values() if each.acts and chosen(each.planned)]
        for injection in ending:
            injection.end.set()
        for injection in ending:
            await injection.healed.wait()
        return sorted({injection.fault for injection in ending})

    def acting(self) -> list[str]:
        """The names of the faults that act now."""
        return sorted({each.fault for each in self._running.values() if each.acts})

    def _begin(self, planned: PlannedInjection) -> tuple[asyncio.Task[None], _Injection]:
        injection = _Injection(planned)
        end_round = planned.occurrence.end_round
        if end_round is not None:
            heapq.heappush(self._ends, (end_round, next(self._order), injection))
        task = asyncio.create_task(self._run(injection))
        self._running[task] = injection
        task.add_done_callback(self._running.pop)
        return task, injection

    # --- one occurrence --------------------------------------------------------------------------

    async def _run(self, injection: _Injection) -> None:
        try:
            await self._happen_once(injection)
        except Exception as error:
            self._failed(error)

    async def _happen_once(self, injection: _Injection) -> None:
        do, occurrence, site = injection.do, injection.occurrence, self._site
        injection.targets = site.ready(occurrence.targets)
        if not injection.targets:
            return  # nothing to strike: the fault stays unobserved
        before = await do.measure(site, injection.targets)
        await do.apply(site, injection.targets)
        self._tell(FaultApplied, injection, injection.targets)
        injection.applied.set()
        try:
            observing = asyncio.create_task(self._observe(injection, before))
            try:
                await self._until_end(injection)
                # The effect of a fault without duration follows at once.
                wait_s = _LAST_LOOK_S if do.lasts else _MOST_LOOK_S
                await _first_of(observing, self._sleep(wait_s))
            finally:
                observing.cancel()
                await asyncio.gather(observing, return_exceptions=True)
        finally:
            since = site.moment
            try:
                await do.heal(site, injection.targets)
            finally:
                injection.healed.set()
        if not injection.observed and not self._ended:
            # A program that was asked to end, or a container, may take longer than the fault.
            await self._look(injection, before)
        self._tell(FaultHealed, injection, injection.targets, self._ended and do.lasts)
        if injection.observed and not self._ended:
            await self._verify(injection, since)

    async def _until_end(self, injection: _Injection) -> None:
        if not injection.do.lasts:
            return
        if (lasts_s := injection.occurrence.lasts_s) is None:
            await injection.end.wait()
            return
        scale = 1.0 if self._time.lockstep else self._scale
        await self._sleep(lasts_s / scale, injection.end)
        injection.end.set()

    async def _observe(self, injection: _Injection, before: Mapping[str, float]) -> None:
        """Look until the effect shows, and tell it. The last look is at the end of the fault, or of
        the run."""
        wait_s = _LOOK_S
        while True:
            last = injection.end.is_set()
            if await self._look(injection, before) or last:
                return
            await self._sleep(wait_s, injection.end)
            wait_s = min(_RARELY_S, wait_s * _SLOWER)

    async def _look(self, injection: _Injection, before: Mapping[str, float]) -> bool:
        """Look once whether the effect shows, and tell it; return whether it does."""
        seen = await injection.do.observe(self._site, injection.targets, before)
        if seen:
            said = ", ".join(sorted(set(seen.values())))
            injection.observed = True
            self._tell(FaultObserved, injection, sorted(seen), said)
        return bool(seen)

    async def _verify(self, injection: _Injection, since: int) -> None:
        """Look until all targets work again, or the run is over: soon after every event with which
        a target may be back, and otherwise from time to time."""
        wait_s = _LOOK_S
        while True:
            news, last = self._news, self._ended
            targets = injection.targets
            back = await injection.do.verify(self._site, targets, since)
            if set(back) >= set(targets):
                self._tell(FaultVerified, injection, targets)
                return
            if last:
                return
            await self._sleep(_LOOK_S)
            await self._sleep(wait_s, news)
            wait_s = min(_RARELY_S, wait_s * _SLOWER)

    async def _sleep(self, seconds: float, unless: asyncio.Event | None = None) -> None:
        """Sleep, but not longer than until the event."""
        timer = self._clock.sleep_until(self._clock.monotonic() + seconds)
        if unless is None:
            await timer
        else:
            await _first_of(unless.wait(), timer)

    def _tell(
        self, kind: Any, injection: _Injection, targets: Sequence[str], *more: str | bool
    ) -> None:
        number = injection.occurrence.number
        self._record(
            kind(injection.fault, number, list(targets), self._round, self._scenario_s, *more)
        )

    def _tell_news(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    # --- the end ---------------------------------------------------------------------------------

    @property
    def ended(self) -> bool:
        """Whether nothing begins any more."""
        return self._ended

    def end(self) -> None:
        """End everything that acts, and begin nothing any more."""
        self._ended = True
        self._tell_news()
        for injection in self._running.values():
            injection.end.set()

    async def close(self) -> None:
        """Heal everything, and wait until it is healed."""
        self.end()
        if self._timer is not None:
            self._timer.cancel()
            await asyncio.gather(self._timer, return_exceptions=True)
        await asyncio.gather(*self._running, return_exceptions=True)


async def _first_of(*waits: Awaitable[Any]) -> None:
    """Wait until one of these is done, and cancel the others."""
    tasks = [asyncio.ensure_future(each) for each in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
