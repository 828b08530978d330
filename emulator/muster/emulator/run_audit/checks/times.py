"""The check of scenario times, from the ledger alone."""

import math
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from muster.emulator.run_audit.check import Check
from muster.emulator.run_audit.evidence import Evidence
from muster.emulator.run_audit.result import CheckLog

_TELLS_NOBODY = frozenset({"drop-out", "powered off"})
"""Reasons for which a device that loses its work sends nothing."""

_WORK = (
    "SELECT a.round, a.decision, a.reason, a.modelled_s, c.outcome FROM answers a "
    "LEFT JOIN contributions c ON c.call_round = a.round AND c.client = a.client "
    "AND c.outcome <> 'duplicate' WHERE a.decision IN ('accept', 'abort') ORDER BY a.round"
)


def check_times(evidence: Evidence, log: CheckLog) -> None:
    """Each round opens when the one before has ended, and lasts as long as the clock says."""
    clock, server = evidence.scenario.get("clock", {}), evidence.server
    if not evidence.lockstep:
        log.skip("the scenario times of rounds, which are measured on this clock")
        return
    if evidence.recorded:
        log.skip("the scenario times of rounds, which are those of the life record")
        return
    work = {
        round: [tuple(row)[1:] for row in rows]
        for round, rows in groupby(evidence.rows(_WORK), key=lambda row: int(row["round"]))
    }
    reason, opens_s = _unknown(evidence), 0.0
    if reason:
        log.skip(f"how long rounds last, {reason}")
    step_s, modelled = float(clock.get("round_s", 60.0)), clock.get("kind") == "modelled"
    for row in evidence.rows("SELECT round, scenario_s, next_s FROM rounds ORDER BY round"):
        round, opened_s, next_s = row
        if next_s is None:
            log.skip("the scenario times of rounds, which an earlier muster has not written down")
            return
        log.compare("scenario second at which the round opens", opens_s, opened_s, round)
        opens_s = next_s
        if reason:
            continue
        lasts_s = lasted_s(work.get(round, ()), server, step_s) if modelled else step_s
        ends_s = opened_s + lasts_s if modelled else round * step_s
        right = math.isclose(ends_s, next_s, rel_tol=1e-9, abs_tol=1e-9)
        log.require(right, "scenario second at which it ends", f"{ends_s!r}", next_s, round)


def _unknown(evidence: Evidence) -> str:
    """Why the ledger alone does not say how long rounds last; empty if it does."""
    if evidence.outlives_round:
        return "because updates may count in a later round than that of their call"
    links = [group.get("shared_link", {}) for group in evidence.scenario.get("groups", ())]
    delaying = "up", "down", "trace", "trace_up", "slots", "cells"
    if any(link.get(key) for link in links for key in delaying):
        return "because devices share a link"
    if evidence.rule["kind"] == "flower":
        return "because the strategy of an app may limit them"
    return ""


def lasted_s(work: Sequence[Any], server: dict[str, Any], step_s: float) -> float:
    """How long a round lasts on the clock `modelled`.

    Args:
        work: the decision, the reason, the modelled seconds and the outcome of each accepted call.
        server: the table `server` of the scenario.
        step_s: `clock.round_s`.
    """
    deadline_s = server.get("deadline_s")
    limit_s = math.inf if deadline_s is None else float(deadline_s)
    sent = [(float(s), outcome) for kind, _, s, outcome in work if kind == "accept"]
    in_time = sorted(s for s, outcome in sent if outcome != "refused" and s <= limit_s)
    goal = _goal(server)
    if goal is not None and len(in_time) >= goal:
        return in_time[goal - 1]
    if not work:
        return step_s if deadline_s is None else limit_s
    lost = any(kind == "abort" and reason in _TELLS_NOBODY for kind, reason, _, _ in work)
    if lost and deadline_s is not None:
        return limit_s
    return min(limit_s, max(float(s) for _, _, s, _ in work))


def _goal(server: dict[str, Any]) -> int | None:
    """The number of updates with which a round is complete; None if all are waited for."""
    if (goal := server.get("goal")) is not None:
        return int(goal)
    selection = server.get("selection", {})
    if isinstance(selection, dict) and selection.get("over_selection", 1.0) > 1:
        return int(selection["k"])
    return None


CHECKS = (
    Check(
        "scenario time",
        "In lockstep, each round opens when the one before has ended, and lasts "
        '`clock.round_s`, or with the clock `"modelled"` as long as its work by the '
        "answers of its devices.",
        check_times,
    ),
)
