"""The check of calls: who is called, what the devices answer, and whose updates count, played again
from the scenario."""

from collections import defaultdict
from collections.abc import Mapping, Set
from dataclasses import replace
from typing import Any

from muster.emulator.run_audit.check import Check
from muster.emulator.run_audit.evidence import Evidence, Row
from muster.emulator.run_audit.leaves import compare, compare_leaves, table_of
from muster.emulator.run_audit.replayed_calls import (
    Replayed,
    ReplayedCall,
    rational,
    replayed,
)
from muster.emulator.run_audit.result import CheckLog

_FORESEEN = frozenset({"deadline", "goal reached", "round closed", "stale", "checksum", None})
"""Reasons for which an update does not count that follow from the modelled time alone. (An update
whose checksum was wrong is sent again.)"""


def check_calls(evidence: Evidence, log: CheckLog) -> None:
    """Every device was called when the scenario says so, and has answered as its life says."""
    if not evidence.current:
        log.skip("who was called and answered what: the ledger is of an earlier muster")
        return
    if isinstance(again := replayed(evidence), str):
        log.skip(f"who was called and answered what: {again}")
        return
    if evidence.revoked:
        log.skip("who was called and answered what: an operator has revoked credentials")
        return
    if any(event.get("event") == "left_out" for event in evidence.events()):
        log.skip("who was called and answered what: the server has left devices out")
        return
    last = _last_foreseen(evidence)
    if last < max(evidence.base_versions, default=0):
        log.skip(
            f"who was called after round {last}, in which an update did not count, or training "
            f"failed, for a reason that its device alone knows"
        )
    _check_rounds(evidence, again, last, log)
    _check_answers(evidence, again, last, log)
    if isinstance(evidence.planned, str) or not rational(evidence.planned):
        _check_folded(evidence, again, last, log)


def _last_foreseen(evidence: Evidence) -> int:
    """The last round whose calls follow from the scenario: what a device learns, or a fault of its
    update, may decide whom later rounds call, unless they call whom they would have called."""
    independent = not evidence.outlives_round and not _is_modelled(evidence)
    odd = [] if independent else sorted(_odd(evidence))
    return odd[0] if odd else max(evidence.base_versions, default=0)


def _is_modelled(evidence: Evidence) -> bool:
    return bool(evidence.scenario.get("clock", {}).get("kind") == "modelled")


def _odd(evidence: Evidence) -> set[int]:
    """The rounds with calls that ended for a reason that only their device knows."""
    query = (
        "SELECT call_round, reason FROM contributions WHERE outcome IN ('refused', 'dropped') "
        "AND examples > 0"
    )
    found = {row[0] for row in evidence.rows(query) if row[1] not in _FORESEEN}
    failed = "SELECT round FROM answers WHERE reason = 'training failed'"
    return found | {row[0] for row in evidence.rows(failed)}


def _check_rounds(evidence: Evidence, again: Replayed, last: int, log: CheckLog) -> None:
    """Compare how many devices were called, the versions, and the scenario times."""
    played = again.played
    ends = [*played.times_s[1:], played.end_s]
    for row in evidence.rows("SELECT * FROM rounds ORDER BY round"):
        round = row["round"]
        if not 1 <= round <= min(last, len(played.times_s)):
            continue
        log.compare("number of called devices", len(again.calls.get(round, ())), row["called"],
                    round)  # fmt: skip
        if row["next_s"] is None:
            continue  # an earlier muster has not written it down
        compare(log, "scenario second at which the round opens", played.times_s[round - 1],
                row["scenario_s"], round)  # fmt: skip
        if round < last or round not in _odd(evidence):
            compare(log, "scenario second at which the next one opens", ends[round - 1],
                    row["next_s"], round)  # fmt: skip


def _check_answers(evidence: Evidence, again: Replayed, last: int, log: CheckLog) -> None:
    """Compare every answer with what the device would say."""
    rows = defaultdict[int, dict[str, Row]](dict)
    for row in evidence.rows("SELECT * FROM answers ORDER BY round, client"):
        rows[row["round"]][row["client"]] = row
    delayed, lost = _delayed(evidence), _lost(evidence)
    for round in sorted(evidence.base_versions):
        if round > last:
            break
        expected = again.calls.get(round, {})
        for client in sorted(expected.keys() | rows[round].keys()):
            call, found = expected.get(client), rows[round].get(client)
            if call is None or found is None:
                log.require(
                    False, "answer",
                    "none, because the device was not called" if call is None else call.decision,
                    None if found is None else found["decision"], round, client,
                )  # fmt: skip
                continue
            _check_answer(call, found, delayed, lost, log)


def _known(table: Mapping[str, Any] | None, lost: Set[str]) -> Mapping[str, Any] | None:
    return table and {name: value for name, value in table.items() if name not in lost}


def _lost(evidence: Evidence) -> set[str]:
    """The states and covariates that a device may have lost: after a power cut, whether it took
    part, and what its training took from its battery."""
    if evidence.servers == 1 or isinstance(evidence.planned, str):
        return set()
    groups = evidence.planned.groups
    named = (group.covariates.x.items() for group in groups)
    recent = {name for of_group in named for name, kind in of_group if kind == "recent"}
    return recent | {"battery" for group in groups if group.device.battery is not None}


def _check_answer(
    call: ReplayedCall, row: Row, delayed: bool, lost: Set[str], log: CheckLog
) -> None:
    at = row["round"], row["client"]
    call = _decided(call, row)
    log.compare("decision", call.decision, row["decision"], *at)
    log.compare("reason", call.reason, row["reason"], *at)
    for name, right in (("state", call.state), ("x", call.x)):
        found = None if row[name] is None else table_of(row[name])
        _compare_tables(log, name, _known(right, lost), _known(found, lost), at)
    known = call.state is not None or call.x is not None
    log.compare("age of state and x", 0.0 if known else None, row["x_age_s"], *at)
    log.compare("round that has entered it", None, row["entered"], *at)
    if call.away_steps is not None:
        log.compare("steps for which it is offline", call.away_steps, row["away_steps"], *at)
    if not delayed:
        compare(log, "modelled seconds of its work", call.modelled_s, row["modelled_s"], *at)


def _decided(call: ReplayedCall, row: Row) -> ReplayedCall:
    """A call after what only the device knows: that training failed, or that a model does not serve
    it. (Other checks compare these.)"""
    if call.decision == "accept" and row["reason"] == "training failed":
        return replace(call, decision="abort", reason="training failed")
    if call.decision in ("accept", "abort") and row["reason"] in ("no gain", "valuation"):
        return replace(call, decision="decline", reason=row["reason"], modelled_s=0.0)
    return call


def _compare_tables(
    log: CheckLog,
    name: str,
    right: Mapping[str, Any] | None,
    found: Mapping[str, Any] | None,
    at: tuple[int, str],
) -> None:
    inner = CheckLog(name)
    compare_leaves(inner, "{}", right, found)
    for difference in inner.result.differences:
        log.compare(f"{name} {difference.what}", difference.expected, difference.found, *at)
    if not inner.result.differing:
        log.compare(name, right, right, *at)


def _delayed(evidence: Evidence) -> bool:
    """Whether devices share links, which may delay their work."""
    config = evidence.config
    return isinstance(config, str) or any(line.delays for line in config.shared.values())


def _check_folded(evidence: Evidence, again: Replayed, last: int, log: CheckLog) -> None:
    """Compare whose updates count, and with which staleness."""
    odd = _odd(evidence)
    found = defaultdict[int, dict[str, int]](dict)
    query = "SELECT round, client, staleness FROM contributions WHERE outcome = 'folded'"
    for round, client, staleness in evidence.rows(query):
        found[round][client] = staleness
    for round in sorted(evidence.base_versions):
        if round > last or (odd and round >= min(odd) and evidence.outlives_round):
            break
        if round in odd:
            continue
        right = again.folded.get(round, {})
        for client in sorted(right.keys() | found[round].keys()):
            log.compare("staleness with which its update counts", right.get(client, _NONE),
                        found[round].get(client, _NONE), round, client)  # fmt: skip


_NONE = "that it does not count"

CHECKS = (
    Check(
        "calls and answers",
        "In lockstep, the audit plays the lives of all devices again: whom each round calls, what "
        "every device answers, with its state, covariates and modelled work, whose updates count, "
        "and when rounds open.",
        check_calls,
    ),
)
