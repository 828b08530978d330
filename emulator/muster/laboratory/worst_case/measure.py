"""What a schedule is to harm: a number of the model at the end of a run."""

import math
import sqlite3
from pathlib import Path
from typing import NamedTuple

from muster.common.errors import ConfigError
from muster.emulator.records.ledger_file import read_ledger
from muster.emulator.run_folder.folder import LEDGER
from muster.emulator.scenario.scenario import Scenario


class FinalMeasure(NamedTuple):
    """A number of the last version of the model.

    Attributes:
        column: `accuracy` or `loss`.
        group: the group on whose devices it is measured; None: the test set.
    """

    column: str
    group: str | None = None

    def value(self, folder: Path) -> float:
        """The number in the run of a folder; NaN: it has none, as of a model that has diverged."""
        query = f"SELECT {self.column} FROM evaluations ORDER BY version DESC LIMIT 1"
        values: tuple[str, ...] = ()
        if self.group is not None:
            query = (
                f'SELECT {self.column} FROM group_evaluations WHERE "group" = ? '
                f"ORDER BY version DESC LIMIT 1"
            )
            values = (self.group,)
        with read_ledger(folder / LEDGER) as ledger:
            ledger.row_factory = sqlite3.Row
            found = ledger.execute(query, values).fetchone()
        return math.nan if found is None or found[0] is None else float(found[0])

    def harm(self, value: float, without: float) -> float:
        """How much worse a number is than that of the run without a schedule; infinite: the model
        has diverged."""
        if not math.isfinite(value):
            return math.inf
        return without - value if self.column == "accuracy" else value - without


def measure_of(against: str, scenario: Scenario) -> FinalMeasure:
    """The measure that a user has named.

    Raises:
        ConfigError: there is no such measure in the scenario.
    """
    kind, _, name = against.partition(":")
    if kind == "group" and name:
        groups = [group.name for group in scenario.groups]
        if name not in groups:
            raise ConfigError(
                f"--against: expected a group of the scenario ({', '.join(groups)}), found {name!r}"
            )
        return FinalMeasure("loss", name)
    if against not in ("accuracy", "loss"):
        raise ConfigError(f"--against: expected accuracy, loss or group:NAME, found {against!r}")
    return FinalMeasure(against)
