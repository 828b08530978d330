"""What a fleet survives: the numbers of docs/reliability.md.

python benchmarks/reliability.py kills --server 1000 --device 5000 --gateway 200 --supervisor 200
python benchmarks/reliability.py churn --rounds 10000
python benchmarks/reliability.py recovery
python benchmarks/reliability.py memory --rounds 100000
python benchmarks/reliability.py restart --devices 100000 --contributions 1000000

Each prints its numbers while it works, so it may be stopped at any time, and ends with a line of
JSON.
"""

import argparse
import json
import shutil
import sqlite3
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

from muster.common.clock import WallClock
from muster.common.config import validate
from muster.emulator.chaos.killer import PlannedKill, Victim
from muster.emulator.chaos.plans import ChaosPlan
from muster.emulator.chaos.playing import play
from muster.emulator.scenario.scenario import Scenario

CLOCK = WallClock()

KILLS_A_RUN: dict[Victim, int] = {"server": 50, "device": 500, "gateway": 50, "supervisor": 10}
ROUNDS_A_KILL: dict[Victim, float] = {"server": 3, "device": 0.5, "gateway": 4, "supervisor": 3}
DEVICES = 4


def scenario(name: str, **sections: Any) -> Scenario:
    """A small fleet in lockstep, whose devices have state that must survive."""
    feedback = {"compression": {"kind": "top-k", "ratio": 0.4}}
    values = {
        "name": name,
        "task": {"name": "linear", "dimension": 5, "heterogeneity": 1.0},
        "training": {"learning_rate": 0.05, "local_steps": 2, "batch_size": 8},
        "groups": [{"name": "dev", "count": DEVICES, "link": feedback}],
        "launch": {"restarts": 1_000_000, "own_core": False},
    }
    return validate(Scenario, {**values, **sections}, "benchmark")


# --- kills ---------------------------------------------------------------------------------------


def kills(arguments: dict[str, Any]) -> dict[str, Any]:
    """Kill programs of runs in lockstep until there were enough kills of every sort."""
    found = {
        victim: dict.fromkeys(("kills", "runs", "completed", "same", "lost", "doubled"), 0)
        for victim in KILLS_A_RUN
    }
    # By turns, so that there are some of every sort if the command is stopped early.
    while left := [victim for victim in found if found[victim]["kills"] < arguments[victim]]:
        for victim in left:
            sums = found[victim]
            wanted = min(arguments[victim] - sums["kills"], KILLS_A_RUN[victim])
            for key, number in killed_run(victim, wanted, seed=sums["runs"]).items():
                sums[key] += number
            say(f"{victim}: {sums}")
    return found


def killed_run(victim: Victim, wanted: int, seed: int) -> dict[str, int]:
    """Play one run in which one sort of program is killed again and again."""
    random, apart = Random(f"{victim} {seed}"), ROUNDS_A_KILL[victim]
    planned = [
        PlannedKill(victim, 2 + int(number * apart), random.randint(0, 10))
        for number in range(wanted)
    ]
    rounds = planned[-1].round + 20
    link = {"profile": "unshaped", "compression": {"kind": "top-k", "ratio": 0.4}}
    groups = {"groups": [{"name": "dev", "count": DEVICES, "link": link}]}
    fleet = scenario(
        f"kills-{victim}",
        seed=seed,
        server={"rounds": rounds, "evaluate_every": 100, "aggregator": "agnostic"},
        **(groups if victim == "gateway" else {}),
    )
    with tempfile.TemporaryDirectory(prefix="muster-kills-") as work:
        folder = Path(work) / "play"
        outcome = play(ChaosPlan(seed, fleet, planned, 0, 0), folder, CLOCK)
        for violation in outcome.violations:
            say(f"  violates: {violation}")
        folded, different = counted(folder / "run")
        if outcome.violations:
            shutil.copytree(folder, Path(tempfile.mkdtemp(prefix="muster-violation-")) / "play")
    return {
        "kills": outcome.kills[victim],
        "runs": 1,
        "completed": int(not outcome.violations),
        "same": int(outcome.same),
        "lost": rounds * DEVICES - different,
        "doubled": folded - different,
    }


def counted(run: Path) -> tuple[int, int]:
    """The number of updates that count, and how many calls they answer."""
    query = "SELECT count(*), count(DISTINCT call_round || ' ' || client) FROM contributions "
    with closing(sqlite3.connect(run / "ledger.sqlite")) as ledger:
        folded, different = ledger.execute(f"{query} WHERE outcome = 'folded'").fetchone()
    return int(folded), int(different)


# --- the command ---------------------------------------------------------------------------------


def say(line: str) -> None:
    print(line, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("kills")
    for victim in KILLS_A_RUN:
        command.add_argument(f"--{victim}", type=int, default=0)
    arguments = parser.parse_args()
    found = {"kills": kills}[arguments.command](vars(arguments))
    say(json.dumps({arguments.command: found}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
