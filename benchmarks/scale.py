"""The limits of one machine: many processes, many packed devices, larger models.

python benchmarks/scale.py                # all: tables, benchmarks/out/scale.json and scale.png
python benchmarks/scale.py processes      # 1,000 processes with one device each train an MLP
python benchmarks/scale.py packed         # 10,000 devices in 10 processes, 10,000 parameters
python benchmarks/scale.py lives          # 100,000 phones in 10 processes; a round calls 1,000
python benchmarks/scale.py sums           # packed devices without and with partial sums
python benchmarks/scale.py sweep          # round time against devices and model size
"""

import argparse
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from processes import children, cpu_s, rollup

HERE = Path(__file__).parent
ECHO = "echo:Echo"

_ENDLESS = 1_000_000
"""The configured rounds of a run. The run is stopped earlier: when the rounds of the case are done
and the memory is measured."""


@dataclass(frozen=True)
class Case:
    """A fleet and its workload. With 0 parameters, the devices train an MLP on synthetic
    regression. A round calls `sampled` devices, or all (None)."""

    devices: int
    per_process: int
    parameters: int
    rounds: int
    sampled: int | None = None
    device: dict[str, Any] = field(default_factory=dict)
    partial_sums: bool = False

    @property
    def called(self) -> int:
        """Number of devices that a round calls."""
        return self.sampled or self.devices


@dataclass
class Measurement:
    """The time and memory that one run took.

    Attributes:
        enrolled_s, first_round_s: wall time from the start of the command to the opening and to the
            commit of the first round.
        round_s: seconds of each round, from call to commit.
        pss_mib, private_mib: mean memory of a device process while it waits for a call or works.
        server_cpu_ms: CPU time of the server per called device, over the rounds after the first.
        server_peak_mib: peak resident memory of the server.
        up_mib: bodies that came from the devices in a round.
        fleet_mib: PSS of all processes of the run together.
    """

    case: Case
    enrolled_s: float = 0.0
    first_round_s: float = 0.0
    round_s: list[float] = field(default_factory=list)
    pss_mib: float = 0.0
    private_mib: float = 0.0
    server_cpu_ms: float = 0.0
    server_peak_mib: float = 0.0
    up_mib: float = 0.0
    fleet_mib: float = 0.0


def measure(case: Case) -> Measurement:
    """Run a case in a new process, so that it inherits nothing from the case before."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_measure, (case,))


def _measure(case: Case) -> Measurement:
    os.environ["PYTHONPATH"] = str(HERE)
    sys.path.insert(0, str(HERE))
    from muster.common.clock import WallClock
    from muster.common.config import validate
    from muster.emulator import run
    from muster.emulator.run_folder.control import stop
    from muster.emulator.scenario.scenario import Scenario

    mlp = {"name": "linear", "dimension": 50, "model": "mlp", "hidden": [100]}
    echo = {"name": ECHO, "parameters": case.parameters}
    selection = {"kind": "uniform", "k": case.sampled} if case.sampled else {"kind": "all"}
    server = {"rounds": _ENDLESS, "evaluate_every": case.rounds, "stall_s": 600.0}
    scenario = validate(
        Scenario,
        {
            "name": "scale",
            "task": echo if case.parameters else mlp,
            "training": {"local_steps": 0} if case.parameters else {"local_epochs": 1},
            "server": {**server, "selection": selection},
            "groups": [
                {
                    "name": "d",
                    "count": case.devices,
                    "devices_per_process": case.per_process,
                    "device": case.device,
                    "partial_sums": case.partial_sums,
                }
            ],
        },
        "benchmark",
    )
    clock, found = WallClock(), Measurement(case)
    began = clock.monotonic()
    cpu: list[tuple[int, float]] = []
    measuring: list[threading.Thread] = []
    stopping: list[threading.Thread] = []

    def show(event: dict[str, Any]) -> None:
        match event["event"]:
            case "round_opened" if event["round"] == 1:
                found.enrolled_s = clock.monotonic() - began
            case "round_committed":
                if event["round"] == 1:
                    found.first_round_s = clock.monotonic() - began
                    # In a thread: reading a thousand processes takes longer than a round.
                    measuring.append(
                        threading.Thread(target=_measure_memory, args=(found, _server(folder)))
                    )
                    measuring[0].start()
                with suppress(
                    FileNotFoundError, ProcessLookupError
                ):  # the server has ended meanwhile
                    cpu.append((event["round"], cpu_s(_server(folder))))
                # Only after the measurement: a process that has ended has no memory to read.
                if event["round"] >= case.rounds and not (measuring[0].is_alive() or stopping):
                    stopping.append(threading.Thread(target=stop, args=(folder,)))
                    stopping[0].start()
            case "ended":
                found.server_peak_mib = event["server_peak_rss_mib"]

    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent) / "run"
        done = run(scenario, out=folder, show=show)
        rounds = done.ledger.rounds
        found.round_s = list(rounds["seconds"])[: case.rounds]
        found.up_mib = float(rounds["bytes_up"].median()) / 2**20
    for thread in (*measuring, *stopping):
        thread.join()
    (first, began_s), *_, (last, ended_s) = cpu[: case.rounds]
    found.server_cpu_ms = 1000 * (ended_s - began_s) / (case.called * (last - first))
    return found


def _server(folder: Path) -> int:
    return int(json.loads((folder / "address.json").read_text())["pid"])


def _measure_memory(found: Measurement, server: int) -> None:
    """Measure the memory of the device processes, which are the nursery's children, and of all
    processes.

    Every process is read once, while the run goes on, because a process that has ended would count
    as nothing.
    """
    programs = children(os.getpid())
    devices = [rollup(pid) for each in programs if each != server for pid in children(each)]
    others = [rollup(pid) for pid in (os.getpid(), *programs, *children(server))]
    found.pss_mib = statistics.fmean(r["Pss"] for r in devices) / 1024
    private = [r["Private_Clean"] + r["Private_Dirty"] for r in devices]
    found.private_mib = statistics.fmean(private) / 1024
    found.fleet_mib = sum(rollup["Pss"] for rollup in (*devices, *others)) / 1024


def _row(found: Measurement) -> str:
    case = found.case
    later = statistics.median(found.round_s[1:] or found.round_s)
    return (
        f"{case.devices:>8} {-(-case.devices // case.per_process):>9}"
        f" {case.parameters or 'MLP':>10} {'sums' if case.partial_sums else 'updates':>7}"
        f" {found.enrolled_s:>10.1f} {found.first_round_s:>12.1f} {later:>9.3f}"
        f" {1000 * later / case.called:>10.2f} {found.server_cpu_ms:>10.2f}"
        f" {found.pss_mib:>8.1f} {found.private_mib:>8.1f} {found.server_peak_mib:>8.0f}"
        f" {found.fleet_mib:>8.0f} {found.up_mib:>8.1f}"
    )


HEAD = (
    f"{'devices':>8} {'processes':>9} {'parameters':>10} {'sent':>7} {'enrolled s':>10}"
    f" {'1st commit s':>12}"
    f" {'round s':>9} {'ms/call':>10} {'CPU ms':>10} {'PSS MiB':>8} {'private':>8}"
    f" {'server':>8} {'all MiB':>8} {'up MiB':>8}"
)
"""CPU ms is the server's CPU time per called device. PSS and private are the memory of one device
process; all is the PSS of all processes of the run; up is what came from the devices in a round."""

CASES = {
    "processes": [Case(1000, 1, 0, 8)],
    "packed": [Case(10_000, 1000, 10_000, 4)],
    "lives": [Case(100_000, 10_000, 10_000, 30, sampled=1000, device={"profile": "phone"})],
    "sums": [
        Case(devices, per_process, parameters, 6, sampled=sampled, partial_sums=sums)
        for devices, per_process, parameters, sampled in (
            (10_000, 1000, 10_000, None),
            (10_000, 1000, 100_000, 1000),
            (100_000, 10_000, 10_000, 10_000),
        )
        for sums in (False, True)
    ],
    "sweep": [
        *(Case(devices, 1, 10_000, 12) for devices in (10, 30, 100, 300)),
        Case(1000, 1, 10_000, 6),
        *(Case(devices, devices // 2, 10_000, 12) for devices in (10, 30, 100, 300, 1000, 3000)),
        *(Case(10, 1, parameters, 12) for parameters in (1_000, 100_000, 1_000_000, 5_000_000)),
    ],
}


def draw(sweep: Sequence[Measurement], path: Path) -> None:
    """Plot round time against the number of devices and against model size, with the exponent of
    the steep part."""
    from muster.emulator.report.style import BLUE, ORANGE, new_figure, tidy

    def line(axes: Any, colour: str, what: str, x: Any, wanted: Any) -> None:
        chosen = sorted((f for f in sweep if wanted(f.case)), key=lambda f: x(f.case))
        at = [x(f.case) for f in chosen]
        seconds = [statistics.median(f.round_s[1:]) for f in chosen]
        label = f"{what}^{exponent(at, seconds):.2f}"
        axes.loglog(at, seconds, "o-", color=colour, label=label)

    figure = new_figure(3.6)
    left, right = figure.subplots(1, 2)
    devices, parameters = (lambda c: c.devices), (lambda c: c.parameters)
    separate = [c for c in CASES["sweep"] if c.per_process == 1]
    line(left, BLUE, "a process each: devices", devices,
         lambda c: c in separate and c.parameters == 10_000)  # fmt: skip
    line(left, ORANGE, "two processes: devices", devices, lambda c: c not in separate)
    line(right, BLUE, "10 processes: parameters", parameters,
         lambda c: c in separate and c.devices == 10)  # fmt: skip
    tidy(left, "A round of 10,000 parameters", "devices", "seconds")
    tidy(right, "A round of 10 devices", "parameters", "seconds")
    for axes in (left, right):
        axes.legend(frameon=False)
    figure.savefig(path)


def exponent(x: Sequence[float], y: Sequence[float]) -> float:
    """Return the slope over the upper half of the points, where fixed costs no longer matter."""
    import numpy as np

    half = len(x) // 2
    return float(np.polyfit(np.log(x[half:]), np.log(y[half:]), 1)[0])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="?", choices=CASES)
    parser.add_argument("--out", type=Path, default=HERE / "out")
    options = parser.parse_args()
    options.out.mkdir(exist_ok=True)
    results: dict[str, list[Measurement]] = {}
    for name in [options.what] if options.what else CASES:
        print(f"{name}\n{HEAD}")
        for case in CASES[name]:
            found = measure(case)
            results.setdefault(name, []).append(found)
            print(_row(found), flush=True)
    if "sweep" in results:
        draw(results["sweep"], options.out / "scale.png")
    values = {name: [asdict(found) for found in cases] for name, cases in results.items()}
    (options.out / "scale.json").write_text(json.dumps(values, indent=2) + "\n")


if __name__ == "__main__":
    main()
