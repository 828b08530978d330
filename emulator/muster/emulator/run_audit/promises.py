"""What the scenario of a run promises: the configuration of its server, and the files that say what
is planned. All of it follows from the scenario and its seed, without a run."""

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from muster.common.errors import MusterError
from muster.emulator.fleet.masks import layout_of
from muster.emulator.fleet.scenario_faults import ScenarioFaults
from muster.emulator.launch.process_configs import ProcessConfigs
from muster.emulator.planning.plan import plan
from muster.emulator.planning.result import Learning, write_plan
from muster.emulator.run_audit.evidence import Evidence
from muster.emulator.run_folder.folder import SCENARIO
from muster.emulator.scenario.population import write_population
from muster.emulator.scenario.scenario import Scenario
from muster.server.settings.process import ServerProcess

OF_THE_MACHINE = frozenset(
    {"credentials", "host", "port", "metrics_port", "outside", "evaluation", "nursery", "inputs"}
)
"""Settings of the process of the server: where it listens, or what another check compares."""

MOST_STEPS = 10_000_000
"""Most simulated steps, over all devices, for which an audit makes the plan again."""


def prepared_by(config: ServerProcess) -> Mapping[str, Any]:
    """What a nursery has reported of the task, from the configuration that was made of it."""
    return {
        "examples": [member.examples for member in config.population],
        "schema": [tensor.model_dump(exclude_none=True) for tensor in config.schema_],
        "frozen": config.frozen,
        "units": [layer.model_dump() for layer in config.units],
    }


def promised_config(evidence: Evidence, found: ServerProcess) -> ServerProcess | str:
    """The configuration of the server that the scenario gives; a sentence if there is none.

    Args:
        found: the one in the folder, from which it takes what the nursery has reported.
    """
    if isinstance(evidence.planned, str):
        return evidence.planned
    with tempfile.TemporaryDirectory(prefix="muster-audit-") as scratch:
        folder = Path(scratch)
        (folder / "setup").mkdir()
        shutil.copy(evidence.folder / SCENARIO, folder / SCENARIO)
        (folder / "setup/run").write_text(found.run)
        try:
            made = ProcessConfigs(evidence.planned, folder).server(prepared_by(found))
            return ServerProcess.from_json(made.to_json())
        except (MusterError, ValueError, KeyError, IndexError) as error:
            return f"the configuration of the server cannot be made again: {error}"


def planned_files(evidence: Evidence, config: ServerProcess, folder: Path) -> None:
    """Write population.csv, and plan.csv if the run has one, into a folder.

    Raises:
        ConfigError: the scenario cannot be planned.
    """
    scenario = evidence.planned
    assert isinstance(scenario, Scenario)
    if not (evidence.folder / "plan.csv").exists():
        write_population(folder / "population.csv", evidence.residents, None)
        return
    prepared = prepared_by(config)
    learning = Learning.with_layout(scenario, prepared["examples"], layout_of(prepared))
    write_plan(folder, plan(scenario, learning))


def promised_faults(evidence: Evidence) -> ScenarioFaults | None:
    """The faults of the scenario with their targets and times; None if it has none."""
    scenario = evidence.planned
    if isinstance(scenario, str) or not scenario.faults:
        return None
    return ScenarioFaults.of(scenario, evidence.residents)
