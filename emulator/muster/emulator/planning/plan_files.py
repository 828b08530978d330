"""Writes a plan as CSV."""

import csv
import io
from pathlib import Path

from muster.common.files import write_atomic
from muster.emulator.planning.result import GroupPlan, Plan
from muster.emulator.scenario.population import write_population

_COLUMNS = ("round", "scenario_s", "group", "enrolled", "called", "available", "accepted",
            "delivered", "late", "battery")  # fmt: skip
_COUNTING = "version", "counted", "stale", "staleness", "largest_staleness", "too_stale"
"""Columns of plan.csv in the modes in which updates may outlive their round."""


def write_plan(folder: Path, plan: Plan) -> None:
    """Write `plan.csv` and `population.csv`."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow([*_COLUMNS, *(_COUNTING if plan.versions is not None else ())])
    for place, time_s in enumerate(plan.times_s):
        for group in plan.groups:
            counts = (group.called, group.available, group.accepted, group.delivered, group.late)
            rows.writerow(
                [place + 1, f"{time_s:.12g}", group.name, group.enrolled]
                + [f"{values[place]:g}" for values in counts]
                + [f"{group.charge[place]:.6g}"]
                + _counted(plan, group, place)
            )
    write_atomic(folder / "plan.csv", text.getvalue().encode())
    write_population(folder / "population.csv", plan.residents, plan.participation())


def _counted(plan: Plan, group: GroupPlan, place: int) -> list[str]:
    """The cells of _COUNTING in a round."""
    counting = group.counting
    if counting is None or plan.versions is None:
        return []
    counts = plan.versions, counting.folded, counting.stale, counting.staleness, counting.largest
    return [str(int(values[place])) for values in (*counts, counting.too_stale)]
