"""Histories of the simulation with kills, power cuts and broken connections, each of which
leaves the folder of an honest server."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

from muster.common.errors import ConfigError
from muster.emulator.run_audit.auditing import results
from muster.simulation.faults import Rogue
from muster.simulation.fleet import scenario_named
from muster.simulation.history import History
from muster.simulation.search import HISTORIES_OF_A_FLEET, Simulator, Unsound


def alarms_of(played: Simulator, number: int) -> Iterator[str]:
    """What an audit finds in the folder that a history leaves: a sentence each.

    Args:
        number: of the fleet, of which one history is played.
    """
    seed = number * HISTORIES_OF_A_FLEET + number % HISTORIES_OF_A_FLEET
    try:
        plan = played.random_plan(seed)
    except (ConfigError, Unsound):
        return  # it cannot be started
    if any(isinstance(fault, Rogue) for fault in plan.faults):
        return  # its device does not answer as it should
    reference = played.reference(plan.scenario)
    with tempfile.TemporaryDirectory(prefix="muster-honest-") as scratch:
        folder = Path(scratch)
        history = History(reference.programs, folder, plan.seed, plan.faults)
        outcome = history.play()
        (folder / "scenario.toml").write_text(scenario_named(plan.scenario).to_toml())
        if (folder / "ledger.sqlite").exists():
            for check in results(folder):
                for found in check.differences:
                    yield f"seed {seed}, {outcome.status}: {check.title}: {found}"
    history.close()
