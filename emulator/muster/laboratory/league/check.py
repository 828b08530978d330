"""Plays a random part of a table of models again, and compares: `make league-check`.

The table is league.csv of a league that was played from the scenarios and rules of muster. On a
machine with another fingerprint sums have other roundings, so there accuracies are compared.
"""

import argparse
import csv
import random
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from muster.client.training.local import fingerprint
from muster.common.clock import WallClock
from muster.common.errors import ConfigError
from muster.emulator.comparison.progress import ProgressReporter
from muster.emulator.records.summary import read_summary
from muster.laboratory.league.plan import LeagueRun, make_plan
from muster.laboratory.league.publishing import fingerprint_in
from muster.simulation.workers import IN_MEMORY, Workers

CLOSE = 0.02
"""How far accuracies may be apart on a machine with another fingerprint."""

Row = Mapping[str, str]


def rows_of(table: Path) -> list[Row]:
    """The rows of a table whose runs have ended.

    Raises:
        ConfigError: it is not there, or is none.
    """
    try:
        with table.open(encoding="utf-8", newline="") as file:
            rows: list[Row] = [row for row in csv.DictReader(file) if row["model"]]
    except (OSError, KeyError) as error:
        raise ConfigError(f"{table}: expected a table of a league, found {error!r}") from None
    if not rows:
        raise ConfigError(f"{table}: expected runs with models, found none")
    return rows


def drawn(rows: Sequence[Row], share: float, seed: int) -> list[Row]:
    """A random part of the rows, at least one."""
    return random.Random(seed).sample(rows, max(1, round(share * len(rows))))


def cells_of(rows: Sequence[Row]) -> list[LeagueRun]:
    """The runs of rows, planned anew from the scenarios of muster."""
    found = []
    for row in rows:
        plan = make_plan([row["rule"]], [row["scenario"]], 1, int(row["seed"]))
        found += [cell for cell in plan.cells if cell.run.variant == row["rule"]]
    return found


def differs(row: Row, run: Path, same_machine: bool) -> str:
    """How a run that was played again differs from its row; empty: it does not."""
    summary = read_summary(run)
    model = (summary.get("model_sha256") or "no model")[: len(row["model"])]
    if same_machine:
        return "" if model == row["model"] else f"expected {row['model']}, found {model}"
    accuracy = (summary.get("final") or {}).get("accuracy", float("nan"))
    expected = float(row["accuracy"])
    return "" if abs(accuracy - expected) <= CLOSE else f"expected {expected}, found {accuracy}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m muster.laboratory.league.check", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("page", type=Path, help="the page of the table, beside league.csv")
    parser.add_argument("--share", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    parser.add_argument("--jobs", type=int, default=1)
    asked = parser.parse_args(arguments)
    try:
        rows = drawn(rows_of(asked.page.with_suffix(".csv")), asked.share, asked.seed)
        here = {**fingerprint("cpu"), "threads": 1}  # runs inside one process have one
        same_machine = fingerprint_in(asked.page) == here
        cells = cells_of(rows)
    except (ConfigError, OSError) as error:
        parser.error(str(error))
    with tempfile.TemporaryDirectory(prefix="muster-league-") as scratch:
        folder = Path(scratch)
        reporter = ProgressReporter(cells, cells, asked.jobs, _print)
        if Workers(folder, IN_MEMORY, asked.jobs, WallClock()).run(cells, reporter.ended):
            return 1
        pairs = zip(cells, rows, strict=True)
        wrong = {c.title: w for c, r in pairs if (w := differs(r, folder / c.folder, same_machine))}
    for title, what in wrong.items():
        _print(f"{title}: {what}")
    of = "models" if same_machine else "accuracies, because this machine has another fingerprint"
    _print(f"{len(rows) - len(wrong)} of {len(rows)} runs are the same (--seed {asked.seed}; {of})")
    return 1 if wrong else 0


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
