"""Devices without examples are not called."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import Tensor, nn

from muster.common.config import validate
from muster.common.errors import ConfigError
from muster.emulator.launch.process_configs import ProcessConfigs
from muster.emulator.planning.plan import plan
from muster.emulator.report.plan_tables import warnings
from muster.emulator.scenario.scenario import Scenario
from muster.simulation.programs import programs_of
from muster.tasks.task import Examples, OpenTask


class Sites(OpenTask):
    """Every device has as many examples as the scenario says."""

    def __init__(self, counts: list[int]) -> None:
        self.examples = counts

    def client(self, index: int) -> Examples:
        count = self.examples[index]
        return Examples(np.ones((count, 2), np.float32), np.zeros(count, np.int64))

    def test(self) -> Examples:
        return Examples(np.ones((1, 2), np.float32), np.zeros(1, np.int64))

    def module(self) -> nn.Module:
        return nn.Linear(2, 2)

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        return nn.functional.cross_entropy(outputs, y)


def sites(population: int, seed: int, counts: list[int]) -> OpenTask:
    return Sites(counts)


def scenario(counts: list[int], packs: int = 1, **more: Any) -> Scenario:
    values = {
        "name": "sites",
        "task": {"name": f"{__name__}:sites", "counts": counts},
        "server": {"rounds": 2},
        "groups": [{"name": "a", "count": len(counts), "devices_per_process": packs}],
        **more,
    }
    return validate(Scenario, values, "test")


COUNTS = [0, 3, 0, 0, 5]


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (1, {"a-0001": ["a-0001"], "a-0004": ["a-0004"]}),
        (2, {"a-0000..a-0001": ["a-0001"], "a-0004": ["a-0004"]}),
        (5, {"a-0000..a-0004": ["a-0001", "a-0004"]}),
    ],
)
def test_they_have_no_process_and_may_not_train(
    size: int, expected: dict[str, list[str]], tmp_path: Path
) -> None:
    programs = programs_of(scenario(COUNTS, size), tmp_path / "run")
    members = programs.server.population
    assert [each.client for each in members if each.enrolled] == ["a-0001", "a-0004"]
    packs = {pack.name: [device.client for device in pack.devices] for pack in programs.packs}
    assert packs == expected
    # A pack has the credentials that were made for it before anyone knew what devices hold.
    names = ProcessConfigs(programs.scenario, tmp_path).nursery().packs
    assert names >= len(packs)


def test_a_plan_says_how_many_there_are() -> None:
    found = plan(scenario(COUNTS))
    assert found.groups[0].clients == ["a-0001", "a-0004"]
    assert next(warnings(found)).startswith("warning: 3 of 5 devices have no examples, and are not")
    assert not any("examples" in text for text in warnings(plan(scenario([1] * 5))))


def test_all_of_them_or_a_fault_only_for_them_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no enrolled device of 2 has examples"):
        programs_of(scenario([0, 0]), tmp_path / "all")
    fault = {"do": "crash", "for_s": 1, "when": {"round": 1}}
    for name, right in (("a-0004", True), ("a-0003", False)):
        faulty = scenario(COUNTS, faults=[{**fault, "target": {"names": [name]}}])
        if right:
            programs_of(faulty, tmp_path / name)
            continue
        with pytest.raises(ConfigError, match=r"crash-1 strikes only devices without .*a-0003"):
            programs_of(faulty, tmp_path / name)
