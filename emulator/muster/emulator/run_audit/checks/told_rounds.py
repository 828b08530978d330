"""The check of what the journal tells of single rounds: openings, answers, updates, warnings."""

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

from muster.common.events import BY_MUSTER
from muster.common.exchange import Reason
from muster.emulator.run_audit.check import Check
from muster.emulator.run_audit.evidence import Evidence, Row
from muster.emulator.run_audit.leaves import compare
from muster.emulator.run_audit.result import CheckLog

Event = Mapping[str, Any]
Call = tuple[int, str]

_UPDATES = ("received", "late", "refused", "duplicate")


class _Told:
    """What the journal of a run tells of its rounds."""

    def __init__(self, evidence: Evidence) -> None:
        self.opened = defaultdict[int, list[Event]](list)
        self.declined = defaultdict[int, Counter[str]](Counter)
        self.answered = defaultdict[Call, list[Event]](list)
        self.updates = defaultdict[Call, list[Event]](list)
        self.others = list[Event]()
        self.left = evidence.reconnected
        for event in evidence.events():
            self._enter(event, str(event.get("event")))

    def _enter(self, event: Event, name: str) -> None:
        call = int(event.get("round") or 0), str(event.get("client"))
        if name == "round_opened":
            self.opened[call[0]].append(event)
        elif name == "declined":
            self.declined[call[0]].update(event.get("reasons") or {})
        elif name == "answered":
            self.answered[call].append(event)
        elif name in _UPDATES:
            self.updates[call].append(event)
        elif name in ("training_failed", "warned", "waiting"):
            self.others.append(event)


def check_openings(evidence: Evidence, log: CheckLog) -> None:
    """The journal tells of every round that was opened, with the numbers of the ledger."""
    told, rounds = _Told(evidence), evidence.committed
    for round, events in sorted(told.opened.items()):
        starts = Counter(event.get("incarnation") for event in events)
        log.require(max(starts.values()) == 1, "times that a server has opened the round", "once",
                    max(starts.values()), round)  # fmt: skip
        log.require(round <= len(rounds) + 1, "round that was opened",
                    f"at most {len(rounds) + 1}", round)  # fmt: skip
        for event in events if round in rounds else ():
            for name in ("base_version", "called", "scenario_s"):
                # On running clocks a round may wait after it was opened.
                if evidence.undisturbed if name == "called" else evidence.lockstep:
                    compare(log, f"{name} in the event round_opened", rounds[round][name],
                            event.get(name), round)  # fmt: skip
    for round in rounds if evidence.undisturbed else ():
        log.compare("times that the journal has the event round_opened", 1,
                    len(told.opened.get(round, ())), round)  # fmt: skip
        if not evidence.set_back:
            _check_opening(round, rounds[round], told, log)
    if evidence.status == "completed":
        for round in told.opened.keys() - rounds.keys():
            log.require(False, "round that was opened", "one of the ledger", round, round)


def _check_opening(round: int, row: Row, told: _Told, log: CheckLog) -> None:
    """Compare when a round opened with its event."""
    for event in told.opened.get(round, ()):
        at = event.get("at")
        right = isinstance(at, int | float) and row["opened_at"] - 1 <= at <= row["closed_at"] + 60
        log.require(right, "moment of the event round_opened",
                    f"from {row['opened_at']!r} to {row['closed_at']!r}", at, round)  # fmt: skip


def check_told_answers(evidence: Evidence, log: CheckLog) -> None:
    """The journal tells of every answer and every update that the ledger has."""
    if not evidence.undisturbed or not evidence.lockstep:
        log.skip("events of single calls: the run goes on, was resumed, or had another clock")
        return
    if evidence.revoked:
        log.skip("events of single calls: an operator has revoked credentials")
        return
    if evidence.recorded:
        log.skip("events of single calls: most answers are those of the life record")
        return
    told = _Told(evidence)
    answers = {(row["round"], row["client"]): row for row in evidence.rows("SELECT * FROM answers")}
    declined = defaultdict[int, Counter[str]](Counter)
    for (round, _), row in answers.items():
        if row["decision"] == "decline":
            declined[round][str(row["reason"])] += 1
    newest = max(evidence.base_versions, default=0)
    for round in sorted(declined.keys() | told.declined.keys()):
        reasons = sorted(declined[round].keys() | told.declined[round].keys())
        for reason in reasons if round <= newest else ():
            right, found = declined[round][reason], told.declined[round][reason]
            log.require(right == found or (told.left and right < found),
                        f"devices that declined ({reason}) in the journal", str(right), found,
                        round)  # fmt: skip
    for call, events in sorted(told.answered.items()):
        _check_answered(call, events, answers.get(call), newest, told.left, log)
    for call, row in sorted(answers.items()):
        if row["decision"] in ("accept", "abort"):
            found = bool(told.answered.get(call) or told.updates.get(call))
            log.require(found, "event of the answer", row["decision"], "none", *call)
    _check_updates(evidence, told, newest, log)
    _check_others(evidence, told, answers, log)


def _check_answered(
    call: Call, events: list[Event], row: Row | None, newest: int, again: bool, log: CheckLog
) -> None:
    if row is None:
        log.require(call[0] > newest, "answer that the journal tells", "one of the ledger",
                    events[0].get("decision"), *call)  # fmt: skip
        return
    if not again:
        decisions = {event.get("decision") for event in events}
        log.compare("times that the journal has the answer", len(decisions), len(events), *call)
    for event in events[-1:]:
        log.compare("decision in the journal", row["decision"], event.get("decision"), *call)
        log.compare("reason in the journal", row["reason"], event.get("reason"), *call)


def _check_updates(evidence: Evidence, told: _Told, newest: int, log: CheckLog) -> None:
    """Compare the updates of every call."""
    if evidence.outlives_round and evidence.status != "completed":
        log.skip("events of updates: some may be open")
        return
    rows = defaultdict[Call, list[Row]](list)
    for row in evidence.rows("SELECT * FROM contributions"):
        rows[row["call_round"], row["client"]].append(row)
    for call in sorted(rows.keys() | told.updates.keys()):
        if call[0] > newest:
            continue
        of_call, events = rows.get(call, []), told.updates.get(call, [])
        sent = [row for row in of_call if row["examples"] or row["outcome"] in _UPDATES[2:]]
        if told.left and len(events) > len(sent):  # one that comes again may only be told
            events = [each for each in events if each.get("reason") != Reason.ROUND_CLOSED.value]
        log.compare("number of its updates in the journal", len(sent), len(events), *call)
        for kind in ("refused", "duplicate"):
            right = sorted(str(row["reason"]) for row in sent if row["outcome"] == kind)
            found = sorted(str(e.get("reason")) for e in events if e.get("event") == kind)
            log.compare(f"reasons of its updates in the journal ({kind})", right, found, *call)
        late = {row["reason"] for row in sent if row["outcome"] == "late"}
        for event in events:
            if event.get("event") == "late":
                log.require(event.get("reason") in late, "reason of its late update",
                            ", ".join(map(str, sorted(late))) or "none", event.get("reason"),
                            *call)  # fmt: skip
            if event.get("event") == "received":
                _check_received(call, sent, event, log)


def _check_received(call: Call, sent: list[Row], event: Event, log: CheckLog) -> None:
    attempts = [row["attempt"] for row in sent]
    log.require(event.get("attempt") in attempts, "attempt of its update in the journal",
                ", ".join(map(str, attempts)) or "none", event.get("attempt"), *call)  # fmt: skip
    size = event.get("bytes")
    most = [row["bytes_up"] for row in sent]
    right = isinstance(size, int) and any(size <= up and (size > 0) == (up > 0) for up in most)
    log.require(right, "bytes of its update in the journal", f"at most {max(most, default=0)}",
                size, *call)  # fmt: skip


def _check_others(
    evidence: Evidence, told: _Told, answers: Mapping[Call, Row], log: CheckLog
) -> None:
    failed = {call for call, row in answers.items() if row["reason"] == "training failed"}
    errors = _errors(evidence)
    for event in told.others:
        round, call = int(event.get("round") or 0), (event.get("round"), event.get("client"))
        log.require(round <= len(evidence.base_versions) + 1, f"round of {event['event']}",
                    "one of the run", round)  # fmt: skip
        if event["event"] == "training_failed":
            log.require(call in failed, "device whose training failed", "one of the ledger", call)
            _check_error(call, errors, event, log)
            failed.discard((round, str(event.get("client"))))
        elif event["event"] == "warned" and event.get("by") != BY_MUSTER:
            log.compare("aggregator that warned", evidence.rule["kind"], event.get("by"), round)
    for call in sorted(failed):
        log.require(False, "event training_failed", "one", "none", *call)


def _errors(evidence: Evidence) -> Mapping[Call, str]:
    query = "SELECT call_round, client, error FROM contributions WHERE error IS NOT NULL"
    return {(round, client): error for round, client, error in evidence.rows(query)}


def _check_error(call: Any, errors: Mapping[Call, str], event: Event, log: CheckLog) -> None:
    if call in errors:  # an earlier muster has not entered it
        log.compare("error of training in the journal", errors[call], event.get("error"), *call)


CHECKS = (
    Check(
        "rounds in the journal",
        "It tells once of every round that each server has opened, with the numbers of the ledger.",
        check_openings,
    ),
    Check(
        "answers and updates in the journal",
        "In lockstep, it has every answer and every update of the ledger, and no other. (Of a run "
        "that was never resumed.)",
        check_told_answers,
    ),
)
