"""A pytest kit for people who develop an aggregator (docs/testing.md).

It may import all of muster. What it offers is imported when it is asked for, because pytest loads
the plug-in of this package in every session. It needs the extra `testing`.
"""

from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from muster.simulation.faults import KillAt
    from muster.testing.assertions import (
        assert_expected,
        assert_never_counted_twice,
        assert_participation,
        assert_recovers,
        assert_same_model,
    )
    from muster.testing.fleets import RealFleet, SimulatedFleet, twenty_devices
    from muster.testing.laws import LAWS, RuleLaws
    from muster.testing.references import ReferenceRound, agrees_with, assert_golden, benchmark_rule
    from muster.testing.rule_run import RuleRun
    from muster.testing.strategies import availability, cohorts, contributions, courses
    from muster.testing.worst_cases import worst_case

__all__ = [
    "LAWS",
    "KillAt",
    "RealFleet",
    "ReferenceRound",
    "RuleLaws",
    "RuleRun",
    "SimulatedFleet",
    "agrees_with",
    "assert_expected",
    "assert_golden",
    "assert_never_counted_twice",
    "assert_participation",
    "assert_recovers",
    "assert_same_model",
    "availability",
    "benchmark_rule",
    "cohorts",
    "contributions",
    "courses",
    "twenty_devices",
    "worst_case",
]

_WHERE = {
    "LAWS": "muster.testing.laws",
    "KillAt": "muster.simulation.faults",
    "RealFleet": "muster.testing.fleets",
    "ReferenceRound": "muster.testing.references",
    "RuleLaws": "muster.testing.laws",
    "RuleRun": "muster.testing.rule_run",
    "SimulatedFleet": "muster.testing.fleets",
    "agrees_with": "muster.testing.references",
    "assert_expected": "muster.testing.assertions",
    "assert_golden": "muster.testing.references",
    "assert_never_counted_twice": "muster.testing.assertions",
    "assert_participation": "muster.testing.assertions",
    "assert_recovers": "muster.testing.assertions",
    "assert_same_model": "muster.testing.assertions",
    "availability": "muster.testing.strategies",
    "benchmark_rule": "muster.testing.references",
    "cohorts": "muster.testing.strategies",
    "contributions": "muster.testing.strategies",
    "courses": "muster.testing.strategies",
    "twenty_devices": "muster.testing.fleets",
    "worst_case": "muster.testing.worst_cases",
}


def __getattr__(name: str) -> "Any":
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_WHERE[name]), name)
