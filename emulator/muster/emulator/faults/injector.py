"""Injects the faults of a timeline that strike programs and links, and measures their effect.

Each occurrence is a task that waits for its end. Its beginning is a line of the journal (a round
that opens, or any event), or on clocks that run a scenario time. In lockstep a duration in seconds
is wall time, because scenario time stands still while a round waits.
"""

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from muster.common.clock import Clock
from muster.common.events import Tell
from muster.common.fault_events import FaultApplied, FaultHealed, FaultObserved, FaultVerified
from muster.emulator.faults.injection import FaultSite, InjectedFault
from muster.emulator.faults.timeline import FaultTimeline, Occurrence, RunTime

_LOOK_S = 0.02
"""Seconds between two looks at the effect of a fault."""

_MOST_LOOK_S = 10.0
"""Most seconds for which the effect of a fault without duration is awaited."""


class _Injection:
    """One occurrence, with what has become of it."""

    def __init__(self, name: str, do: InjectedFault, occurrence: Occurrence) -> None:
        self.name, self.do, self.occurrence = name, do, occurrence
        self.begun = self.observed = False
        self.targets: Sequence[str] = ()
        self.end = asyncio.Event()
        self.task: asyncio.Task[None] | None = None


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
        self._timers: list[asyncio.Task[None]] = []
        self._timed = False
        self._waiting = [
            _Injection(fault.name, fault.do, occurrence)
            for fault in timeline.faults
            if isinstance(fault.do, InjectedFault)
            for occurrence in fault.occurrences
            if (fault.name, occurrence.number) not in done
        ]
        self._begun: list[_Injection] = []

    def happen(self, line: Mapping[str, Any]) -> None:
        """Begin and end what a line of the journal begins and ends."""
        if self._ended:
            return
        if line["event"] == "ended":
            self._end_all()
            return
        if line["event"] == "round_opened":
            self._round, self._scenario_s = line["round"], line["scenario_s"]
            self._start_timers(line["at"])
        for injection in self._waiting[:]:
            if self._begins(injection.occurrence, line):
                self._begin(injection)
        for injection in self._begun:
            end_round = injection.occurrence.end_round
            if end_round is not None and self._round is not None and self._round >= end_round:
                injection.end.set()

    def _begins(self, occurrence: Occurrence, line: Mapping[str, Any]) -> bool:
        if occurrence.event is not None:
            here = occurrence.first_round in (None, line.get("round"))
            return bool(line["event"] == occurrence.event and here)
        if occurrence.first_round is not None:
            opened = line["event"] == "round_opened"
            return bool(opened and line["round"] == occurrence.first_round)
        assert occurrence.begin_s is not None
        return self._scenario_s is not None and self._scenario_s >= occurrence.begin_s

    def _start_timers(self, at: float) -> None:
        """On clocks that run, wait for the scenario times of faults, from the first round on."""
        if self._timed or self._time.lockstep or self._scenario_s is None:
            return
        self._timed = True
        zero = self._clock.monotonic() - (self._clock.now() - at) - self._scenario_s / self._scale
        for injection in self._waiting:
            begin_s = injection.occurrence.begin_s
            if begin_s is not None and injection.occurrence.first_round is None:
                due = zero + begin_s / self._scale
                ends = due + (injection.occurrence.lasts_s or math.inf) / self._scale
                if ends < self._clock.monotonic():
                    continue  # it passed while the run was stopped
                self._timers.append(asyncio.create_task(self._begin_at(injection, due)))

    async def _begin_at(self, injection: _Injection, due: float) -> None:
        await self._clock.sleep_until(due)
        if not injection.begun and not self._ended:
            self._begin(injection)

    def _begin(self, injection: _Injection) -> None:
        injection.begun = True
        self._waiting.remove(injection)
        self._begun.append(injection)
        injection.task = asyncio.create_task(self._run(injection))

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
        try:
            observing = asyncio.create_task(self._observe(injection, before))
            try:
                await self._until_end(injection)
                if not do.lasts:  # its effect follows at once
                    await asyncio.wait([observing], timeout=_MOST_LOOK_S)
            finally:
                observing.cancel()
                await asyncio.gather(observing, return_exceptions=True)
        finally:
            since = site.moment
            await do.heal(site, injection.targets)
        # A short fault may show only now: Docker takes a while to end a container.
        if not injection.observed:
            await self._look(injection, before)
        self._tell(FaultHealed, injection, injection.targets)
        if injection.observed:
            await self._verify(injection, since)

    async def _until_end(self, injection: _Injection) -> None:
        lasts_s = injection.occurrence.lasts_s
        if injection.do.lasts and lasts_s is None:
            await injection.end.wait()
        elif injection.do.lasts:
            assert lasts_s is not None
            scale = 1.0 if self._time.lockstep else self._scale
            ending = asyncio.create_task(injection.end.wait())
            timer = asyncio.create_task(
                self._clock.sleep_until(self._clock.monotonic() + lasts_s / scale)
            )
            await asyncio.wait([ending, timer], return_when=asyncio.FIRST_COMPLETED)
            for task in (ending, timer):
                task.cancel()
            await asyncio.gather(ending, timer, return_exceptions=True)

    async def _observe(self, injection: _Injection, before: Mapping[str, float]) -> None:
        """Look until the effect shows."""
        while not await self._look(injection, before):
            await self._clock.sleep_until(self._clock.monotonic() + _LOOK_S)

    async def _look(self, injection: _Injection, before: Mapping[str, float]) -> bool:
        """Tell the effect if it shows now, and return whether it does."""
        seen = await injection.do.observe(self._site, injection.targets, before)
        if seen:
            injection.observed = True
            said = ", ".join(sorted(set(seen.values())))
            self._tell(FaultObserved, injection, sorted(seen), said)
        return bool(seen)

    async def _verify(self, injection: _Injection, since: int) -> None:
        """Look until all targets work again, or the run is over."""
        while not self._ended:
            targets = injection.targets
            back = await injection.do.verify(self._site, targets, since)
            if set(back) >= set(targets):
                self._tell(FaultVerified, injection, targets)
                return
            await self._clock.sleep_until(self._clock.monotonic() + _LOOK_S)

    def _tell(self, kind: Any, injection: _Injection, targets: Sequence[str], *more: str) -> None:
        number = injection.occurrence.number
        self._record(
            kind(injection.name, number, list(targets), self._round, self._scenario_s, *more)
        )

    # --- the end ---------------------------------------------------------------------------------

    def _end_all(self) -> None:
        self._ended = True
        for injection in self._begun:
            injection.end.set()

    async def close(self) -> None:
        """Heal everything, and wait until it is healed."""
        self._end_all()
        for timer in self._timers:
            timer.cancel()
        tasks = [*self._timers, *(each.task for each in self._begun if each.task is not None)]
        await asyncio.gather(*tasks, return_exceptions=True)
