"""The check of a run that was played from a life record: whom the record lets train and count."""

from muster.common.errors import ConfigError
from muster.common.life_record import RECORD, read_life
from muster.emulator.run_audit.check import Check
from muster.emulator.run_audit.evidence import Evidence
from muster.emulator.run_audit.result import CheckLog
from muster.server.rounds.arrivals import RecordedArrivals


def check_life(evidence: Evidence, log: CheckLog) -> None:
    """Every round opened, called and counted as the record says, with the recorded answers."""
    if not evidence.recorded:
        return
    try:
        record = read_life(evidence.folder / RECORD)
    except ConfigError as error:
        log.require(False, RECORD, "the life record of the run", error)
        return
    arrivals = RecordedArrivals(record, evidence.outlives_round)
    for number, row in evidence.committed.items():
        if number > arrivals.rounds:
            log.compare("number of recorded rounds", arrivals.rounds, number)
            return
        round = arrivals.round(number)
        for column, expected in (
            ("called", round.called),
            ("accepted", round.accepted),
            ("scenario_s", round.opened_s),
            ("next_s", round.ended_s),
        ):
            log.compare(f"{column} of the round", expected, row[column], number)
        # The server may refuse an update that counted when it was recorded.
        counted = {row["client"] for row in evidence.folded(number)}
        log.require(
            counted <= round.counted, "clients whose updates count",
            ", ".join(sorted(round.counted)) or "none", ", ".join(sorted(counted)), number,
        )  # fmt: skip
        _check_answers(evidence, arrivals, number, log)


def _check_answers(
    evidence: Evidence, arrivals: RecordedArrivals, round: int, log: CheckLog
) -> None:
    query = "SELECT client, decision, reason, state, x, x_age_s FROM answers WHERE round = ?"
    found = {row["client"]: tuple(row)[1:] for row in evidence.rows(query, round)}
    called = set(arrivals.to_call(round))
    for client, row in arrivals.rows(round).items():
        # A device that trains answers by itself.
        reason = None if client in called else row.reason
        expected = row.answer, reason, *row.report
        log.compare("recorded answer", expected, found.pop(client, None), round, client)
    for client in found:
        log.compare("recorded answer", None, found[client], round, client)


CHECKS = (
    Check(
        "the life record",
        "If a run was played from a life record, its rounds opened and ended, called and counted "
        "as the record says, and its answers are the recorded ones.",
        check_life,
    ),
)
