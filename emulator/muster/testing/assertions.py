"""Assertions about runs, in the words of the field. Each message says what was expected and what
was found."""

from typing import Any

from muster.common.config import validate
from muster.emulator.expectations.settings import Expectation
from muster.emulator.records.fact_values import FactValues
from muster.emulator.records.fault_windows import fault_windows, occurrences_of
from muster.emulator.records.judging import judge, judgement_text
from muster.emulator.runs.running import Run

_ACCOUNTED = ["folded", "weight_sum", "normaliser", "loss"]
"""Columns of a round in the ledger in which two runs with different models differ first."""


def assert_expected(run: Run, that: str, **when: Any) -> None:
    """Assert a condition on the ledger of a run, as `[[expect]]` of a scenario does.

    Args:
        that: for example "participation >= 0.5" (docs/expectations.md).
        when: one of `always`, `before`, `during`, `after` and `within`; absent: the last round.
    """
    expectation = validate(Expectation, {"that": that, **when}, "the expectation")
    windows = fault_windows(occurrences_of(run.ledger))
    judgement = judge(expectation, FactValues(run.ledger), windows)
    assert judgement.holds, f"expected {judgement_text(judgement.as_json())}"


def assert_same_model(run: Run, other: Run) -> None:
    """Assert that two runs end with the same model, bit by bit."""
    found, expected = (each.summary["model_sha256"] for each in (run, other))
    if found == expected:
        return
    rows, others = (each.ledger.rounds[["round", *_ACCOUNTED]] for each in (run, other))
    both = min(len(rows), len(others))
    equal = rows[:both].eq(others[:both]) | (rows[:both].isna() & others[:both].isna())
    differing = rows["round"][:both][~equal.all(axis="columns")].tolist()
    where = (
        f"their ledgers differ first in round {differing[0]}"
        if differing
        else (
            f"their ledgers agree in the first {both} rounds; one has {len(rows)}, the other "
            f"{len(others)}"
        )
    )
    raise AssertionError(
        f"expected the same model, found {found[:12]} in {run.folder} and {expected[:12]} in "
        f"{other.folder}; {where}"
    )


def assert_participation(
    run: Run, *, at_least: float = 0.0, at_most: float = 1.0, group: str | None = None
) -> None:
    """Assert which share of the enrolled devices of a run, or of a group, counted in a round on
    average."""
    fact = "participation" if group is None else f'participation("{group}")'
    assert_expected(run, f"mean({fact}) >= {at_least}", always=True)
    assert_expected(run, f"mean({fact}) <= {at_most}", always=True)


def assert_never_counted_twice(run: Run) -> None:
    """Assert that no update of a call was folded more than once."""
    assert_expected(run, "counted_twice == 0", always=True)


def assert_recovers(
    run: Run, *, within: int, that: str = "loss <= before", fault: str | None = None
) -> None:
    """Assert that a run recovers from a fault.

    Args:
        within: the number of rounds after the fault in one of which the condition must hold.
        that: the condition, in which `before` is the value before the fault.
        fault: the name of the fault; None: each fault of the scenario.
    """
    assert_expected(run, that, within={"rounds": within, "fault": fault})
