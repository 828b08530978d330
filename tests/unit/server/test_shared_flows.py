"""Shared links of rounds whose updates may outlive them, without a server."""

import math

import pytest

from muster.common.errors import RunFailed
from muster.common.exchange import Answer, Decision, Key, Outcome, Update
from muster.common.fluid import Stage
from muster.common.shared_lines import SharedLine
from muster.server.coordination.shared_flows import SharedFlows
from muster.server.fleet.devices import EnrolledDevice
from muster.server.rounds.cohort import times_alone
from muster.server.rounds.round import Round
from muster.server.rounds.rules import Rules

SHARED = {"valley": SharedLine(down_bps=8000.0)}
"""A model of 1,000 bytes takes a second if one device gets it, and an update takes no time. On the
devices' own links, both take no time."""


def devices(*clients: str) -> dict[str, EnrolledDevice]:
    found = {c: EnrolledDevice(c, "valley", place, 5) for place, c in enumerate(clients)}
    return {**found, "town": EnrolledDevice("town", "town", len(found), 5)}


def flows(fleet: dict[str, EnrolledDevice]) -> SharedFlows:
    return SharedFlows(SHARED, fleet, {"valley": (1000, 0)})


def collected(round: Round, works_s: dict[str, float], rules: Rules) -> Round:
    """The round after each of these devices was called, and its update has arrived."""
    round.rules = rules
    round.select(list(works_s))
    for client, seconds in works_s.items():
        key = round.call(client)
        round.answer(Answer(key, Decision.ACCEPT, seconds))
        update = Update(Key(client, round.number, 1), 5, b"", 0, 0.0, 0.0, 1.0, seconds)
        assert round.receive(update).outcome is Outcome.ACCEPTED
    return round


def test_a_finish_is_computed_again_when_later_work_has_begun() -> None:
    """a and b download from 0 to 2, and train for 1 and 3 s. When a is done, c begins to download;
    it has the link for itself."""
    fleet = devices("a", "b", "c")
    links = flows(fleet)
    rules = Rules(lockstep=True, goal=1, least=1, outlives_round=True, sharing=links.sharing_of(1))
    first = collected(Round(1, 0, rules, scenario_s=0.0), {"a": 1.0, "b": 3.0}, rules)
    assert {c: time.end_s for c, time in first.times().items()} == {"a": 3.0, "b": 5.0}
    assert first.counted() == ["a"]
    links.settle(first, 3.0)
    assert (fleet["a"].busy_until_s, fleet["b"].busy_until_s) == (3.0, math.inf)
    rows, ended = links.changed()
    assert [(row.client, row.stage) for row in rows] == [("a", Stage.ENDED), ("b", Stage.TRAINING)]
    assert [tuple(end) for end in ended] == [(3.0, 1, "a")]
    second, _ = first.successor(["a"], 1)
    second.scenario_s = 3.0
    collected(second, {"c": 0.0, "town": 0.5}, rules)
    times = second.times()
    assert {c: time.end_s for c, time in times.items()} == {"b": 5.0, "c": 4.0, "town": 3.5}
    assert times["b"].modelled_s == 5.0


def test_an_update_that_shared_links_make_late_stays_until_its_deadline_has_passed() -> None:
    """Both would be done after 2 s on links of their own; they share one, and are after 4 s."""
    links = flows(devices("a", "b"))
    rules = Rules(lockstep=True, deadline_s=2.5, outlives_round=True, sharing=links.sharing_of(1))
    round = collected(Round(1, 0, rules, scenario_s=0.0), {"a": 2.0, "b": 2.0}, rules)
    assert round.counted() == []
    assert round.slow() == ["a", "b"]
    links.settle(round, 2.0)
    round.next_s = 2.0
    assert round.overdue() == []
    next, _ = round.successor([], 0)
    assert list(next.cohort) == ["a", "b"]
    links.settle(next, 2.5)
    next.next_s = 2.5
    assert next.overdue() == ["a", "b"]
    assert next.successor([], 0)[0].cohort == {}


def test_a_server_that_continues_finds_the_same_finishes() -> None:
    links = flows(devices("a", "b"))
    rules = Rules(lockstep=True, goal=2, least=2, outlives_round=True, sharing=links.sharing_of(1))
    first = collected(Round(1, 0, rules, scenario_s=0.0), {"a": 1.7}, rules)
    links.settle(first, 0.3)
    second, _ = first.successor([], 0)
    second.scenario_s = 0.3
    collected(second, {"b": 4.1}, Rules(lockstep=True, goal=3, least=3, outlives_round=True))
    links.settle(second, 1.3)
    rows = {row.client: row for row in links.changed()[0]}  # the newest row of each counts
    again = flows(fleet := devices("a", "b"))
    again.load(rows.values(), 1.3)
    assert fleet["a"].busy_until_s == math.inf
    alone = times_alone(second.cohort)
    assert again.sharing_of(2)(alone) == links.sharing_of(2)(alone)


def test_a_mode_that_counts_updates_which_the_next_calls_could_delay_is_stopped() -> None:
    links = flows(devices("a"))
    rules = Rules(lockstep=True, outlives_round=True, sharing=links.sharing_of(1))
    round = collected(Round(1, 0, rules, scenario_s=0.0), {"a": 2.0}, rules)
    with pytest.raises(RunFailed, match="ends at scenario second 3, but the next round opens at 1"):
        links.settle(round, 1.0)
