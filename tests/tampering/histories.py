"""Histories of the simulation with kills, power cuts, broken connections and hostile devices, each
of which leaves the folder of an honest server."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

from muster.emulator.run_audit.auditing import results
from muster.simulation.fleet import scenarios
from muster.simulation.history import History
from muster.simulation.search import Simulator, simulator


def false_alarms(first: int, number: int) -> Iterator[str]:
    """Play histories, and yield what an audit finds in their folders: a sentence each."""
    with simulator() as played:
        for seed in range(first, first + number):
            yield from alarms_of(played, seed)


def alarms_of(played: Simulator, seed: int) -> Iterator[str]:
    """What an audit finds in the folder that the history of a seed leaves."""
    plan = played.random_plan(seed)
    reference = played.reference(plan.scenario)
    with tempfile.TemporaryDirectory(prefix="muster-honest-") as scratch:
        folder = Path(scratch)
        history = History(reference.programs, folder, plan.seed, plan.faults)
        outcome = history.play()
        (folder / "scenario.toml").write_text(scenarios()[plan.scenario].to_toml())
        if (folder / "ledger.sqlite").exists():
            for check in results(folder):
                for found in check.differences:
                    where = f"seed {seed}, {plan.scenario}, {outcome.status}"
                    yield f"{where}: {check.title}: {found}"
    history.close()
