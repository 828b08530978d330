"""Random histories, for the mutants that a history finds and not a test of a single module."""

import os
from collections.abc import Iterator

import pytest

from muster.common.errors import ConfigError
from muster.simulation.search import HISTORIES_OF_A_FLEET, Simulator, Unsound, simulator

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]

MOST = 60
"""Seeds, each of another fleet, of which one must find a mutant."""

FIRST = int(os.environ.get("MUSTER_FIRST_FLEET", "0"))


@pytest.fixture(scope="module")
def played() -> Iterator[Simulator]:
    with simulator() as found:
        yield found


def violation(played: Simulator, fleet: int) -> str:
    """What the undisturbed run of a fleet violates, or its first history; empty if nothing."""
    try:
        found = played.play(played.random_plan(fleet * HISTORIES_OF_A_FLEET)).violations
    except ConfigError:  # the fleet is refused by what only a start knows
        return ""
    except Unsound as error:
        return str(error)
    return found[0] if found else ""


def test_random_seeds_violate_nothing(played: Simulator) -> None:
    for number in range(MOST):
        found = violation(played, FIRST + number)
        assert not found, f"after {number + 1} seeds: {found}"
