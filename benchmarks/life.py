"""The cost of simulated devices: an absent device in a lockstep round, a plan, and churn on the
wall clock.

python benchmarks/life.py             # a table, and benchmarks/out/life.json (about ten minutes)
python benchmarks/life.py --quick     # fewer devices and rounds
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
WARM_UP = 5
NEVER = {"kind": "bernoulli", "probability": 1e-12}
PRESENT = {"name": "present", "count": 10}


def _scenario(rounds: int, *groups: dict[str, Any], **sections: Any) -> Any:
    from muster.common.config import validate
    from muster.emulator.scenario.scenario import Scenario

    server = {"rounds": rounds, "evaluate_every": rounds, **sections.pop("server", {})}
    return validate(
        Scenario,
        {
            "name": "life",
            "task": {"name": "echo:Echo", "parameters": 10_000},
            "training": {"local_steps": 0},
            "server": server,
            "groups": list(groups),
            **sections,
        },
        "benchmark",
    )


def _run(scenario: Any) -> Any:
    from muster.emulator import run

    with tempfile.TemporaryDirectory() as folder:
        done = run(scenario, out=Path(folder) / "run")
        return done.ledger.rounds


def round_ms(scenario: Any) -> float:
    """Return the median milliseconds from one commit to the next."""
    closed = list(_run(scenario)["closed_at"])[WARM_UP:]
    return float(statistics.median(1000 * (after - before) for before, after in pairwise(closed)))


def absence(name: str, rounds: int, count: int, **group: Any) -> dict[str, Any]:
    """Measure how much each of `count` absent devices adds to a round of ten present devices."""
    absent = {"name": "absent", "count": count, "availability": NEVER, **group}
    alone = round_ms(_scenario(rounds, PRESENT))
    together = round_ms(_scenario(rounds, PRESENT, absent))
    each = (together - alone) / count
    return {"what": name, "devices": count, "alone_ms": alone, "together_ms": together,
            "value": each, "unit": "ms an absent device"}  # fmt: skip


def planning(devices: int, rounds: int, name: str, **group: Any) -> dict[str, Any]:
    """Measure the seconds that a plan takes."""
    from muster.common.clock import WallClock
    from muster.emulator.planning import plan
    from muster.emulator.planning.result import Learning

    clock = WallClock()
    scenario = _scenario(rounds, {"name": "g", "count": devices, **group})
    began = clock.monotonic()
    plan(scenario, Learning([20] * devices, 10_000))
    return {"what": f"plan of {devices:,} devices x {rounds:,} rounds, {name}",
            "value": clock.monotonic() - began, "unit": "s"}  # fmt: skip


def churn(rounds: int) -> dict[str, Any]:
    """Measure by how much the longest round on the wall clock exceeds its deadline while devices
    come and go."""
    deadline_s = 3.0
    # One step is one round. With these rates a present device is absent a round later in 30 % of
    # cases.
    group = {
        "name": "churning",
        "count": 50,
        "availability": {"kind": "markov", "mean_up_s": 8.4, "mean_down_s": 3.6},
        "device": {"examples_per_s": 0.5},
    }
    scenario = _scenario(
        rounds,
        group,
        clock={"kind": "wall", "round_s": 1.0},
        server={"deadline_s": deadline_s, "heartbeat_s": 0.5},
    )
    found = _run(scenario)
    return {"what": "50 devices with churn, longest round beyond the deadline", "rounds": rounds,
            "called": float(found["called"].mean()), "folded": float(found["folded"].mean()),
            "value": float(found["seconds"].max()) - deadline_s, "unit": "s"}  # fmt: skip


def main() -> None:
    os.environ["PYTHONPATH"] = str(HERE)
    sys.path.insert(0, str(HERE))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path, default=HERE / "out/life.json")
    options = parser.parse_args()
    scale = 10 if options.quick else 1
    phone: dict[str, Any] = {"device": {"profile": "phone"}}
    markov = {"kind": "markov", "mean_up_s": 1800, "mean_down_s": 600}
    cases: list[Any] = [
        lambda: absence("absent, a process each (goal 0.3)", 200 // scale + WARM_UP, 90),
        lambda: absence("absent phones, a process each", 200 // scale + WARM_UP, 90, **phone),
        lambda: absence("absent, packed (goal 0.05)", 100 // scale + WARM_UP, 1000,
                        devices_per_process=500),
        lambda: absence("absent phones, packed", 100 // scale + WARM_UP, 1000,
                        devices_per_process=500, **phone),
        lambda: churn(30 // scale + 2),
        *(partial(planning, devices // scale, 1000, name, **life)
          for devices in (100_000, 1_000_000)
          for name, life in {"markov": {"availability": markov}, "phones": phone}.items()),
    ]  # fmt: skip
    results = []
    for case in cases:
        found = case()
        results.append(found)
        print(f"{found['what']:<62} {found['value']:>9.4f} {found['unit']}", flush=True)
    options.out.parent.mkdir(exist_ok=True)
    options.out.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
