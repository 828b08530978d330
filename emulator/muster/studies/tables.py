"""The findings of a study as tables: for its page, for the terminal, and as CSV."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from muster.common.files import write_atomic
from muster.emulator.records.summary import clean, number_text
from muster.emulator.report.section import ReportTable
from muster.studies.claims import Claim

MARKS = {True: "✓", False: "✗"}


def write_csv(path: Path, frame: pd.DataFrame) -> None:
    write_atomic(path, frame.to_csv(index=False).encode())


def claims_table(claims: Sequence[Claim]) -> ReportTable:
    """A table with a row for every claim, its numbers and its rule."""
    rows = [
        [
            MARKS[claim.holds],
            clean(claim.claim),
            measured_text(claim),
            clean(claim.expected),
            spread_text(claim),
            seeds_text(claim.seeds),
            "–" if claim.rate is None else str(claim.rate),
            clean(claim.rule),
            clean(claim.why),
        ]
        for claim in claims
    ]
    columns = ["", "claim", "measured", "expected", "interval or margin", "seeds", "held in"]
    columns += ["rule", "why"]
    return ReportTable(columns, rows, words=len(columns), wraps=True)


def measured_text(claim: Claim) -> str:
    measured = claim.measured
    return clean(measured) if isinstance(measured, str) else number_text(measured)


def spread_text(claim: Claim) -> str:
    """For example "0.12 to ∞", "0.9 to 1.1; ± 0.15"."""
    parts = []
    if claim.interval is not None:
        low, high = claim.interval
        ends = (
            "-∞" if low is None else number_text(low),
            "∞" if high is None else number_text(high),
        )
        parts.append(" to ".join(ends))
    if claim.margin is not None:
        parts.append(f"± {claim.margin:g}")
    return "; ".join(parts)


def seeds_text(seeds: Sequence[int]) -> str:
    """For example "101-105", or "3, 7"."""
    if len(seeds) > 2 and list(seeds) == list(range(seeds[0], seeds[0] + len(seeds))):
        return f"{seeds[0]}-{seeds[-1]}"
    return ", ".join(map(str, seeds))


def frame_table(frame: pd.DataFrame) -> ReportTable:
    """The frame as text: four significant digits, and a dash for missing values."""
    numbers = [pd.api.types.is_numeric_dtype(frame[column]) for column in frame]
    words = numbers.index(True) if True in numbers else len(numbers)
    rows = [[_cell(value) for value in row] for row in frame.itertuples(index=False)]
    return ReportTable([clean(column) for column in frame], rows, words=words)


def _cell(value: object) -> str:
    if value is None or value is pd.NA:
        return "–"
    if isinstance(value, float):
        return number_text(value)
    return clean(value)
