"""What the live page reads from a ledger that is being written."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.unit.test_ledger import ANSWER, CONTRIBUTION, MODEL, ROW

from muster.common.errors import LedgerError
from muster.emulator.live.fleet_state import GroupEvaluation, LedgerRows
from muster.emulator.live.ledger_feed import LedgerFeed
from muster.server.account.ledger import Ledger
from muster.server.account.run_rows import EvaluationRow, GroupEvaluationRow, MemberRow
from muster.server.account.transaction import PendingTransaction


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """The ledger of a run with one committed round."""
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.begin("run", [MemberRow("a", "g", 0, 5, True, None)], at=1.0, population=1, moments={})
    ledger.enter_initial(MODEL, None)
    ledger.commit(ROW, [ANSWER], PendingTransaction([CONTRIBUTION]), MODEL)
    return ledger


@pytest.mark.usefixtures("ledger")
def test_every_row_is_read_once(tmp_path: Path) -> None:
    feed = LedgerFeed(tmp_path / "ledger.sqlite")
    first = feed.new()
    assert first.enrolled == {"a": True}
    assert [facts.round for facts in first.rounds] == [1]
    assert [answer.client for answer in first.answers] == ["a"]
    assert [update.client for update in first.updates] == ["a"]
    assert feed.new() == LedgerRows(group_evaluations=[])


def test_an_evaluation_is_read_that_was_entered_after_its_round(
    ledger: Ledger, tmp_path: Path
) -> None:
    feed = LedgerFeed(tmp_path / "ledger.sqlite")
    feed.new()
    groups = [GroupEvaluationRow(1, 1, "g", 5, 0.5, 0.75, {"f1": 0.25})]
    ledger.evaluated(EvaluationRow(1, 1, 0.5, 0.75, {}, 0.1, 12.0, groups))
    assert feed.new().group_evaluations == [GroupEvaluation(1, "g", 0.5, 0.75, '{"f1": 0.25}')]
    assert feed.new().group_evaluations == []


def test_a_look_that_failed_is_repeated_whole(ledger: Ledger, tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    feed = LedgerFeed(path)
    with closing(sqlite3.connect(path)) as other:
        other.execute("ALTER TABLE transfers RENAME TO away")
        with pytest.raises(LedgerError, match="transfers"):
            feed.new()
        other.execute("ALTER TABLE away RENAME TO transfers")
    rows = feed.new()
    assert rows.enrolled == {"a": True}
    assert [facts.round for facts in rows.rounds] == [1]
    assert [update.client for update in rows.updates] == ["a"]
