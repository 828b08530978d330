"""The check of `muster audit --train`: the run is played again from its life record.

The same devices train in every round, and the same updates count, so what training decides is the
same: each version, what every update says of its training, and what each version was worth.
"""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from muster.common.errors import MusterError
from muster.common.facts import FACTS
from muster.common.life_record import write_life
from muster.emulator.records.life import life_of_run
from muster.emulator.run_audit.check import Check
from muster.emulator.run_audit.evidence import Evidence
from muster.emulator.run_audit.leaves import compare, pairs, table_of
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
        all: whether the run has all rows that follow from training. (It evaluates fewer versions if
            it makes them faster than it can evaluate.)
    """

    rows: str
    key: Sequence[str]
    columns: Sequence[str]
    all: bool = True


_MEASURED = ("loss", "accuracy", "metrics")

DECIDED_BY_TRAINING = (
    DecidedRows(
        "SELECT * FROM contributions WHERE outcome = 'folded'",
        ("call_round", "client"),
        ("examples", "steps", "loss", *FACTS, "received_metrics", "weight"),
    ),
    DecidedRows("SELECT * FROM versions", ("version",), ("sha256",)),
    DecidedRows("SELECT * FROM rounds", ("round",), ("normaliser",)),
    DecidedRows("SELECT * FROM estimates", ("round", "name"), ("value",)),
    DecidedRows("SELECT * FROM evaluations", ("version",), _MEASURED, all=False),
    DecidedRows(
        "SELECT * FROM group_evaluations", ("version", "group"), ("examples", *_MEASURED), all=False
    ),
    DecidedRows(
        "SELECT * FROM device_evaluations",
        ("version", "client"),
        ("examples", *_MEASURED),
        all=False,
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
    """Compare the rows of both runs, and the values in them."""
    expected, found = (
        {tuple(row[name] for name in decided.key): row for row in run.rows(decided.rows)}
        for run in (again, evidence)
    )
    table = decided.rows.split()[3]
    for key in {**expected, **found} if decided.all else found:
        named = zip(decided.key, key, strict=True)
        where = "".join(f", {name} {value}" for name, value in named)
        right, row = expected.get(key), found.get(key)
        log.compare(f"row in {table}{where}, trained again", right is not None, row is not None)
        if right is not None and row is not None:
            for name in decided.columns:
                _compare_values(log, f"{name} in {table}{where}", right[name], row[name])


def _compare_values(log: CheckLog, what: str, right: Any, found: Any) -> None:
    """Compare two values, which may be tables as JSON."""
    if isinstance(right, str) and isinstance(found, str) and right.startswith("{"):
        right, found = table_of(right), table_of(found)
    for place, one, other in pairs(right, found):
        where = f" {place}" if place else ""
        compare(log, f"{what}{where}, trained again", one, other)


CHECKS = (
    Check(
        "training, done again",
        "Only with `--train`: the run is played again from its life record, in virtual time. Each "
        "version, the losses and other facts of all updates that count, and all evaluations are "
        "the same.",
        check_training,
    ),
)
