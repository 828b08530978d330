"""The worst case of a rule, for tests."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from muster.laboratory.worst_case.finding import WorstCase, worst_of


def worst_case(
    scenario: Path | str,
    *,
    budget: float = 0.1,
    against: str = "loss",
    family: str | None = None,
    runs: int = 40,
    seed: int = 1,
    settings: Sequence[str] = (),
) -> WorstCase:
    """Search the worst schedule of absences, as `muster worst` does, inside the test.

    The result is the same in every session. With `harm` and `words`, a test says what a rule must
    withstand: `assert worst_case(SCENARIO, against="accuracy").harm < 0.05`.

    Args:
        scenario: the file of a scenario.
        family: the kind of schedules; None: groups if the scenario has several, else outages.
        settings: `key=value` as for `--set`.

    Raises:
        ConfigError: the question has no answer.
    """
    with tempfile.TemporaryDirectory(prefix="muster-worst-") as scratch:
        found, _ = worst_of(
            Path(scenario),
            budget=budget,
            against=against,
            family=family,
            runs=runs,
            seed=seed,
            settings=settings,
            out=Path(scratch) / "search",
            processes=1,
        )
    return found
