"""The check of `muster audit --train`: the run is played again from its life record.

The same devices train in every round, and the same updates count, so what training decides is the
same: each version, what every update says of its training, and what each version was worth.
"""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from muster.common.errors import MusterError
from muster.common.facts import FACTS
from muster.common.life_record import write_life
from muster.emulator.records.life import life_of_run
from muster.emulator.run_audit.check import Check
from muster.emulator.run_audit.evidence import Evidence
from muster.emulator.run_audit.leaves import compare
from muster.emulator.run_audit.result import CheckLog
from muster.laboratory.grades import GRADES
from muster.laboratory.replay import made_elsewhere, played_scenario, uncertain
from muster.simulation.whole_run import simulate_run

_WHAT = "what training decides"


class DecidedRows(NamedTuple):
    """What training decides in the rows of a table.

    Attributes:
        rows: a query for the rows.
        key: the columns by which a row is found.
        columns: the values that follow from training.
    """

    rows: str
    key: Sequence[str]
    columns: Sequence[str]


_MEASURED = ("loss", "accuracy", "metrics")

DECIDED_BY_TRAINING = (
    DecidedRows(
        "SELECT * FROM contributions WHERE outcome = 'folded'",
        ("call_round", "client"),
        ("examples", "steps", "loss", *FACTS, "received_metrics"),
    ),
    DecidedRows("SELECT * FROM versions", ("version",), ("sha256",)),
    DecidedRows("SELECT * FROM evaluations", ("version",), _MEASURED),
    DecidedRows("SELECT * FROM group_evaluations", ("version", "group"), ("examples", *_MEASURED)),
    DecidedRows(
        "SELECT * FROM device_evaluations", ("version", "client"), ("examples", *_MEASURED)
    ),
)


def check_training(evidence: Evidence, log: CheckLog) -> None:
    """What training decides is the same when the run is played again."""
    folder = evidence.folder
    if evidence.status != "completed":
        log.skip(f"{_WHAT}: the run has not completed all of its rounds")
        return
    with TemporaryDirectory(prefix="muster-train-") as scratch:
        life, played = Path(scratch) / "life.csv.gz", Path(scratch) / "run"
        try:
            record = life_of_run(folder)
            scenario = played_scenario(folder, record, life, GRADES["arrivals"])
            if made_elsewhere(folder):
                log.skip(
                    f"{_WHAT}: the run was made with another version of torch or on another "
                    f"processor, where sums have other roundings"
                )
                return
            if calls := uncertain(record, scenario):
                log.skip(
                    f"{_WHAT}: for {calls} calls a device may have trained without a known update, "
                    f"and it goes on from what that left on it"
                )
                return
            write_life(life, record)
            simulate_run(scenario, played)
        except MusterError as error:
            log.skip(f"{_WHAT}: the run cannot be played again: {error}")
            return
        again = Evidence.of(played)
        with closing(again.ledger):
            for decided in DECIDED_BY_TRAINING:
                _compare(evidence, again, decided, log)


def _compare(evidence: Evidence, again: Evidence, decided: DecidedRows, log: CheckLog) -> None:
    """Compare the values of every row that both runs have."""
    expected = {tuple(row[k] for k in decided.key): row for row in again.rows(decided.rows)}
    table = decided.rows.split()[3]
    for row in evidence.rows(decided.rows):
        key = tuple(row[name] for name in decided.key)
        if (right := expected.get(key)) is None:
            continue
        named = dict(zip(decided.key, key, strict=True))
        where = "".join(f", {name} {value}" for name, value in named.items())
        for name in decided.columns:
            compare(log, f"{name} in {table}{where}, trained again", right[name], row[name])


CHECKS = (
    Check(
        "training, done again",
        "Only with `--train`: the run is played again from its life record, in virtual time. Each "
        "version, the losses and other facts of all updates that count, and all evaluations are "
        "the same.",
        check_training,
    ),
)
