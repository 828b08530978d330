"""The check of what the journal tells of servers and devices: starts, sessions, and moments."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from muster.common.events import (
    BY_MUSTER,
    Attended,
    Ended,
    Enrolled,
    Left,
    ServerStarted,
    event_kinds,
)
from muster.emulator.run_audit.check import Check
from muster.emulator.run_audit.evidence import SLACK_S, Evidence
from muster.emulator.run_audit.result import CheckLog

Event = Mapping[str, Any]

_SOON_S = 60.0
"""Most seconds between a row of the ledger and the event that tells the same."""

_OF_SUPERVISOR = frozenset(
    {"started", "died", "restarted", "placed", "verifying", "verified", "traffic"}
)


def check_lines(evidence: Evidence, log: CheckLog) -> None:
    """Every line has its writer, and the lines of a writer are in the order of time."""
    by_writer = dict[tuple[str, int], list[Event]]()
    kinds = {kind.name for kind in event_kinds()}
    newest = Counter[str]()
    for event in evidence.events():
        name, role = str(event.get("event")), event.get("role")
        incarnation = event.get("incarnation")
        if name not in kinds or not isinstance(role, str) or not isinstance(incarnation, int):
            log.require(name not in kinds, f"writer of {name}", "a role and its incarnation",
                        (role, incarnation))  # fmt: skip
            continue
        log.compare(f"role of {name}", _role(event), role)
        log.require(incarnation >= newest[role], f"incarnation of {name}",
                    f"at least {newest[role]}", incarnation)  # fmt: skip
        newest[role] = max(newest[role], incarnation)
        by_writer.setdefault((role, incarnation), []).append(event)
    if evidence.servers and newest["server"]:
        log.require(newest["server"] <= evidence.servers, "incarnation of the newest server",
                    f"at most {evidence.servers}", newest["server"])  # fmt: skip
    if evidence.status is not None and newest["server"]:
        log.compare("incarnation of the newest server", evidence.servers, newest["server"])
    for events in by_writer.values():
        _check_moments(events, log)


def _role(event: Event) -> str:
    name, warns = str(event["event"]), event.get("by") == BY_MUSTER
    inside = name in _OF_SUPERVISOR or name.startswith("fault_") or warns
    return "supervisor" if inside else "server"


def _check_moments(events: Sequence[Event], log: CheckLog) -> None:
    """Every event is between the one before and the one after it, unless the clock of the machine
    was set back."""
    moments = [event.get("at") for event in events]
    if _set_back(moments):
        return
    for place, at in enumerate(moments):
        name, round = events[place].get("event"), events[place].get("round")
        if not isinstance(at, int | float):
            log.require(False, f"moment of {name}", "a time", at)
            continue
        before, after = _neighbours(moments, place)
        if events[place + 1 : place + 2] and events[place + 1].get("event") == ServerStarted.name:
            continue  # a server that is started again tells first what had not been told
        between = before is None or after is None or before > after or before <= at <= after
        log.require(between, f"moment of {name}", f"from {before!r} to {after!r}", at,
                    round if isinstance(round, int) else None)  # fmt: skip


def _set_back(moments: Sequence[Any]) -> bool:
    """Whether moments fall once, by a little, and by so much that it is not because two lines that
    follow each other have changed places."""
    if not all(isinstance(each, int | float) for each in moments):
        return False
    falls = [place for place in range(1, len(moments)) if moments[place] < moments[place - 1]]
    if len(falls) != 1 or moments[falls[0] - 1] - moments[falls[0]] > SLACK_S:
        return False
    earlier, higher, lower, later = (
        moments[place] if 0 <= place < len(moments) else None
        for place in range(falls[0] - 2, falls[0] + 2)
    )
    return bool((earlier is not None and lower < earlier) or (later is not None and later < higher))


def _neighbours(moments: Sequence[Any], place: int) -> tuple[float | None, float | None]:
    before = moments[place - 1] if place else None
    after = moments[place + 1] if place + 1 < len(moments) else None
    return tuple(each if isinstance(each, int | float) else None for each in (before, after))  # type: ignore[return-value]


def check_sessions(evidence: Evidence, log: CheckLog) -> None:
    """Servers started, devices enrolled, attended and left, and the run ended, as the ledger
    says."""
    if not evidence.undisturbed:
        log.skip("sessions of devices: the run goes on, or was resumed")
        return
    run = next(evidence.rows("SELECT * FROM run"))
    sessions, there = Counter[str](), set[str]()
    starts, ends = 0, 0
    first = dict[str, float]()
    for event in evidence.events():
        name, client = event.get("event"), str(event.get("client"))
        if name == ServerStarted.name:
            starts += 1
            _check_start(evidence, event, run, log)
        elif name == Enrolled.name:
            sessions[client] += not ends  # the ledger is closed
            first.setdefault(client, event.get("at", 0.0))
        elif name == Attended.name:
            log.require(sessions[client] > 0, "session of a device that attends", "one", "none",
                        device=client)  # fmt: skip
            log.require(client not in there, "stream that a device opens", "one at a time",
                        "a second one", device=client)  # fmt: skip
            there.add(client)
        elif name == Left.name:
            log.require(client in there, "stream that a device leaves", "an open one", "none",
                        device=client)  # fmt: skip
            there.discard(client)
        elif name == Ended.name:
            ends += 1
            _check_end(event, run, log)
    log.compare("times that the journal has the event server_started", 1, starts)
    log.compare("times that the journal has the event ended", 1, ends)
    for row in evidence.rows("SELECT client, sessions, enrolled_at FROM clients"):
        client = row["client"]
        told = sessions.pop(client, 0)
        right = row["sessions"] == told or (evidence.reconnected and 0 < row["sessions"] < told)
        log.require(right, "sessions by the journal", str(told), row["sessions"], device=client)
        if row["enrolled_at"] is not None and client in first:
            _check_close("moment of its enrollment", first[client], row["enrolled_at"], log, client)
    for client in sessions:
        log.require(False, "device that enrolls", "one of the ledger", client, device=client)
    _check_answered(evidence, there, first.keys(), log)


def _check_start(evidence: Evidence, event: Event, run: Any, log: CheckLog) -> None:
    settings = evidence.server
    expected = {
        "run": run["id"],
        "round": 0,
        "version": 0,
        "population": evidence.one("SELECT count(*) FROM clients WHERE enrolled"),
        "rounds": settings.get("rounds"),
        "bytes_up": 0,
        "bytes_down": 0,
    }
    if not isinstance(config := evidence.config, str):
        by_version = config.server.mode.counts_versions
        expected["counts"] = "versions" if by_version else "rounds"
    for name, value in expected.items():
        if name in event:
            log.compare(f"{name} in the event server_started", value, event[name])
    _check_close("moment of the start", event.get("at", 0.0), run["started_at"], log)


def _check_end(event: Event, run: Any, log: CheckLog) -> None:
    for name in ("status", "detail", "bytes_up", "bytes_down"):
        log.compare(f"{name} in the event ended", run[name], event.get(name))
    peak = event.get("server_peak_rss_mib", 1.0)
    log.require(isinstance(peak, int | float) and peak >= 0, "peak memory of the server",
                "a number that is not negative", peak)  # fmt: skip
    _check_close("moment of the end", event.get("at", 0.0), run["ended_at"], log)


def _check_close(
    what: str, told: float, found: float | None, log: CheckLog, device: str | None = None
) -> None:
    """Compare a moment of the ledger with that of its event, which comes a little later."""
    right = found is not None and abs(told - found) <= _SOON_S
    log.require(right, what, f"about {told!r}, as the journal says", found, device=device)


def _check_answered(evidence: Evidence, there: set[str], enrolled: Any, log: CheckLog) -> None:
    """Every device that has answered had a session and a stream."""
    left = {event.get("client") for event in evidence.events() if event.get("event") == Left.name}
    query = "SELECT DISTINCT client FROM answers WHERE decision IN ('accept', 'abort')"
    for (client,) in evidence.rows(query):
        log.require(client in enrolled, "session of a device that has answered", "one", "none",
                    device=client)  # fmt: skip
        log.require(client in there or client in left, "stream of a device that has answered",
                    "one", "none", device=client)  # fmt: skip


CHECKS = (
    Check(
        "the lines of the journal",
        "Every line has its writer and its moment, and the lines of a writer are in order.",
        check_lines,
    ),
    Check(
        "sessions",
        "The start of the server, the sessions of its devices, and the end of the run are in the "
        "journal as in the ledger. (Of a run that was never resumed.)",
        check_sessions,
    ),
)
