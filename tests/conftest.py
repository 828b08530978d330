"""Settings that all tests share."""

import os
import signal

import pytest
from hypothesis import HealthCheck, settings

# There is no deadline per example, because a test must not depend on the machine's speed. Examples
# are derived from the test itself, so that a failure on one machine is a failure on every machine.
# `make test-fast` takes the profile `fast`.
settings.register_profile(
    "muster", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("fast", settings.get_profile("muster"), max_examples=20)
settings.load_profile("muster")

# A shell starts commands in the background with SIGINT ignored, and programs inherit that. The
# tests that interrupt a program need the default.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the soak tests. They are long, and shorter tests cover the same code; `make soak` runs
    them."""
    if os.environ.get("MUSTER_SOAK") == "1":
        return
    for item in items:
        if item.get_closest_marker("soak"):
            item.add_marker(pytest.mark.skip(reason="long: make soak"))
