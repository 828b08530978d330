"""The report of runs with secure aggregation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from muster.emulator.records.account import Account
from muster.emulator.records.summary import outline
from muster.emulator.report import secure_sums

if TYPE_CHECKING:
    from tests.unit.emulator.conftest import RunFolder


def step(round: int, attempt: int) -> dict[str, Any]:
    return {"event": "secure_step", "round": round, "attempt": attempt, "step": "keys",
            "asked": 3, "answered": None}  # fmt: skip


def failed(round: int, answered: int) -> dict[str, Any]:
    return {"event": "secure_sum_failed", "round": round, "step": "update", "answered": answered,
            "needed": 3, "members": 4}  # fmt: skip


def test_rounds_below_the_threshold_are_listed_with_the_reason(run: RunFolder) -> None:
    run.scenario('name = "secure"\n[server.secure]')
    run.clients("a", "b", "c", "d")
    run.round({"a": "folded", "b": "folded", "c": "folded"})
    run.round(dict.fromkeys("abcd", "late: sum missing"))
    run.round(dict.fromkeys("abcd", "folded"))
    # The sum of round 3 failed with a server that was killed, and not with the one that committed.
    run.journal(step(1, 1), step(2, 1), failed(2, 2), step(3, 1), failed(3, 1), step(3, 1))
    with Account(run.commit()) as account:
        found = secure_sums.section(account, outline(account))
    assert found is not None
    assert found.facts == [("attempts", "4"), ("rounds without a sum", "1")]
    assert found.table is not None
    why = "the padded updates of 2 of 4 devices came; 3 are needed"
    assert found.table.rows == [["2", why]]


def test_other_runs_have_no_such_section(run: RunFolder) -> None:
    run.clients("a")
    run.round({"a": "folded"})
    with Account(run.commit()) as account:
        assert secure_sums.section(account, outline(account)) is None
