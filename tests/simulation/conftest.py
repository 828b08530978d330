"""Histories of whole runs in virtual time."""

from collections.abc import Iterator

import pytest

from muster.simulation.search import Simulator, simulator


@pytest.fixture(scope="session")
def simulated() -> Iterator[Simulator]:
    with simulator() as found:
        for scenario in ("inline", "large"):  # recorded before any test breaks the code
            found.reference(scenario)
        yield found
