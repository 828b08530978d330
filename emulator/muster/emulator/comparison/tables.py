"""Writes a comparison: tables for the terminal and comparison.md, with units, decimals and
intervals, and numbers for programs."""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from muster.common.files import write_atomic
from muster.emulator.comparison.outcome import METRIC, NOT_RUN
from muster.emulator.comparison.run_set import ENDED
from muster.emulator.records.summary import clean, number_text, percent_text
from muster.emulator.records.tabular import Table, aligned, markdown

if TYPE_CHECKING:
    from muster.emulator.comparison.comparison import Comparison

Unit = tuple[float, str]
"""The divisor of a value, and the unit of the quotient."""


@dataclass(frozen=True, slots=True)
class Column:
    """The format of a measure.

    Attributes:
        unit: returns the unit for the size of a mean.
        places: returns the number of decimals for the size of a number in its unit.
        difference: the unit of a difference, if it is another.
    """

    title: str
    unit: Callable[[float], Unit] = lambda most: (1.0, "")
    places: Callable[[float], int] = lambda most: 1
    difference: str = ""


def cell(row: Mapping[Any, Any], column: Column, runs: int, signed: bool) -> str:
    """For example "95.1 ± 0.8 %", and if some of `runs` have no value, how many have one."""
    if not row["n"]:
        return f"– (0 of {runs})" if runs > 1 else "–"
    mean, half = row["mean"], row["high"] - row["mean"]
    per, unit = column.unit(abs(mean))
    if signed and column.difference:
        unit = column.difference
    places = column.places(max(abs(mean), 0 if math.isnan(half) else half) / per)
    width = "–" if math.isnan(half) else f"{half / per:.{places}f}"
    text = f"{mean / per:{'+' if signed else ''}.{places}f} ± {width}{unit and f' {unit}'}"
    return text if row["n"] == runs else f"{text} ({row['n']} of {runs})"


def _bytes(most: float) -> Unit:
    for power, unit in ((3, "GiB"), (2, "MiB"), (1, "KiB")):
        if most >= 1024**power:
            return 1024.0**power, unit
    return 1.0, "B"


def _joules(most: float) -> Unit:
    for per, unit in ((1e6, "MJ"), (1e3, "kJ")):
        if most >= per:
            return per, unit
    return 1.0, "J"


def _grams(most: float) -> Unit:
    return (1e3, "kg") if most >= 1e3 else (1.0, "g")


def _seconds(most: float) -> Unit:
    return (1.0, "s") if most < 600 else (60.0, "min") if most < 7200 else (3600.0, "h")


def _significant(most: float) -> int:
    return 4 if most == 0 else max(0, 3 - math.floor(math.log10(most)))


def _seconds_places(most: float) -> int:
    return 2 if most < 10 else 1


def _percent(most: float) -> Unit:
    return 0.01, "%"


ENDS: Mapping[str, Column] = {
    "accuracy": Column("accuracy", _percent, difference="points"),
    "loss": Column("loss", places=_significant),
    "participation_rate": Column("participation", _percent, difference="points"),
    "bytes": Column("traffic", _bytes),
    "scenario_s": Column("scenario time", _seconds, _seconds_places),
    "energy_j": Column("energy", _joules),
    "wasted_j": Column("wasted energy", _joules),
    "co2e_g": Column("CO₂ equivalent", _grams, _significant),
}
TARGETS: Mapping[str, Column] = {
    "rounds_to_target": Column("rounds"),
    "scenario_s_to_target": Column("scenario time", _seconds, _seconds_places),
    "bytes_to_target": Column("traffic", _bytes),
}


FIGURE = "comparison.png"

_FILES = {
    "comparison.md": "tables",
    FIGURE: "figure",
    "comparison.csv": "runs",
    "comparison.json": "numbers",
}


def tables_of(comparison: "Comparison") -> list[Table]:
    """The tables: final results, cost until the target, and differences to the first variant."""
    means, differences = comparison.means, comparison.differences
    if not means["n"].any():
        return []
    counts = comparison.runs.groupby("variant", sort=False).size()
    against = f"Difference to {clean(counts.index[0])}, between runs of the same seed"
    ends = dict(ENDS)
    for measure in means["measure"].unique():
        if measure.startswith(METRIC):
            ends[measure] = Column(clean(measure.removeprefix(METRIC)), places=_significant)
    found = [
        _table("At the end", means, ends, counts),
        _table("Until the target", means, TARGETS, counts),
    ]
    if counts.max() > 1:
        # A measure that no pair of runs has is left out.
        there = differences[differences.groupby("measure")["n"].transform("max") > 0]
        found += [
            _table(against, there, ends, counts, signed=True),
            _table(f"{against}, until the target", there, TARGETS, counts, signed=True),
        ]
    return [table for table in found if len(table.header) > 1]


def describe(comparison: "Comparison") -> str:
    """Describe a comparison in lines: its tables, failures, and where its files are."""
    lines = [f"{clean(comparison.name)}: {extent(comparison.runs)}", ""]
    for table in tables_of(comparison):
        lines += [table.title, *aligned([table.header, *table.rows]), ""]
    lines += [*problems(comparison.runs), ""] if problems(comparison.runs) else []
    there = [[what, str(comparison.folder / file)] for file, what in _FILES.items()]
    return "\n".join([*lines, *aligned(there)])


def numbers_of(comparison: "Comparison") -> dict[str, Any]:
    """The content of comparison.json; docs/results.md explains every key."""
    return {
        "name": comparison.name,
        "status": comparison.status,
        "runs": _records(comparison.runs),
        "means": _records(comparison.means),
        "differences": _records(comparison.differences),
    }


def write_tables(comparison: "Comparison") -> None:
    """Write comparison.json, comparison.csv and comparison.md."""
    folder, runs = comparison.folder, comparison.runs
    text = json.dumps(numbers_of(comparison), indent=2, ensure_ascii=False, allow_nan=False)
    write_atomic(folder / "comparison.json", f"{text}\n".encode())
    write_atomic(folder / "comparison.csv", runs.to_csv(index=False).encode())
    write_atomic(folder / "comparison.md", _page(comparison).encode())


def _page(comparison: "Comparison") -> str:
    parts = [f"# {clean(comparison.name)}: {extent(comparison.runs)}", f"![]({FIGURE})"]
    for table in [*tables_of(comparison), _every_run(comparison.runs)]:
        parts += [f"## {table.title}", markdown(table)]
    if found := problems(comparison.runs):
        parts.append("\n".join(["```text", *found, "```"]))
    return "\n\n".join(parts) + "\n"


def extent(runs: pd.DataFrame) -> str:
    variants, seeds = runs["variant"].nunique(), runs["seed"].nunique()
    counted = int(runs["status"].isin(ENDED).sum())
    all_there = "" if counted == len(runs) else f"; {counted} of {len(runs)} runs ended well"
    by = "seeds, mean ± 95 % confidence interval" if seeds > 1 else "seed, so without intervals"
    return f"{variants} variants × {seeds} {by}{all_there}"


def _table(
    title: str,
    estimates: pd.DataFrame,
    columns: Mapping[str, Column],
    counts: "pd.Series[int]",
    signed: bool = False,
) -> Table:
    measures = set(estimates["measure"])
    columns = {measure: column for measure, column in columns.items() if measure in measures}
    cells = {(row["variant"], row["measure"]): row for row in estimates.to_dict("records")}
    counted = estimates.groupby("variant", sort=False)["n"].max()
    wanted = {str(variant): int(count) for variant, count in counts.items()}
    partly = any(n < wanted[str(variant)] for variant, n in counted.items())
    rows = []
    for variant, n in counted.items():
        found = [
            cell(cells[variant, measure], column, int(n), signed)
            for measure, column in columns.items()
        ]
        rows.append(
            [clean(variant), *([f"{n} of {wanted[str(variant)]}"] if partly else []), *found]
        )
    header = [
        "variant",
        *(["pairs" if signed else "runs"] if partly and columns else []),
        *(column.title for column in columns.values()),
    ]
    return Table(title, header, rows)


def _every_run(runs: pd.DataFrame) -> Table:
    rows = [
        [
            clean(run["variant"]),
            str(run["seed"]),
            f"[{run['status']}]({run['folder']}/report.html)" if run["rounds"] else run["status"],
            str(run["rounds"]),
            percent_text(run["accuracy"]),
            number_text(run["loss"]),
        ]
        for run in runs.to_dict("records")
    ]
    return Table("Runs", ["variant", "seed", "status", "rounds", "accuracy", "loss"], rows)


def _gist(detail: str) -> str:
    """The first line of a message. If it announces the end of a log, that ends with the cause."""
    first, _, rest = detail.partition("\n")
    advice = ("Nothing has been trained", "Resume the run", "If you change code")
    log = [line.strip() for line in rest.splitlines() if not line.startswith(advice)]
    cause = next((line for line in reversed(log) if line), "")
    return f"{first} … {cause}" if first.endswith(":") and cause else first


def problems(runs: pd.DataFrame) -> list[str]:
    """A line for every run that began but does not count, with the reason, and one line for all
    runs that did not begin."""
    lines = []
    for run in runs[~runs["status"].isin([*ENDED, NOT_RUN])].to_dict("records"):
        detail = _gist(run["detail"]) if isinstance(run["detail"], str) else ""
        why = f": {clean(detail)}" if detail else ""
        lines.append(f"{clean(run['variant'])} seed={run['seed']} {run['status']}{why}")
    waiting = int((runs["status"] == NOT_RUN).sum())
    return [*lines, f"{waiting} of {len(runs)} runs did not begin"] if waiting else lines


def _records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows for JSON, in which NaN and infinity become null."""
    return [
        {
            str(key): None if isinstance(value, float) and not math.isfinite(value) else value
            for key, value in row.items()
        }
        for row in frame.astype(object).to_dict("records")
    ]
