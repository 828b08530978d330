"""Checks of the ledger against itself: rounds and their scenario time, contributions, answers and
evaluations."""

import math
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from muster.emulator.run_audit.evidence import Evidence
from muster.emulator.run_audit.result import CheckLog
from muster.server.rounds.staleness import staleness

_OUTCOMES = frozenset({"folded", "late", "duplicate", "refused", "dropped"})


def check_file(evidence: Evidence, log: CheckLog) -> None:
    """SQLite finds no damage in the file, and every index agrees with its table."""
    found = evidence.one("PRAGMA integrity_check(1)")
    log.compare("ledger.sqlite, by SQLite's integrity_check", "ok", found)


def check_rounds(evidence: Evidence, log: CheckLog) -> None:
    """Rounds are numbered without gaps, and each leads from the newest version to the next."""
    folded = evidence.counts(
        "SELECT round, count(*) FROM contributions WHERE outcome = 'folded' GROUP BY round"
    )
    accepted = evidence.counts(
        "SELECT round, count(*) FROM answers WHERE decision IN ('accept', 'abort') GROUP BY round"
    )
    config = evidence.config
    every = not isinstance(config, str) and config.server.aggregator.makes_every_version()
    # On running clocks, an answer may come after its round has closed if the work goes on.
    exact = evidence.lockstep or not evidence.outlives_round
    number = version = 0
    for row in evidence.rows("SELECT * FROM rounds ORDER BY round"):
        number += 1
        round = row["round"]
        log.compare("number of the round", number, round, round)
        log.compare("base version", version, row["base_version"], round)
        made = row["outcome"] == "aggregated"
        log.require(
            row["outcome"] in ("aggregated", "empty"),
            "outcome", "'aggregated' or 'empty'", row["outcome"], round,
        )  # fmt: skip
        version = row["base_version"] + made
        log.compare("version after the round", version, row["version"], round)
        log.compare("number of folded updates", folded.get(round, 0), row["folded"], round)
        if exact:
            log.compare("number of accepted calls", accepted.get(round, 0), row["accepted"], round)
        if every:  # what devices have sent before makes a version without new updates
            log.compare("outcome", "aggregated", row["outcome"], round)
        else:
            log.require(
                made == (row["folded"] > 0),
                "folded updates", "some if and only if a version was made", row["folded"], round,
            )  # fmt: skip
        number = round
    stray = evidence.rows(
        "SELECT round, client FROM contributions WHERE outcome = 'folded' "
        "AND round NOT IN (SELECT round FROM rounds)"
    )
    for round, client in stray:
        log.require(False, "round of a folded update", "a committed round", round, round, client)


def check_contributions(evidence: Evidence, log: CheckLog) -> None:
    """Every update counts at most once, and belongs to a call that its device has accepted."""
    twice = evidence.rows(
        "SELECT call_round, client, count(*) FROM contributions WHERE outcome = 'folded' "
        "GROUP BY call_round, client HAVING count(*) > 1"
    )
    for round, client, times in twice:
        log.compare("times that the update of a call counts", 1, times, round, client)
    query = (
        "SELECT c.*, a.decision, k.enrolled FROM contributions c "
        "LEFT JOIN answers a ON a.round = c.call_round AND a.client = c.client "
        "LEFT JOIN clients k ON k.client = c.client ORDER BY c.round, c.client"
    )
    bases, oldest = evidence.base_versions, evidence.mode.get("max_staleness")
    later = evidence.outlives_round
    for row in evidence.rows(query):
        at = row["round"], row["client"]
        known = ", ".join(sorted(_OUTCOMES))
        log.require(row["outcome"] in _OUTCOMES, "outcome", known, row["outcome"], *at)
        log.compare("enrollment of the device", 1, row["enrolled"], *at)
        if row["outcome"] != "folded":
            log.compare("weight of an update that does not count", None, row["weight"], *at)
            continue
        log.compare("answer to the call", "accept", row["decision"], *at)
        log.compare("base version", bases.get(row["call_round"]), row["base_version"], *at)
        base = bases.get(row["round"])
        behind = None if base is None else staleness(base, row["base_version"])
        log.compare("staleness", behind, row["staleness"], *at)
        if later:
            log.require(row["call_round"] <= row["round"], "round of the call",
                        f"at most {row['round']}", row["call_round"], *at)  # fmt: skip
            log.require(row["staleness"] <= oldest, "staleness", f"at most {oldest}",
                        row["staleness"], *at)  # fmt: skip
        else:
            log.compare("round of the call", row["round"], row["call_round"], *at)
        weight = row["weight"]
        log.require(
            weight is not None and 0 <= weight < math.inf,
            "weight", "a finite number >= 0", weight, *at,
        )  # fmt: skip
        log.require(row["examples"] > 0, "examples", "more than 0", row["examples"], *at)


def check_weights(evidence: Evidence, log: CheckLog) -> None:
    """The sum, the largest and the effective number of the weights are right."""
    for row in evidence.rows("SELECT * FROM rounds WHERE outcome = 'aggregated' ORDER BY round"):
        round, folded = row["round"], evidence.folded(row["round"])
        weights = [update["weight"] for update in folded]
        if None in weights or not weights:
            continue  # another check reports it
        total, squares = math.fsum(weights), math.fsum(weight * weight for weight in weights)
        log.compare("sum of the weights", total, row["weight_sum"], round)
        log.compare("largest weight", max(weights), row["weight_max"], round)
        effective = total**2 / squares if squares else 0.0
        log.compare("effective size", effective, row["effective_size"], round)


def check_evaluations(evidence: Evidence, log: CheckLog) -> None:
    """A round has the loss and the accuracy of the evaluation of its version."""
    query = (
        "SELECT r.round, r.version, r.loss, r.accuracy, e.round AS made, e.loss AS measured, "
        "e.accuracy AS accuracy_measured FROM evaluations e JOIN rounds r ON r.version = e.version "
        "AND r.outcome = 'aggregated' ORDER BY r.round"
    )
    for row in evidence.rows(query):
        log.compare("round of the evaluation", row["round"], row["made"], row["round"])
        log.compare("loss", row["measured"], row["loss"], row["round"])
        log.compare("accuracy", row["accuracy_measured"], row["accuracy"], row["round"])


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
    if any(link.keys() & {"up", "down", "slots"} for link in links):
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
