"""Traces of faults in a ledger: what was entered with a commit, whenever it is read."""

from pathlib import Path

import pytest

from muster.emulator.records.fault_traces import LedgerTraces
from muster.server.account.ledger import Ledger
from muster.server.account.rows import AnswerRow, ContributionRow, RoundRow
from muster.server.account.run_rows import MemberRow
from muster.server.account.transaction import PendingTransaction

CLIENTS = ("a", "b")


class Book:
    """A ledger that a test writes commit by commit."""

    def __init__(self, path: Path) -> None:
        self.ledger = Ledger(path)
        members = [MemberRow(name, "g", place, 10, True, None) for place, name in enumerate("ab")]
        self.ledger.begin("run", members, 0.0, 2, {})
        self.traces = LedgerTraces(path)
        self.round = 0

    def commit(self, *updates: ContributionRow, answers: tuple[AnswerRow, ...] = ()) -> None:
        self.round += 1
        times = 0.0, 0.0, 0.0
        counts = 2, 2, 2, None, None, None, None, None, None, None, None, 0, 0
        row = RoundRow(self.round, 0, 0, "empty", *counts, *times)
        self.ledger.commit(row, answers, PendingTransaction(contributions=list(updates)))

    def entered(self, round: int | None) -> list[tuple[int, str, str, list[tuple[str, str]]]]:
        found = self.traces.entered(round, CLIENTS)
        return [(call, client, t.decision, list(t.updates)) for call, client, t in found]


@pytest.fixture
def book(tmp_path: Path) -> Book:
    return Book(tmp_path / "ledger.sqlite")


def update(call: int, client: str, outcome: str, reason: str | None = None) -> ContributionRow:
    sizes = 10, 1.0, 8, 8, 0, None, None, None
    return ContributionRow(call, client, call, 1, 0, 0, None, *sizes, outcome, reason, 0.0)


def answer(
    round: int, client: str, entered: int | None = None, modelled_s: float | None = None
) -> AnswerRow:
    state = None, None, None
    return AnswerRow(round, client, "accept", None, *state, modelled_s, 0, 0.0, entered=entered)


def test_rows_belong_to_the_commit_that_entered_them_whatever_their_call(book: Book) -> None:
    book.commit(update(1, "a", "folded"), answers=(answer(1, "a"), answer(1, "b")))
    first = book.entered(1)
    book.commit(update(2, "a", "folded"), answers=(answer(2, "a"),))
    book.commit(update(1, "b", "late", "stale"), update(1, "a", "duplicate"))
    assert first == [(1, "a", "accept", [("folded", "")]), (1, "b", "accept", [])]
    assert book.entered(1) == first  # read again when there is more
    assert book.entered(2) == [(2, "a", "accept", [("folded", "")])]
    assert book.entered(3) == [
        (1, "a", "accept", [("duplicate", "")]),
        (1, "b", "accept", [("late", "stale")]),
    ]


def test_an_answer_that_came_late_belongs_to_a_later_commit(book: Book) -> None:
    book.commit(answers=(answer(1, "a"),))
    book.commit(answers=(answer(1, "b", entered=2), answer(2, "a")))
    assert [row[:2] for row in book.entered(1)] == [(1, "a")]
    assert [row[:2] for row in book.entered(2)] == [(1, "b"), (2, "a")]


def test_rows_after_the_newest_commit_are_found_at_the_end(book: Book) -> None:
    book.commit(update(1, "a", "folded"))
    assert book.entered(None) == []
    rest = PendingTransaction(contributions=[update(1, "b", "dropped", "round closed")])
    book.ledger.note(rest)
    assert book.entered(None) == [(1, "b", "accept", [("dropped", "round closed")])]
    assert book.entered(1) == [(1, "a", "accept", [("folded", "")])]


def test_only_an_update_that_has_counted_comes_once_more(book: Book) -> None:
    book.commit(update(1, "a", "folded"))
    book.commit(update(1, "a", "late", "round closed"), update(1, "b", "late", "round closed"))
    again, late = book.traces.entered(2, CLIENTS)
    assert (again.client, again.trace.earlier) == ("a", [("late", "round closed")])
    assert again.trace.updates == ()
    assert (late.client, late.trace.earlier) == ("b", ())
    assert late.trace.updates == [("late", "round closed")]


def test_the_usual_time_is_the_median_of_the_newest_answers_before(book: Book) -> None:
    # Of 30 answers of a the newest 20 before round 30 took 10 to 29 s; b never worked.
    for round in range(1, 31):
        book.commit(answers=(answer(round, "a", modelled_s=float(round)), answer(round, "b")))
    assert book.traces.usual_s(CLIENTS, before=30) == {"a": 19.5}
    assert book.traces.usual_s(CLIENTS, before=3) == {"a": 1.5}
