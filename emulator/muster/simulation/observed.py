"""Probes over what a history leaves: queries on its ledger, events of its journal, and its faults.

They need nothing of the processes, so `make chaos` has them too.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from types import MappingProxyType
from typing import Any

from muster.simulation.disk import reading
from muster.simulation.invariants import events_of

LEDGER: Mapping[str, str] = MappingProxyType(
    {
        "a round made a version": "FROM rounds WHERE outcome = 'aggregated'",
        "a round made no version": "FROM rounds WHERE outcome = 'empty'",
        "two rounds in a row made no version": "FROM rounds a JOIN rounds b "
        "ON b.round = a.round + 1 WHERE a.outcome = 'empty' AND b.outcome = 'empty'",
        "a round called nobody": "FROM rounds WHERE called = 0",
        "all devices of a round counted": "FROM rounds WHERE called > 1 AND folded = called",
        "one device of several counted": "FROM rounds WHERE called > 1 AND folded = 1",
        "all devices of a round declined": "FROM rounds WHERE called > 1 AND accepted = 0",
        "a round counted updates of earlier rounds only": "FROM rounds r WHERE folded > 0 AND NOT "
        "EXISTS (SELECT 1 FROM contributions c WHERE c.round = r.round AND c.call_round = r.round "
        "AND outcome = 'folded')",
        "rounds took scenario time": "FROM rounds WHERE next_s > scenario_s",
        "two rounds were at the same scenario time": "FROM rounds WHERE next_s = scenario_s",
        "privacy was spent": "FROM rounds WHERE epsilon IS NOT NULL",
        **{
            f"a device declined: {reason}": f"FROM answers WHERE decision = 'decline' AND "
            f"reason = '{reason}'"
            for reason in ("offline", "battery", "unwilling", "no gain", "slot taken")
        },
        **{
            f"a device gave up: {reason}": f"FROM answers WHERE decision = 'abort' AND "
            f"reason = '{reason}'"
            for reason in ("drop-out", "interrupted")
        },
        "a device declined for several steps": "FROM answers WHERE away_steps > 1",
        "a device told covariates": "FROM answers WHERE x IS NOT NULL",
        "a device accepted a model that is worse than its own": "FROM valuations WHERE forced = 1 "
        "AND gains = 0",
        "a device reported a utility": "FROM valuations WHERE a IS NOT NULL",
        "an update counted in the round of its call": "FROM contributions WHERE outcome = 'folded' "
        "AND round = call_round",
        "an update counted in a later round": "FROM contributions WHERE outcome = 'folded' AND "
        "round > call_round",
        "an update counted from a further attempt": "FROM contributions WHERE outcome = 'folded' "
        "AND attempt > 1",
        "an update counted that is one version old": "FROM contributions WHERE outcome = 'folded' "
        "AND staleness = 1",
        "an update counted that is several versions old": "FROM contributions WHERE "
        "outcome = 'folded' AND staleness > 1",
        "an update of part of the model counted": "FROM contributions WHERE outcome = 'folded' AND "
        "mask_ratio < 1",
        "a compressed update counted": "FROM contributions WHERE outcome = 'folded' AND "
        "bytes_saved > 0",
        "an update counted with weight 0": "FROM contributions WHERE outcome = 'folded' AND "
        "weight = 0",
        **{
            f"an update was late: {reason}": f"FROM contributions WHERE outcome = 'late' AND "
            f"reason = '{reason}'"
            for reason in ("deadline", "goal reached", "round closed", "stale")
        },
        **{
            f"an update was dropped: {reason}": f"FROM contributions WHERE outcome = 'dropped' AND "
            f"reason = '{reason}'"
            for reason in ("drop-out", "interrupted", "goal reached", "stale", "sum missing")
        },
        **{
            f"an update was refused: {reason}": f"FROM contributions WHERE outcome = 'refused' AND "
            f"reason = '{reason}'"
            for reason in ("length", "checksum", "not finite", "norm", "other body", "not called")
        },
        "an update was entered as a duplicate": "FROM contributions WHERE outcome = 'duplicate'",
        "bytes of an update that does not count are in the account": "FROM contributions WHERE "
        "outcome <> 'folded' AND bytes_up > 0",
        **{
            f"a transfer {way} ended: {ending}": f"FROM transfers WHERE direction = '{way}' AND "
            f"ending = '{ending}'"
            for way in ("up", "down")
            for ending in ("complete", "broken")
        },
        "an update came in several transfers": "FROM transfers WHERE direction = 'up' GROUP BY "
        "client, round, attempt HAVING count(*) > 1",
        "a transfer waited for its turn": "FROM transfers WHERE wait_s > 0",
        "an update is remembered": "FROM memory",
        "work on a shared link was under way at the end": "FROM shared_work",
        "the rule kept a state": "FROM aggregator_state",
        "an estimate of the rule was entered": "FROM estimates",
        "the run was begun by several servers": "FROM run WHERE incarnation > 1",
        "the run was begun by more than three servers": "FROM run WHERE incarnation > 3",
        "bytes travelled after the last round": "FROM run WHERE bytes_up + bytes_down > 0",
        "a device began several sessions": "FROM clients WHERE sessions > 1",
        "a device is not enrolled": "FROM clients WHERE enrolled = 0",
    }
)
"""Queries that find a row, by the name of the probe."""

JOURNAL: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "a round was opened again by another server": {"event": "round_opened", "again": True},
        "an update was received again by another server": {"event": "received", "again": True},
        "the disk ran full": {"event": "disk_ran_full"},
        "the disk had room again": {"event": "disk_has_room"},
        "a rule warned": {"event": "warned"},
        "the server told whom it waits for": {"event": "waiting"},
        "a run failed and was resumed": {"event": "ended", "status": "failed"},
        "a device left because its connection broke": {
            "event": "left",
            "why": "the connection broke",
        },
        "a device left because it opened another stream": {
            "event": "left",
            "why": "it opened another stream",
        },
        "a device left because it enrolled again": {
            "event": "left",
            "why": "its device enrolled again",
        },
        "a device went away": {"event": "left", "why": "it went away"},
        "an update came late": {"event": "late"},
        "an update was refused": {"event": "refused"},
        "an update came twice": {"event": "duplicate"},
    }
)
"""Fields of an event, by the name of the probe; `again`: an earlier incarnation told the same."""


def seen_in(folder: Path) -> frozenset[str]:
    """The names of the probes that a run has reached, from its folder."""
    with closing(reading(folder / "ledger.sqlite")) as ledger:
        return frozenset(_observed(ledger, events_of(folder / "journal.jsonl")))


def _observed(ledger: sqlite3.Connection, events: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    for name, query in LEDGER.items():
        if ledger.execute(f"SELECT 1 {query} LIMIT 1").fetchone() is not None:
            yield name
    told = list(_with_repeats(events))
    for name, fields in JOURNAL.items():
        if any(fields.items() <= event.items() for event in told):
            yield name


def _with_repeats(events: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    first: dict[Sequence[Any], int] = {}
    for event in events:
        key = event["event"], event.get("round"), event.get("client")
        incarnation = event.get("incarnation", 0)
        again = first.setdefault(key, incarnation) != incarnation
        hashable = {k: v for k, v in event.items() if isinstance(v, str | int | float)}
        yield {**hashable, "again": again}
