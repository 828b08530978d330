"""The cost of correcting for selection: propensities of 2,000 packed devices are learned during the
run.

python benchmarks/selection.py            # a table, benchmarks/out/selection.json (three minutes)
python benchmarks/selection.py --quick    # 400 devices, fewer rounds

There are two measurements. The first runs rounds with fedavg and with fedipw alternately; the
devices do exactly the same in both. The second runs the rule alone: it weighs the rounds of the
ledger again, and this time is compared with the time that the rounds took.
"""

import argparse
import json
import statistics
import tempfile
import time
from itertools import groupby
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def rounds_of(rule: str, devices: int, rounds: int) -> tuple[list[float], float]:
    """Return the seconds of every round, and the seconds to weigh all of them again."""
    from muster.emulator import run
    from muster.studies.fedipw.fleet import RULES, scenario

    with tempfile.TemporaryDirectory() as folder:
        read = scenario(devices, rounds, 1, RULES[rule])
        done = run(read, out=Path(folder) / "run")
        seconds = [float(value) for value in done.ledger.rounds["seconds"]]
        return seconds, replayed(read, Path(folder) / "run") if rule == "fedipw" else 0.0


def replayed(read: Any, folder: Path) -> float:
    """Return the seconds that the rule takes to weigh all rounds of a ledger."""
    from muster.emulator.planning.server_view import population_of
    from muster.emulator.scenario.population import population
    from muster.server.account.ledger import Ledger
    from muster.server.aggregators import Cohort, Contribution
    from muster.server.knowledge.participation import ParticipationHistory, Seen

    read.server.aggregator.prepare()  # as the server does while the fleet assembles
    rule, known = read.server.aggregator, population_of(read, population(read))
    state: dict[str, Any] = {}
    participation, seconds = ParticipationHistory(["load"]), 0.0
    for number, rows in groupby(
        Ledger(folder / "ledger.sqlite").participation(), lambda r: r.round
    ):
        seen = [
            Seen(int(known.places([r.client])[0]), r.took_part, json.loads(r.x or "{}"), 0.0)
            for r in rows
        ]
        took_part = [known.clients[row.place] for row in seen if row.took_part]
        began = time.perf_counter()
        participation.enter(seen)
        contributions = [Contribution(client, "device", 20, 0) for client in took_part]
        state = rule.weigh(Cohort(number, contributions, known, participation), state).state
        seconds += time.perf_counter() - began
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path, default=HERE / "out/selection.json")
    chosen = parser.parse_args()
    devices, rounds, pairs = (400, 20, 1) if chosen.quick else (2000, 60, 3)
    found: dict[str, list[float]] = {"fedavg": [], "fedipw": [], "share": []}
    for _ in range(pairs):
        for rule in ("fedavg", "fedipw"):
            seconds, weighing = rounds_of(rule, devices, rounds)
            found[rule].append(1000 * statistics.median(seconds))
            if rule == "fedipw":
                found["share"].append(weighing / sum(seconds))
    print(f"{devices} devices, {rounds} rounds, {pairs} pairs in turn; median ms a round")
    for rule in ("fedavg", "fedipw"):
        print(f"  {rule:8}" + "".join(f"{value:9.1f}" for value in found[rule]))
    ratio = statistics.median(found["fedipw"]) / statistics.median(found["fedavg"])
    print(f"  fedipw / fedavg: {ratio:.3f}")
    shares = ", ".join(f"{100 * share:.1f} %" for share in found["share"])
    print(f"  learning and weighing, of all rounds' time: {shares} (goal: at most 5 %)")
    chosen.out.parent.mkdir(exist_ok=True)
    chosen.out.write_text(json.dumps({"devices": devices, "rounds": rounds, **found}, indent=1))


if __name__ == "__main__":
    main()
