"""The check of moments and durations, which only the clocks of the run have measured: they lie
within the run, and agree with each other."""

import math

from muster.emulator.run_audit.check import Check
from muster.emulator.run_audit.evidence import SLACK_S, Evidence, Row
from muster.emulator.run_audit.result import CheckLog

_SKEW_S = 86_400.0
"""Most seconds by which the clocks of two machines of a run may differ."""

_CLOCKS_S = 0.05
"""Most seconds, beside a thousandth, by which two clocks measure the same time differently."""


def check_moments(evidence: Evidence, log: CheckLog) -> None:
    """Everything happened between the start and the end of the run, in order."""
    run = next(evidence.rows("SELECT * FROM run"), None)
    if run is None or not evidence.current:
        log.skip("moments: the ledger is of an earlier muster, or the run has not begun")
        return
    if evidence.set_back:
        log.skip("moments: the clock of the server was set back during the run")
        return
    last = [row["closed_at"] for row in evidence.committed.values()]
    ended = run["ended_at"] if run["ended_at"] is not None else max(last, default=None)
    if evidence.lockstep:
        log.compare("moment of scenario time 0, in lockstep", None, run["began_at"])
    elif run["began_at"] is not None:
        _between(log, "moment of scenario time 0", run["began_at"], run["started_at"], ended)
    opened = closed = run["started_at"]
    for round, row in evidence.committed.items():
        _between(log, "moment at which the round opened", row["opened_at"], opened, ended, round,
                 slack_s=_slack_s(evidence))  # fmt: skip
        _between(log, "moment at which the round closed", row["closed_at"],
                 max(closed, row["opened_at"]), ended, round)  # fmt: skip
        opened, closed = row["opened_at"], row["closed_at"]
        most = 1.1 * (closed - opened) + SLACK_S  # it may have been set forward
        log.require(row["seconds"] <= most, "seconds of the round", f"at most {most!r}",
                    row["seconds"], round)  # fmt: skip
    _check_enrollment(evidence, log)
    _check_answers(evidence, log)
    _check_work(evidence, log)
    _check_evaluations(evidence, run, ended, log)
    _check_transfers(evidence, run, ended, log)


def _between(
    log: CheckLog,
    what: str,
    found: float,
    first: float,
    last: float | None,
    round: int | None = None,
    device: str | None = None,
    slack_s: float = SLACK_S,
) -> None:
    right = first - slack_s <= found and (last is None or found <= last + slack_s)
    log.require(right, what, f"from {first!r} to {last!r}", found, round, device)


def _slack_s(evidence: Evidence) -> float:
    """Most seconds by which two moments of the run may be in the wrong order."""
    return 0.0 if evidence.servers == 1 else SLACK_S


def _check_enrollment(evidence: Evidence, log: CheckLog) -> None:
    """Devices were entered in the order in which the journal has them."""
    if evidence.servers != 1:
        return
    rows = {row["client"]: row["enrolled_at"] for row in evidence.rows("SELECT * FROM clients")}
    last = -math.inf
    for event in evidence.events():
        if event.get("event") == "enrolled" and (at := rows.pop(event["client"], None)) is not None:
            order = "the order of the journal"
            log.require(last <= at, "moment of enrollment", order, at, device=event["client"])
            last = at


def _check_work(evidence: Evidence, log: CheckLog) -> None:
    """A device worked after its round had opened, perhaps by a server that was killed, and until
    its update counted."""
    started = next(evidence.rows("SELECT started_at FROM run"))["started_at"]
    for row in evidence.rows("SELECT * FROM contributions WHERE outcome = 'folded'"):
        if (call := evidence.committed.get(row["call_round"])) is None:
            continue
        worked = (row["train_s"] or 0.0) + (row["transfer_s"] or 0.0)
        opened = call["opened_at"] if evidence.servers == 1 else started
        most = 1.001 * (row["at"] - opened) + max(_CLOCKS_S, _slack_s(evidence))
        log.require(worked <= most, "seconds of training and transfers", f"at most {most!r}",
                    worked, row["round"], row["client"])  # fmt: skip


def _check_answers(evidence: Evidence, log: CheckLog) -> None:
    """An answer came while its round was open, or in the later round that has entered it."""
    rounds = evidence.committed
    for row in evidence.rows("SELECT round, client, at, entered FROM answers"):
        opened, closed = rounds.get(row["round"]), rounds.get(row["entered"] or row["round"])
        if opened is not None and closed is not None:
            _between(log, "moment of the answer", row["at"], opened["opened_at"],
                     closed["closed_at"], row["round"], row["client"])  # fmt: skip


def _check_evaluations(evidence: Evidence, run: Row, ended: float | None, log: CheckLog) -> None:
    newest = run["started_at"]
    for row in evidence.rows("SELECT * FROM evaluations ORDER BY version"):
        what = f"moment of the evaluation of version {row['version']}"
        made = evidence.committed.get(row["round"])
        first = newest if made is None else max(newest, made["closed_at"])
        last = None if run["ended_at"] is None else ended
        _between(log, what, row["at"], first, last, row["round"], slack_s=_slack_s(evidence))
        newest = row["at"]
        took = f"seconds of the evaluation of version {row['version']}"
        most = row["at"] - run["started_at"] + SLACK_S
        log.require(0 <= row["seconds"] <= most, took, f"from 0 to {most!r}", row["seconds"])


def _check_transfers(evidence: Evidence, run: Row, ended: float | None, log: CheckLog) -> None:
    """A transfer began within the run, by the clock of its device."""
    for row in evidence.rows("SELECT * FROM transfers"):
        at = row["round"], row["client"]
        if ended is not None:
            _between(log, "moment at which the transfer began", row["began_at"],
                     run["started_at"], ended, *at, slack_s=_SKEW_S)  # fmt: skip


CHECKS = (
    Check(
        "moments",
        "Enrollments, rounds, answers, evaluations and transfers lie within the run, in the order "
        "in which they must have come, and training lies between a call and what became of it.",
        check_moments,
    ),
)
