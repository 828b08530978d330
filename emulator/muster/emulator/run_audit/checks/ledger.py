"""Checks of the ledger against itself: rounds, contributions and weights."""

import math

from muster.emulator.run_audit.check import Check
from muster.emulator.run_audit.evidence import Evidence
from muster.emulator.run_audit.result import CheckLog
from muster.server.rounds.staleness import staleness

_OUTCOMES = frozenset({"folded", "late", "duplicate", "refused", "dropped"})


def check_file(evidence: Evidence, log: CheckLog) -> None:
    """SQLite finds no damage in the file, and every index agrees with its table."""
    found = evidence.one("PRAGMA integrity_check(1)")
    log.compare("rows of run", 1, evidence.one("SELECT count(*) FROM run"))
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
    for round, row in evidence.committed.items():
        weights = [update["weight"] for update in evidence.folded(round)]
        if None in weights:
            continue  # another check reports it
        if not weights:
            for name in ("normaliser", "weight_sum", "weight_max", "effective_size"):
                log.compare(f"{name} of a round without updates", None, row[name], round)
            continue
        total, squares = math.fsum(weights), math.fsum(weight * weight for weight in weights)
        log.compare("sum of the weights", total, row["weight_sum"], round)
        log.compare("largest weight", max(weights), row["weight_max"], round)
        effective = total**2 / squares if squares else 0.0
        log.compare("effective size", effective, row["effective_size"], round)


CHECKS = (
    Check(
        "the ledger's file",
        "SQLite's own check of all tables and indexes",
        check_file,
    ),
    Check(
        "rounds and versions",
        "Rounds have no gaps. Each begins with the newest version, and makes the next one "
        "if and only if updates were folded. Its counts are those of its rows.",
        check_rounds,
    ),
    Check(
        "contributions, each at most once",
        "No call has two folded updates. Every folded update belongs to a call that its "
        "device has accepted, in a committed round, and was trained from the version of "
        "that round. Its staleness follows from the versions, and is at most "
        "`max_staleness`.",
        check_contributions,
    ),
    Check(
        "sums of the weights",
        "Sum, largest value and effective size of the weights of every round",
        check_weights,
    ),
)
