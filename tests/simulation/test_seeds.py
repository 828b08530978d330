"""Random histories, for the mutants that a history finds and not a test of a single module."""

import os
from collections.abc import Iterator

import pytest

from muster.common.errors import ConfigError
from muster.simulation.search import HISTORIES_OF_A_FLEET, Simulator, Unsound, simulator

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]

MOST = 520
"""Fleets, of which one must find a mutant."""

EACH = 3
"""Histories of a fleet that are played, after its undisturbed run."""

FIRST = int(os.environ.get("MUSTER_FIRST_FLEET", "0"))


@pytest.fixture(scope="module")
def played() -> Iterator[Simulator]:
    with simulator() as found:
        yield found


def violation(played: Simulator, fleet: int) -> str:
    """What the undisturbed run of a fleet violates, or one of its histories; empty if nothing."""
    first = fleet * HISTORIES_OF_A_FLEET
    try:
        for seed in range(first, first + EACH):
            if found := played.play(played.random_plan(seed)).violations:
                return found[0]
    except ConfigError:  # the fleet is refused by what only a start knows
        return ""
    except Unsound as error:
        return str(error)
    return ""


def test_random_fleets_violate_nothing(played: Simulator) -> None:
    for fleet in range(FIRST, FIRST + MOST):
        found = violation(played, fleet)
        assert not found, f"fleet {fleet}: {found}"
