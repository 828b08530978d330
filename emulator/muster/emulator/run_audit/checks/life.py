"""The check of a run that was played from a life record: whom the record lets train and count."""

from collections.abc import Collection, Mapping

from muster.common.errors import ConfigError
from muster.common.life_record import RECORD, LifeRow, read_life
from muster.emulator.run_audit.check import Check
from muster.emulator.run_audit.evidence import Evidence
from muster.emulator.run_audit.result import CheckLog
from muster.server.rounds.answers import RecordedAnswers, unknown
from muster.server.rounds.arrivals import RecordedArrivals
from muster.server.rounds.recorded import RecordedLife


def check_life(evidence: Evidence, log: CheckLog) -> None:
    """Every round opened, called and counted as the record says, with the recorded answers; or, if
    the server decided anew, only the answers are the recorded ones."""
    if not evidence.recorded:
        return
    try:
        record = read_life(evidence.folder / RECORD)
    except ConfigError as error:
        log.require(False, RECORD, "the life record of the run", error)
        return
    exact = evidence.scenario["life"].get("grade", "arrivals") == "arrivals"
    arrivals = RecordedArrivals(record, evidence.outlives_round)
    answers = RecordedAnswers(record, evidence.outlives_round)
    for number in evidence.committed:
        if number > arrivals.rounds:
            log.compare("number of recorded rounds", arrivals.rounds, number)
            return
        if exact:
            _check_arrivals(evidence, arrivals, number, log)
            _check_answers(evidence, arrivals, number, set(arrivals.to_call(number)), log)
        else:
            trained = {client for client, row in answers.rows(number).items() if row.trained}
            _check_answers(evidence, answers, number, trained, log)


def _check_arrivals(
    evidence: Evidence, arrivals: RecordedArrivals, number: int, log: CheckLog
) -> None:
    round, row = arrivals.round(number), evidence.committed[number]
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


def _check_answers(
    evidence: Evidence, life: RecordedLife, round: int, called: Collection[str], log: CheckLog
) -> None:
    """Compare the answers with the recorded ones.

    Args:
        called: the clients that the record lets train, and that therefore answer by themselves.
    """
    query = "SELECT client, decision, reason, state, x, x_age_s FROM answers WHERE round = ?"
    found = {row["client"]: tuple(row)[1:] for row in evidence.rows(query, round)}
    anew = isinstance(life, RecordedAnswers)
    rows: Mapping[str, LifeRow] = life.rows(round)
    for client in dict.fromkeys([*rows, *found]):
        if anew and client not in found:
            continue  # the server has not selected it
        row = rows.get(client, unknown(round, client) if anew else None)
        expected = None
        if row is not None:
            expected = row.answer, None if client in called else row.reason, *row.report
        log.compare("recorded answer", expected, found.get(client), round, client)


CHECKS = (
    Check(
        "the life record",
        "If a run was played from a life record, its answers are the recorded ones; and if the "
        "record says whose updates count, its rounds opened and ended, called and counted as it "
        "says.",
        check_life,
    ),
)
