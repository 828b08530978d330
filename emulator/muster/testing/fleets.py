"""Fleets for tests: in this process and virtual time, or in real processes. Both run the same
scenarios and leave the same run folder, so one test body serves for both."""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from muster.chaos.run_processes import kill_process, run_processes
from muster.common.config import validate
from muster.common.errors import RunFailed
from muster.common.own_code import use
from muster.emulator.records.account import Account
from muster.emulator.runs import running
from muster.emulator.runs.running import Run
from muster.emulator.scenario.own_code import settle_modules
from muster.emulator.scenario.reading import read_scenario
from muster.emulator.scenario.scenario import Scenario
from muster.simulation.faults import KillAt
from muster.simulation.whole_run import simulate_run

_POLL_S = 0.01
"""Seconds between two reads of the journal of a real run, for kills."""


def twenty_devices(aggregator: object, **sections: Any) -> dict[str, Any]:
    """The settings of a scenario with twenty devices: phones with lives and slow links, and
    gateways, half of which are away for two rounds. All devices learn a linear model.

    Args:
        aggregator: the rule, as in `server.aggregator` of a scenario.
        sections: sections that replace those of the scenario.
    """
    settings: dict[str, Any] = {
        "name": "twenty-devices",
        "seed": 1,
        "task": {"name": "linear", "dimension": 5, "heterogeneity": 1.0, "examples_per_client": 16},
        "training": {"learning_rate": 0.05, "local_steps": 2, "batch_size": 8},
        "server": {"rounds": 8, "deadline_s": 30.0, "aggregator": aggregator},
        "clock": {"round_s": 900},
        "groups": [
            {
                "name": "phones",
                "count": 12,
                "device": {"profile": "phone"},
                "link": {"profile": "3g"},
            },
            {"name": "gateways", "count": 8, "devices_per_process": 4},
        ],
        "faults": [
            {
                "name": "outage",
                "do": "offline",
                "target": {"group": "gateways", "percent": 50},
                "when": {"round": 4},
                "for_rounds": 2,
            }
        ],
    }
    return {**settings, **sections}


class FleetRunner(ABC):
    """Runs scenarios, each in a folder of its own.

    Args:
        folder: where the run folders go.
        home: the folder from which rules are imported that a scenario given as a mapping names.
    """

    def __init__(self, folder: Path, home: Path) -> None:
        self._folder = folder
        self._home = home
        self._runs = 0

    def run(self, scenario: Scenario | Mapping[str, Any] | Path | str, *kills: KillAt) -> Run:
        """Run a scenario and return the run, with its summary and its ledger.

        Args:
            scenario: a scenario, its settings, or the path of its file.
            kills: programs that die within the run, and are started again.

        Raises:
            ConfigError: the scenario is wrong, or such a fleet cannot run it.
            RunFailed: the run failed, or ended before a kill.
        """
        self._runs += 1
        self._folder.mkdir(parents=True, exist_ok=True)
        return self._run(self._read(scenario), self._folder / f"run-{self._runs}", kills)

    def _read(self, scenario: Scenario | Mapping[str, Any] | Path | str) -> Scenario:
        if isinstance(scenario, Scenario):
            return scenario
        if isinstance(scenario, Path | str):
            return read_scenario(Path(scenario))
        settings = dict(scenario)
        settle_modules(settings, self._home / "scenario.toml")
        if "modules" in settings:
            use(settings["modules"])
        return validate(Scenario, settings, "the scenario of the test")

    @abstractmethod
    def _run(self, scenario: Scenario, folder: Path, kills: tuple[KillAt, ...]) -> Run: ...


class SimulatedFleet(FleetRunner):
    """Runs scenarios in this process: virtual time, no sockets, and always the same course."""

    def _run(self, scenario: Scenario, folder: Path, kills: tuple[KillAt, ...]) -> Run:
        simulate_run(scenario, folder, kills)
        summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
        return Run(folder, summary, Account(folder))


class RealFleet(FleetRunner):
    """Runs scenarios over real processes and sockets. If a kill ends a run, the run is resumed."""

    def _run(self, scenario: Scenario, folder: Path, kills: tuple[KillAt, ...]) -> Run:
        left, survivors = list(kills), list[KillAt]()

        def show(event: Mapping[str, Any]) -> None:
            for kill in [kill for kill in left if kill.is_at(event)]:
                left.remove(kill)
                if not _kill(kill.process, folder):
                    survivors.append(kill)

        begin: Callable[..., Run] = partial(running.run, scenario, out=folder)
        while True:
            before = len(left)
            try:
                done = begin(report=False, show=show, show_every_s=_POLL_S)
                break
            except RunFailed:
                if len(left) == before:  # none of these kills ended it
                    raise
                begin = partial(running.resume, folder)
        for kill in [*left, *survivors]:
            raise RunFailed(
                f"{kill.process} was to die at {kill.event} of round {kill.round}, but there was "
                f"{'no such process' if kill in survivors else 'no such event'}"
            )
        return done


def _kill(name: str, folder: Path) -> bool:
    """Kill a process of a real run; return whether there was one."""
    parts = "server" if name == "server" else "device"
    found = [each for each in run_processes(folder) if each.part == parts]
    return any(kill_process(each, folder) for each in found if name in ("server", each.name))
