"""Errors in code of the user's own, wherever muster calls it: the run ends, and names the line."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import pytest

from muster.common.causes import OWN_CODE_FAILED
from muster.common.config import validate
from muster.common.errors import ConfigError, RunFailed
from muster.emulator.scenario.scenario import Scenario
from muster.server.aggregators.contract import Aggregator
from muster.server.aggregators.fedavg import FedAvg
from muster.server.rounds.modes.synchronous import Synchronous
from muster.simulation.whole_run import simulate_run


def fails(*given: Any, **named: Any) -> NoReturn:
    raise AttributeError("no attribute 'exmples'")


class Weight(FedAvg):
    def weight(self, *given: Any) -> float:
        fails()


class WrongImport(FedAvg):
    def weight(self, *given: Any) -> float:
        import no_such_module  # type: ignore[import-not-found]

        return float(no_such_module.weight)


class Normaliser(FedAvg):
    def normaliser(self, *given: Any) -> float:
        fails()


class AtClose(FedAvg):
    weights = "at-close"

    def weigh(self, *given: Any) -> Any:
        fails()


class Closing(Synchronous):
    def completion(self, *given: Any) -> Any:
        fails()


def server(rule: type[Aggregator]) -> dict[str, Any]:
    return {"server": {"rounds": 2, "aggregator": f"{__name__}:{rule.__name__}"}}


CASES: dict[str, type[Aggregator]] = {
    rule.__name__: rule for rule in (Weight, WrongImport, Normaliser, AtClose)
}


def ended(folder: Path, **sections: Any) -> dict[str, Any]:
    """How a run in virtual time has ended."""
    values: dict[str, Any] = {
        "name": "own",
        "seed": 3,
        "task": {"name": "linear", "dimension": sections.pop("dimension", 5)},
        "server": {"rounds": 2},
        "groups": [{"name": "dev", "count": 3}],
        **sections,
    }
    scenario = validate(Scenario, values, "test")
    with suppress(RunFailed):
        simulate_run(scenario, folder)
    lines = (folder / "journal.jsonl").read_text().splitlines()
    (end,) = [event for event in map(json.loads, lines) if event["event"] == "ended"]
    return end  # type: ignore[no-any-return]


@pytest.mark.parametrize("dimension", [5, 30_000], ids=["in messages", "in bulk"])
@pytest.mark.parametrize("rule", CASES.values(), ids=CASES)
def test_an_error_in_an_own_rule_ends_the_run_with_its_line(
    tmp_path: Path, rule: type[Aggregator], dimension: int
) -> None:
    assert_named(ended(tmp_path / "run", **server(rule), dimension=dimension))


def test_one_that_comes_while_the_scenario_is_read_refuses_it(tmp_path: Path) -> None:
    mode = {"rounds": 2, "mode": f"{__name__}:Closing"}
    with pytest.raises(ConfigError, match=rf"test: {OWN_CODE_FAILED}: .*{__file__}, line \d+, in"):
        ended(tmp_path / "run", server=mode)


def assert_named(end: dict[str, Any]) -> None:
    """The end names the line of this file that failed."""
    assert end["status"] == "failed"
    assert end["detail"].startswith(OWN_CODE_FAILED)
    assert f"{__file__}, line " in end["detail"]
    assert "\n" not in end["detail"]
