"""The end of a round on the clock `modelled`: how long its modelled work lasts.

A server that waited for its devices would close a round when its goal is reached, at its deadline,
or when nothing more can come. This is that moment in scenario seconds. It follows from modelled
durations alone, so nothing that happens to processes can change it.
"""

import math
from collections.abc import Collection, Iterator, Mapping

from muster.common.exchange import SILENT, Decision
from muster.server.rounds.cohort import CohortMember, WorkTime
from muster.server.rounds.rules import Rules


def closes_s(
    opened_s: float,
    rules: Rules,
    cohort: Mapping[str, CohortMember],
    times: Mapping[str, WorkTime],
    counted: Collection[str],
) -> float | None:
    """Scenario seconds at which a round closes: with the update that reaches its goal, at its
    deadline, or with the last word of a device, whichever comes first. None on the other clocks.

    A device that loses its work says nothing, as on clocks that run: the round waits for it until
    the deadline, if there is one. If no device works, the round lasts until its deadline, because a
    server that reaches nobody waits for devices to come.

    Args:
        opened_s: scenario seconds at which it opened.
        cohort: its members, which have all spoken.
        times: the time of the work of every update that arrived, by client.
        counted: the clients whose updates count.
    """
    if rules.idle_s is None:
        return None
    if rules.goal is not None and len(counted) >= rules.goal:
        return max(opened_s, *(times[client].end_s for client in counted))
    deadline_s = opened_s + min(rules.limit_s, rules.window_s or math.inf)
    if not (words := list(_last_words(cohort, times))):
        return opened_s + rules.idle_s if math.isinf(deadline_s) else deadline_s
    if any(silent for _, silent in words) and not math.isinf(deadline_s):
        return deadline_s
    return min(deadline_s, max(opened_s, *(word_s for word_s, _ in words)))


def _last_words(
    cohort: Mapping[str, CohortMember], times: Mapping[str, WorkTime]
) -> Iterator[tuple[float, bool]]:
    """Yield when each device that worked would send its last word, and whether it sends none; then
    the time is that at which it loses its work."""
    for client, member in cohort.items():
        answer = member.answer
        if answer is None or answer.decision is Decision.DECLINE:
            continue
        known = times.get(client)
        word_s = member.begun_s + answer.modelled_s if known is None else known.end_s
        yield word_s, answer.decision is Decision.ABORT and answer.reason in SILENT
