"""Settings that every test shares."""

import os

import pytest
from hypothesis import HealthCheck, settings

# No deadlines per example: a test never depends on the machine's speed. Examples are derived from
# the test itself, so that a failure anywhere is a failure everywhere.
settings.register_profile(
    "muster", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("muster")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long tests of what shorter ones test already: `make soak` runs them."""
    if os.environ.get("MUSTER_SOAK") == "1":
        return
    for item in items:
        if item.get_closest_marker("soak"):
            item.add_marker(pytest.mark.skip(reason="long: make soak"))
