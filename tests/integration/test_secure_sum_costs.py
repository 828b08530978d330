"""What secure sums cost devices: links, batteries and energy count the bytes that they send."""

from typing import Any

import pytest

from muster.common.config import validate
from muster.emulator.planning import plan
from muster.emulator.scenario.scenario import Scenario
from muster.testing import KillAt, SimulatedFleet, assert_same_model

ENTRIES = 17_000
GRID = {"range": 0.5}
BITS_PER_S = 64_000


def settings(secure: dict[str, Any] | None, **group: Any) -> dict[str, Any]:
    return {
        "name": "costs",
        "seed": 7,
        "clock": {"round_s": 3600.0},
        "task": {"name": "linear", "dimension": ENTRIES, "examples_per_client": 4},
        "training": {"learning_rate": 1e-6, "local_steps": 1, "batch_size": 4},
        "server": {"rounds": 2, "minimum": 3, **({} if secure is None else {"secure": secure})},
        "groups": [{"name": "dev", "count": 3, **group}],
    }


LINKS = [
    {"link": {"up": "64 kbit/s", "down": "64 kbit/s"}},
    {"link": {"rtt": "20 ms"}, "shared_link": {"up": "128 kbit/s", "down": "128 kbit/s"}},
]


@pytest.mark.parametrize("group", LINKS, ids=["own links", "a shared link"])
def test_over_links_secure_sums_make_the_model_of_plain_ones(
    group: dict[str, Any], fleet: SimulatedFleet
) -> None:
    plain = fleet.run(settings({**GRID, "plain": True}, **group))
    secure = fleet.run(settings(GRID, **group), KillAt("server", "secure_step", 1, "update"))
    assert_same_model(secure, plain)
    took, took_plain = (run.ledger.answers["modelled_s"].max() for run in (secure, plain))
    assert 0 < took_plain < took < 1.1 * took_plain
    if group is LINKS[0]:
        besides = 4 * 25 + (64 + 82 + 1 + 3 * 4) * 2 + 64 + (82 + 33) * 2 + 33
        assert took == pytest.approx(8 * (2 * 4 * ENTRIES + besides) / BITS_PER_S)


def test_energy_counts_the_bytes_of_secure_sums() -> None:
    joules = []
    for secure in (None, GRID, {}):
        values = settings(secure, **LINKS[0], device={"profile": "phone", "examples_per_s": 1})
        found = plan(validate(Scenario, {**values, "energy": {}}, "test")).groups[0].joules
        assert found is not None
        joules.append(float(found.sum()))
    assert joules[0] < joules[1] < 1.1 * joules[0] < joules[2]
