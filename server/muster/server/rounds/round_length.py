"""The end of a round on the clock `modelled`: how long its modelled work lasts.

A server that waited for its devices would close a round when its goal is reached, at its deadline,
or when nothing more can come. This is that moment in scenario seconds. It follows from modelled
durations alone, so nothing that happens to processes can change it.
"""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from muster.common.exchange import SILENT, Decision

if TYPE_CHECKING:
    from muster.server.rounds.round import Round


def closes_s(round: "Round", idle_s: float) -> float:
    """Scenario seconds at which a round closes: with the update that reaches its goal, at its
    deadline, or with the last word of a device, whichever comes first.

    A device that loses its work says nothing, as on clocks that run: the round waits for it until
    the deadline, if there is one. If no device works, the round lasts until its deadline, because a
    server that reaches nobody waits for devices to come.

    Args:
        round: a round that no longer collects.
        idle_s: how long a round without a deadline lasts if no device works.
    """
    opened_s, goal, counted = round.scenario_s or 0.0, round.rules.goal, round.counted()
    if goal is not None and len(counted) >= goal:
        times = round.times()
        return max(opened_s, *(times[client].end_s for client in counted))
    deadline_s = opened_s + min(round.rules.limit_s, round.rules.window_s or math.inf)
    if not (words := list(_last_words(round))):
        return opened_s + idle_s if math.isinf(deadline_s) else deadline_s
    if any(silent for _, silent in words) and not math.isinf(deadline_s):
        return deadline_s
    return min(deadline_s, max(opened_s, *(word_s for word_s, _ in words)))


def _last_words(round: "Round") -> Iterator[tuple[float, bool]]:
    """Yield when each device that worked would send its last word, and whether it sends none; then
    the time is that at which it loses its work."""
    times = round.times()
    for client, member in round.cohort.items():
        answer = member.answer
        if answer is None or answer.decision is Decision.DECLINE:
            continue
        known = times.get(client)
        word_s = member.begun_s + answer.modelled_s if known is None else known.end_s
        yield word_s, answer.decision is Decision.ABORT and answer.reason in SILENT
