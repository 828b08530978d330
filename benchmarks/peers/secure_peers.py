"""Compare rounds with secure sums of muster and of Flower's SecAgg+ workflow on this machine.

All have the same neighbours, the same threshold, and the same bits and range of an entry; muster's
exact sums have no range. Flower, muster's grid and muster's exact sums take turns. A ratio is
that of one turn, so that a change in the machine's load falls on both of its sides.

python benchmarks/peers/secure_peers.py                # all cases
python benchmarks/peers/secure_peers.py small large    # some of them
"""

import argparse
import importlib
import json
import os
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from flower_legacy import PeerError, stop_on_signals
from install import installed, python
from run_peers import HERE, run_script, verdict

from muster.common.secure.graph import sharing_of
from muster.common.secure.grid import USUAL_BYTES, bits_for

ENVIRONMENT = "flwr-next"
DROP_OUT, COLLUSION = 0.1, 0.05  # muster's defaults
SYSTEMS: dict[str, dict[str, Any]] = {"grid": {"range": 1.0}, "exact": {}}
GOAL = 1 / 2  # of Flower's time
UNCOUNTED = 3


@dataclass(frozen=True, slots=True)
class Case:
    """One comparison.

    Attributes:
        rounds: Flower's; muster_rounds are more where Flower's take seconds each.
    """

    devices: int
    parameters: int
    rounds: int
    muster_rounds: int


CASES = {
    "small": Case(10, 10_000, 12, 40),
    "large": Case(10, 1_000_000, 6, 6),
    "many": Case(100, 10_000, 1, 10),
}


def measure_flower(case: Case) -> dict[str, Any]:
    sharing = sharing_of(case.devices, DROP_OUT, COLLUSION)
    return run_script(
        str(python(ENVIRONMENT)),
        str(HERE / "flower_secure.py"),
        f"--clients={case.devices}",
        f"--parameters={case.parameters}",
        f"--rounds={case.rounds}",
        f"--shares={sharing.neighbours + 1}",
        f"--threshold={sharing.threshold}",
        f"--bits={bits_for(case.devices, USUAL_BYTES)}",
    )


def measure_muster(case: Case, system: str) -> dict[str, Any]:
    """In a process of its own, which leaves our signal handlers as they are."""
    size = (str(number) for number in (case.devices, case.parameters, case.muster_rounds))
    return run_script(sys.executable, __file__, "--muster", system, *size)


def muster_rounds(system: str, devices: int, parameters: int, rounds: int) -> dict[str, Any]:
    secure = {"drop_out": DROP_OUT, "collusion": COLLUSION, **SYSTEMS[system]}
    found: dict[str, Any] = importlib.import_module("rounds").measure(
        devices, parameters, rounds, secure=secure, uncounted=UNCOUNTED
    )
    return found


def run_case(name: str, repeats: int) -> str:
    """All systems in turn; returns the lines of the case in Markdown."""
    case = CASES[name]
    turns = []
    for repeat in range(repeats):
        turn = {"flower": measure_flower(case)}
        turn |= {system: measure_muster(case, system) for system in SYSTEMS}
        turns.append(turn)
        times = ", ".join(f"{of} {run['round_ms_median']:,.0f} ms" for of, run in turn.items())
        load = os.getloadavg()[1]
        print(f"{name} {repeat + 1}: {times}; load {load:.1f}", file=sys.stderr, flush=True)
    return "\n".join(line(case, turns, system) for system in SYSTEMS)


def line(case: Case, turns: Sequence[dict[str, dict[str, Any]]], system: str) -> str:
    """The medians over the turns of one kind of muster's sums beside Flower's."""
    ms, up = (
        {of: [turn[of][key] for turn in turns] for of in ("flower", system)}
        for key in ("round_ms_median", "bytes_up_of_device")
    )
    sent = {of: statistics.median(values) for of, values in up.items()}
    parts = [own / theirs for own, theirs in zip(ms[system], ms["flower"], strict=True)]
    cells = [
        f"{case.devices} x {case.parameters:,}",
        system,
        f"{statistics.median(ms['flower']):,.0f}",
        f"{statistics.median(ms[system]):,.0f}",
        f"{statistics.median(parts):.2g} ({min(parts):.2g} to {max(parts):.2g})",
        verdict(statistics.median(parts) <= GOAL),
        f"{sent['flower']:,.0f}",
        f"{sent[system]:,.0f}",
        verdict(sent[system] < sent["flower"]),
    ]
    return f"| {' | '.join(cells)} |"


def main() -> int:
    if sys.argv[1:2] == ["--muster"]:
        system, *size = sys.argv[2:]
        print(json.dumps(muster_rounds(system, *map(int, size))))
        return 0
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    if unknown := set(options.cases) - set(CASES):
        parser.error(f"no case {', '.join(sorted(unknown))}; there are {', '.join(CASES)}")
    if not installed(ENVIRONMENT):
        print(f"{ENVIRONMENT}: run benchmarks/peers/install.py first", file=sys.stderr)
        return 1
    stop_on_signals()
    heads = (
        *("devices x parameters", "muster's sums", "Flower, ms a round", "muster, ms a round"),
        *("muster / Flower", f"<= {GOAL:g}", "Flower sends", "muster sends", "fewer bytes"),
    )
    print(f"| {' | '.join(heads)} |\n|---|---|--:|--:|--:|---|--:|--:|---|", flush=True)
    try:
        for name in options.cases or CASES:
            print(run_case(name, options.repeats), flush=True)
    except PeerError as failure:
        print(failure, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
