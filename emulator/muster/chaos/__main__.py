"""`python -m muster.chaos`: random faults in random fleets over real processes.

It plays the plans of `--number` seeds from `--first` on, one after the other, or that of `--seed`
alone. Every run must come to its end, pass its audit and leave no process; in lockstep its model
must have the bits of the undisturbed run. Otherwise the exit status is 1; the seed is printed with
what is wrong and the command that plays it again, and its folder is kept.
"""

import argparse
import shutil
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from muster.chaos.plans import ChaosPlan, draw_plan
from muster.chaos.playing import ChaosOutcome, play
from muster.common.clock import WallClock
from muster.simulation.observed import JOURNAL, LEDGER
from muster.simulation.probes_page import summary


@dataclass
class _Sums:
    """The sums over all seeds that were played."""

    played: int = 0
    drawn: int = 0
    refused: int = 0
    same: int = 0
    violating: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    states: Counter[str] = field(default_factory=Counter)
    reached: Counter[str] = field(default_factory=Counter)

    def add(self, plan: ChaosPlan, outcome: ChaosOutcome) -> None:
        self.played += 1
        self.drawn += plan.drawn
        self.refused += plan.refused
        self.same += outcome.same
        self.violating += bool(outcome.violations)
        self.kills.update(outcome.kills)
        self.states += outcome.states
        self.reached.update(outcome.reached)

    def __str__(self) -> str:
        states = ", ".join(f"{self.states[s]} {s}" for s in ("applied", "observed", "verified"))
        return (
            f"{self.played} runs, {self.same} of them with the model of the undisturbed run; "
            f"kills: {_counts(self.kills)}; faults: {states}; "
            f"{self.refused} of {self.drawn} draws were refused; {self.violating} runs violate"
        )


def _counts(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {what}" for what, count in sorted(counts.items())) or "none"


def _about(plan: ChaosPlan) -> str:
    scenario = plan.scenario
    server, kinds = scenario.server, [fault.do.kind for fault in scenario.faults]
    return (
        f"{scenario.clock.kind}, {server.mode.kind}, {server.aggregator.kind}, "
        f"{scenario.devices} devices, {server.rounds} rounds; {', '.join(kinds) or 'no fault'}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m muster.chaos", description=__doc__)
    parser.add_argument("--number", type=int, default=20, help="seeds to play")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--seed", type=int, help="play this one alone")
    parser.add_argument("--lockstep", action="store_true", help="draw only fleets in lockstep")
    parser.add_argument("--folder", type=Path, help="keep the folders of all runs here")
    arguments = parser.parse_args()
    first, number = arguments.first, arguments.number
    seeds = range(first, first + number) if arguments.seed is None else [arguments.seed]
    work = arguments.folder or Path(tempfile.mkdtemp(prefix="muster-chaos-"))
    sums = _Sums()
    for seed in seeds:
        plan, folder = draw_plan(seed, arguments.lockstep), work / f"seed-{seed}"
        outcome = _played(plan, folder)
        sums.add(plan, outcome)
        if outcome.violations:
            more = " LOCKSTEP=1" if arguments.lockstep else ""
            _print(f"  again: make chaos SEED={seed}{more}    its folder: {folder}")
        elif not arguments.folder:
            shutil.rmtree(folder)
    if not arguments.folder and not sums.violating:
        work.rmdir()
    _print("of the probes over accounts, " + summary(sums.reached, (*LEDGER, *JOURNAL)))
    _print(str(sums))
    return 1 if sums.violating else 0


def _played(plan: ChaosPlan, folder: Path) -> ChaosOutcome:
    """Play a plan, and print what became of it."""
    clock = WallClock()
    began = clock.monotonic()
    outcome = play(plan, folder, clock)
    _print(
        f"seed {plan.seed}: {_about(plan)}; kills: {_counts(Counter(outcome.kills))}; "
        f"{clock.monotonic() - began:.1f} s"
    )
    for violation in outcome.violations:
        _print(f"  violates: {violation}")
    return outcome


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
