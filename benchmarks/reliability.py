"""What a fleet survives, and how fast it recovers: numbers of docs/reliability.md.

python benchmarks/reliability.py kills --server 1000 --device 5000 --gateway 200 --supervisor 200
python benchmarks/reliability.py churn --rounds 10000
python benchmarks/reliability.py recovery --times 5

Each prints its numbers while it works, so it may be stopped at any time, and ends with a line of
JSON.
"""

import argparse
import json
import shutil
import sqlite3
import statistics
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

from muster.chaos.killer import PlannedKill, Victim
from muster.chaos.plans import ChaosPlan
from muster.chaos.playing import play
from muster.common.clock import WallClock
from muster.common.config import validate
from muster.emulator import Run, audit, run
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


def kills(arguments: dict[str, Any]) -> dict[Victim, dict[str, int]]:
    """Kill programs of runs in lockstep until there were enough kills of every sort."""
    found: dict[Victim, dict[str, int]] = {
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


# --- churn ---------------------------------------------------------------------------------------

CHURN = {"do": "churn", "share_percent": 30.0, "for_s": 0.5, "when": {"at_s": 1.0, "every_s": 1.0}}
DEADLINE_S = 0.3


def churn(arguments: dict[str, Any]) -> dict[str, Any]:
    """Play one run on the wall clock, while 30 % of the devices die every second for half a second,
    and measure how long a round takes at most."""
    rounds = arguments["rounds"]
    fleet = scenario(
        "churn",
        clock={"kind": "wall", "round_s": DEADLINE_S},
        server={
            "rounds": rounds,
            "evaluate_every": rounds,
            "deadline_s": DEADLINE_S,
            "heartbeat_s": 0.5,
        },
        groups=[{"name": "dev", "count": 10}],
        faults=[CHURN],
    )

    def show(event: dict[str, Any]) -> None:
        if event["event"] == "round_committed" and event["round"] % 500 == 0:
            say(f"{event['round']} rounds")

    with tempfile.TemporaryDirectory(prefix="muster-churn-") as work:
        done = run(fleet, out=Path(work) / "run", report=False, show=show)
        table = done.ledger.rounds
        [fault] = done.summary["faults"]
        return {
            "completed": done.status == "completed",
            "audited": audit(done.folder).agrees,
            "rounds": len(table),
            "empty": int((table["folded"] == 0).sum()),
            "updates": int(table["folded"].sum()),
            "deaths": len(list(done.ledger.events("restarted"))),
            "times": fault["applied"],
            "verified": fault["verified"],
            "longest_s": float(table["seconds"].max()),
        }


# --- time to recover -----------------------------------------------------------------------------

FAULTS: list[dict[str, Any]] = [
    *({"do": do, "target": {"count": 1}, "for_s": 0.3} for do in ("crash", "stop", "pause")),
    {"do": "restart", "target": {"count": 1}},
    {"do": "churn", "share_percent": 30.0, "for_s": 0.3},
    *(
        {"do": do, "target": {"role": role}, "for_s": 0.3, "name": f"{do}-{role}"}
        for role in ("server", "gateway")
        for do in ("crash", "pause")
    ),
    *(
        {"do": "restart", "target": {"role": role}, "name": f"restart-{role}"}
        for role in ("server", "gateway")
    ),
    *(
        {"do": do, "target": {"count": 1}, "for_s": 0.3}
        for do in ("blackhole", "disconnect", "partition")
    ),
    {"do": "reset", "target": {"count": 1}},
    {"do": "degrade", "factor": 0.2, "target": {"count": 1}, "for_s": 1.0},
]
"""The faults that the supervisor injects. Those inside devices end with a round."""


APART = 100
"""Rounds from one fault to the next, so that each is over before."""


def recovery(arguments: dict[str, Any]) -> dict[str, Any]:
    """Measure the seconds from the heal of each fault to its verification, in one run in lockstep
    in which the faults come by turns."""
    period = APART * len(FAULTS)
    faults = [
        {**each, "when": {"round": 3 + APART * number, "every_rounds": period}}
        for number, each in enumerate(FAULTS)
    ]
    link = {"rtt": "2 ms", "up": "400 kbit/s", "down": "400 kbit/s"}
    fleet = scenario(
        "recovery",
        server={"rounds": period * arguments["times"], "evaluate_every": 1000},
        groups=[{"name": "dev", "count": DEVICES, "link": link}],
        faults=faults,
    )
    with tempfile.TemporaryDirectory(prefix="muster-recovery-") as work:
        done = run(fleet, out=Path(work) / "run", report=False)
        found = {}
        for fault in done.summary["faults"]:
            found[fault["fault"]] = recovered(done, fault["fault"])
            say(f"{fault['fault']}: {found[fault['fault']]}")
    return found


def recovered(done: Run, fault: str) -> dict[str, Any]:
    """The seconds from heal to verification, of all occurrences of a fault."""
    healed, verified = (
        {e["number"]: e["at"] for e in done.ledger.events(f"fault_{state}") if e["fault"] == fault}
        for state in ("healed", "verified")
    )
    seconds = sorted(verified[number] - healed[number] for number in verified)
    return {
        "verified": len(seconds),
        "of": len(healed),
        "median_s": round(statistics.median(seconds), 3) if seconds else None,
        "most_s": round(seconds[-1], 3) if seconds else None,
    }


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
    command = commands.add_parser("churn")
    command.add_argument("--rounds", type=int, default=10_000)
    command = commands.add_parser("recovery")
    command.add_argument("--times", type=int, default=5, help="occurrences of each fault")
    arguments = parser.parse_args()
    found = {"kills": kills, "churn": churn, "recovery": recovery}[arguments.command](
        vars(arguments)
    )
    say(json.dumps({arguments.command: found}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
