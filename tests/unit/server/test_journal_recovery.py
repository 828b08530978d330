"""What a restarted server writes into a journal that lacks committed rounds."""

from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from muster.common.events import AppMeasured, Evaluated, RoundCommitted
from muster.server.account.journal_recovery import missing_events, newest, numbers
from muster.server.account.ledger import Ledger
from muster.server.account.rows import ContributionRow, EstimateRow, RoundRow
from muster.server.account.run_rows import StoredVector
from muster.server.account.transaction import PendingTransaction


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    """A ledger with the rounds 1 to 5."""
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.begin("run", [], 0.0, 0, {})
    for round in range(1, 6):
        row = RoundRow(round, round - 1, round, "aggregated", 1, 1, 1, 1.0, 1.0, 1.0, 1.0, 0.0,
                       0.0, None, None, 8, 8, 10.0 * round, 10.0 * round + 5, 5.0)  # fmt: skip
        ledger.commit(row, [], PendingTransaction(), StoredVector("x", 1, b"x"))
    yield ledger
    ledger.close()


def told(path: Path, *rounds: int) -> Path:
    lines = [
        orjson.dumps({"event": "round_committed", "round": round}).decode() for round in rounds
    ]
    path.write_text("\n".join([*lines, ""]))
    return path


@pytest.mark.parametrize(
    ("rounds", "missing"),
    [((), [1, 2, 3, 4, 5]), ((1, 2, 3), [4, 5]), ((1, 3, 5), [2, 4]), ((1, 2, 3, 4, 5), []),
     ((4, 5), [1, 2, 3])],
)  # fmt: skip
def test_exactly_the_rounds_that_the_journal_lacks_are_told(
    tmp_path: Path, ledger: Ledger, rounds: tuple[int, ...], missing: list[int]
) -> None:
    journal = told(tmp_path / "journal.jsonl", *rounds)
    found = missing_events(journal, ledger)
    assert [(at, vars(event)["round"]) for at, event in found] == [
        (10.0 * round + 5, round) for round in missing
    ]


def contribution(client: str, round: int, staleness: int, outcome: str) -> ContributionRow:
    return ContributionRow(round, client, round - staleness, 1, 0, staleness, 1.0, 1, 1.0, 8, 8, 0,
                           0.1, None, 0.5, outcome, None, 1.0)  # fmt: skip


def test_a_missing_round_is_told_with_the_staleness_of_its_updates(
    tmp_path: Path, ledger: Ledger
) -> None:
    updates = [
        contribution("a", 6, 0, "folded"),
        contribution("b", 6, 2, "folded"),
        contribution("c", 6, 2, "folded"),
        contribution("d", 6, 3, "late"),
    ]
    row = RoundRow(6, 5, 6, "aggregated", 4, 4, 3, 1.0, 1.0, 1.0, 1.0, 0.0,
                   0.0, None, None, 8, 8, 60.0, 65.0, 5.0)  # fmt: skip
    transaction = PendingTransaction(contributions=updates)
    ledger.commit(row, [], transaction, StoredVector("x", 1, b"x"))
    journal = told(tmp_path / "journal.jsonl", 1, 2, 3, 4)
    found = [vars(event)["staleness"] for _, event in missing_events(journal, ledger)]
    assert found == [{}, {"0": 1, "2": 2}]


def test_metrics_of_an_app_are_told_with_the_rounds_that_the_journal_lacks(
    tmp_path: Path, ledger: Ledger
) -> None:
    rows = [
        EstimateRow(round, name, f'{{"server.loss": {round}}}')
        for round in (0, 1, 3, 5, 6)
        for name in ("app_measured", "other")
    ]
    row = RoundRow(6, 5, 6, "aggregated", 1, 1, 1, 1.0, 1.0, 1.0, 1.0, 0.0,
                   0.0, None, None, 8, 8, 60.0, 65.0, 5.0)  # fmt: skip
    ledger.commit(row, [], PendingTransaction(estimates=rows), StoredVector("x", 1, b"x"))

    def missing(journal: Path) -> list[tuple[str, int]]:
        return [
            (event.name, vars(event)["round"])
            for _, event in missing_events(journal, ledger)
            if isinstance(event, AppMeasured) or vars(event)["round"] >= 5
        ]

    journal = told(tmp_path / "journal.jsonl", 1, 2, 3, 4)
    later = [("round_committed", 5), ("app_measured", 6), ("round_committed", 6)]
    assert missing(journal) == [("app_measured", 5), *later]
    with journal.open("a") as file:
        file.write('{"event":"app_measured","round":5}\n')
    assert missing(journal) == later
    journal = told(tmp_path / "journal.jsonl", 3, 4)
    measured = [round for name, round in missing(journal) if name == "app_measured"]
    assert measured == [0, 1, 5, 6]


def test_torn_lines_are_no_rounds(tmp_path: Path, ledger: Ledger) -> None:
    journal = told(tmp_path / "journal.jsonl", 1, 2, 3)
    text = journal.read_text()
    journal.write_text(text.replace('"round":2', '"round":}') + '{"event":"round_committed","r')
    assert newest(journal, RoundCommitted, "round") == 3
    assert numbers(journal, {RoundCommitted: "round"}) == {RoundCommitted: {1, 3}}
    assert [vars(event)["round"] for _, event in missing_events(journal, ledger)] == [2, 4, 5]


def test_one_pass_tells_all_kinds_apart(tmp_path: Path) -> None:
    journal = told(tmp_path / "journal.jsonl", 1, 2)
    with journal.open("a") as file:
        file.write('{"event":"round_committed_twice","round":9}\n')
        file.write('{"event":"evaluated","round":2,"version":7}\n')
        file.write('{"event":"died","name":"round_committed","round":8}\n')
    found = numbers(journal, {RoundCommitted: "round", Evaluated: "version"})
    assert found == {RoundCommitted: {1, 2}, Evaluated: {7}}
    assert numbers(tmp_path / "none.jsonl", {Evaluated: "version"}) == {Evaluated: set()}
    assert newest(tmp_path / "none.jsonl", Evaluated, "version") == -1
