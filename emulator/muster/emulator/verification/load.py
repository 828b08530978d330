"""Measures how late this machine is, which limits what it can judge."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from muster.common.clock import Clock
from muster.emulator.verification.result import Row, Tolerances, unit_of

_EVERY_S = 0.01
_QUANTILE = 0.95


class Lateness:
    """How late a process wakes up: it sleeps again and again, and sees by how much it overslept."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._late_s: list[float] = []

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Measure while the block runs."""
        self._late_s.clear()
        watching = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            watching.cancel()
            await asyncio.wait({watching})

    async def _watch(self) -> None:
        while True:
            due = self._clock.monotonic() + _EVERY_S
            await self._clock.sleep_until(due)
            self._late_s.append(self._clock.monotonic() - due)

    @property
    def seconds(self) -> float:
        """What one of twenty wake-ups exceeded, in the last block."""
        ordered = sorted(self._late_s)
        return ordered[int(_QUANTILE * (len(ordered) - 1))] if ordered else 0.0


def gateway_lateness_s(before: Mapping[str, Any], after: Mapping[str, Any]) -> float:
    """How late a gateway was in the mean between two of its statistics."""
    wakes = after["wakes"] - before["wakes"]
    return float(after["late_s"] - before["late_s"]) / wakes if wakes else 0.0


def unjudged(rows: Sequence[Row], late_s: float, tolerances: Tolerances) -> list[Row]:
    """The rows of a time in which the machine was so late.

    A row outside its tolerance says nothing of the link if the machine alone could have been the
    reason: for a time, if it was later than half of the tolerance; for another quantity, if it was
    later than the tolerance of round trips, because then it cannot keep up. So does a row without a
    measurement.
    """

    def too_late(row: Row) -> bool:
        if unit_of(row.quantity) == "s" and row.tolerance is not None:
            return late_s > row.tolerance / 2
        return late_s > tolerances.rtt_s

    note = f"the machine was too loaded to judge: {1000 * late_s:.0f} ms late"
    return [
        replace(row, loaded=True, note="; ".join(filter(None, [row.note, note])))
        if row.ok is False and too_late(row)
        else row
        for row in rows
    ]
