"""The pytest plug-in of muster: the fixtures `fleet` and `real_fleet`.

pytest loads this module in every session of an environment in which muster is installed, so it
imports nothing of muster until a test asks for a fixture.
"""

import pytest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

    from muster.testing.fleets import RealFleet, SimulatedFleet


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "real_fleet: starts real processes; leave it out with -m 'not real_fleet'"
    )


@pytest.hookimpl(tryfirst=True)  # before pytest selects by markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that use a real fleet."""
    for item in items:
        if "real_fleet" in getattr(item, "fixturenames", ()):
            item.add_marker("real_fleet")


@pytest.fixture
def fleet(tmp_path: "Path", request: pytest.FixtureRequest) -> "SimulatedFleet":
    """A fleet in this process, in virtual time: `fleet.run(scenario, *kills)`."""
    from muster.testing.fleets import SimulatedFleet

    return SimulatedFleet(tmp_path, request.config.rootpath)


@pytest.fixture
def real_fleet(tmp_path: "Path", request: pytest.FixtureRequest) -> "RealFleet":
    """The same over real processes and sockets."""
    from muster.testing.fleets import RealFleet

    return RealFleet(tmp_path, request.config.rootpath)
