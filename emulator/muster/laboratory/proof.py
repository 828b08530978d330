"""Proof that a recorded life says all that matters: drawn runs are played again from their records.

    python -m muster.laboratory.proof --number 1000

Every seed is a history of the simulation: a fleet that is drawn at random, with kills, broken
connections and full disks. Its life record is played without a change, and must end with the same
model, bit for bit.
"""

import argparse
import multiprocessing
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from muster.common.clock import WallClock
from muster.common.errors import ConfigError
from muster.common.files import write_atomic
from muster.common.life_record import write_life
from muster.emulator.records.life import life_of_run
from muster.emulator.run_folder.folder import SCENARIO
from muster.emulator.scenario.reading import read_scenario
from muster.emulator.scenario.recorded_life import trains_from_state
from muster.server.rounds.arrivals import uncertain_calls
from muster.simulation.faults import Fault, PowerCut, Rogue
from muster.simulation.history import History
from muster.simulation.invariants import model_hash
from muster.simulation.programs import Programs, programs_of
from muster.simulation.search import HISTORIES_OF_A_FLEET, Simulator, Unsound, simulator


class PlayedAgain(NamedTuple):
    """A run that was played again.

    Attributes:
        seed: of its history.
        outcome: `same`: with the same model; `other`: with another one; `not played`: the history
            has not completed a run with a round, or its scenario cannot be recorded; `uncertain`:
            with another one, but training has left something on a device that no record has.
        detail: why it was not played, or the two models.
        clock, mode, rule: of its scenario.
        faults: whether faults struck it.
    """

    seed: int
    outcome: str
    detail: str = ""
    clock: str = ""
    mode: str = ""
    rule: str = ""
    faults: bool = False


def replay(found: Simulator, seed: int) -> PlayedAgain:
    """Play the history of a seed, and then its record."""
    plan = found.random_plan(seed)
    programs = found.reference(plan.scenario).programs
    scenario = programs.scenario
    of_run = (scenario.clock.kind, scenario.server.mode.kind, scenario.server.aggregator.kind,
              bool(plan.faults))  # fmt: skip
    if Rogue("forged") in plan.faults:
        return PlayedAgain(seed, "not played", "a hostile device makes its updates up", *of_run)
    with tempfile.TemporaryDirectory(prefix="muster-proof-") as scratch:
        folder = Path(scratch)
        recorded, played = folder / "recorded", folder / "played"
        status, model = _play(programs, recorded, plan.seed, plan.faults)
        if status != "completed":
            return PlayedAgain(seed, "not played", f"its run {status}", *of_run)
        write_atomic(recorded / SCENARIO, scenario.to_toml().encode())
        try:
            record = life_of_run(recorded)
            write_life(folder / "life.csv", record)
            life = {"record": str(folder / "life.csv")}
            changes = [("life", life), ("clock.kind", "rounds"), ("clock.scale", 1.0)]
            again = read_scenario(recorded / SCENARIO, changes)
        except ConfigError as error:
            return PlayedAgain(seed, "not played", str(error), *of_run)
        status, other = _play(programs_of(again, folder / "programs"), played, plan.seed)
        if other == model:
            return PlayedAgain(seed, "same", "", *of_run)
        outlives_round = scenario.server.mode.outlives_round()
        lost = any(isinstance(fault, PowerCut) for fault in plan.faults)
        unknown = lost or uncertain_calls(record, outlives_round)
        outcome = "uncertain" if unknown and trains_from_state(scenario) else "other"
        return PlayedAgain(seed, outcome, f"{status}, {model[:12]} and {other[:12]}", *of_run)


def _play(
    programs: Programs, folder: Path, seed: int, faults: Sequence[Fault] = ()
) -> tuple[str, str]:
    """Play a history in a new folder; return its status, and the SHA-256 of its model."""
    folder.mkdir()
    history = History(programs, folder, seed, faults)
    outcome = history.play()
    # Before it is closed: a server that was killed is unwound then, and writes the model it had.
    model = model_hash(folder) if outcome.status == "completed" else ""
    history.close()
    return "; ".join(outcome.violations) or outcome.status, model


def _batch(seeds: range) -> list[PlayedAgain]:
    """Play the histories of one fleet, if it can be started."""
    with simulator() as found:
        try:
            found.random_plan(seeds[0])
        except (ConfigError, Unsound) as error:
            return [PlayedAgain(seed, "not played", str(error)) for seed in seeds]
        return [replay(found, seed) for seed in seeds]


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m muster.laboratory.proof", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--number", type=int, default=1000, help="runs to play again")
    parser.add_argument("--first", type=int, default=0, help="seed of the first")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    arguments = parser.parse_args()
    clock, size = WallClock(), HISTORIES_OF_A_FLEET
    began, first = clock.monotonic(), arguments.first
    # Some histories complete no run, so more are begun than are needed.
    batches = [range(s, s + size) for s in range(first, first + 3 * arguments.number, size)]
    outcomes, kinds, faults, wall = Counter[str](), set[tuple[str, str]](), 0, 0
    # Each process starts afresh: torch's threads do not survive a fork.
    context = multiprocessing.get_context("spawn")
    with context.Pool(arguments.processes, maxtasksperchild=20) as pool:
        for batch in pool.imap_unordered(_batch, batches):
            for each in batch:
                outcomes[each.outcome] += 1
                if each.outcome == "other":
                    _print(f"seed {each.seed} ({each.mode}, {each.rule}): {each.detail}")
                if each.outcome != "not played":
                    kinds.add((each.mode, each.rule))
                    faults += each.faults
                    wall += each.clock == "wall"
            if outcomes["same"] + outcomes["other"] >= arguments.number:
                pool.terminate()
                break
    played = outcomes["same"] + outcomes["other"] + outcomes["uncertain"]
    _print(
        f"{outcomes['same']} of {played} runs ended with the same model ({wall} on the wall clock, "
        f"{faults} with kills and other faults, {len(kinds)} combinations of mode and rule; "
        f"{outcomes['uncertain']} others, because a device kept what no record has; "
        f"{outcomes['not played']} histories had no run to record) in "
        f"{clock.monotonic() - began:.0f} s"
    )
    return 1 if outcomes["other"] else 0


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
