"""Measures how often the claims of a quick study hold, and writes its `rates.json`.

`python -m muster.studies.rate_measurement NAME --repetitions 100 --out DIR`. The runs take
place inside worker processes (`simulation.whole_run`). Runs that `DIR` already has are kept.
"""

import argparse
import os
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from muster.common.clock import WallClock
from muster.emulator.comparison.run_set import Planned, has_ended
from muster.emulator.comparison.variants import folder_names
from muster.emulator.records.summary import seconds_text
from muster.simulation.workers import IN_MEMORY, Workers
from muster.studies.claims import Claim
from muster.studies.plan import PlannedRun, find_study
from muster.studies.rates import Rates, rates_of
from muster.studies.results import Result, Results
from muster.studies.study import Options, Study
from muster.studies.study_run import StudyRun

FIRST_SEED = 1001
"""The first seed of a measurement, far from seeds on which studies were tuned."""


class RateMeasurement:
    """The repetitions of a quick study with consecutive first seeds.

    Args:
        options: the options of the first repetition.
        folder: keeps the runs.
    """

    def __init__(self, study: Study, options: Options, repetitions: int, folder: Path) -> None:
        self._study, self._folder = study, folder
        self.options = [replace(options, seed=options.seed + n) for n in range(repetitions)]
        self._runs = [study.runs(repetition) for repetition in self.options]

    def planned(self) -> list[PlannedRun]:
        """The runs of all repetitions, each once."""
        runs = {run.title: run for of_one in self._runs for run in of_one}
        names = folder_names(list(runs))
        return [PlannedRun(name, run) for name, run in zip(names, runs.values(), strict=True)]

    def claims(self) -> list[Sequence[Claim]]:
        """The judged claims of every repetition."""
        folders = {planned.run.title: planned.folder for planned in self.planned()}
        return [
            self._judged(options, runs, [folders[run.title] for run in runs])
            for options, runs in zip(self.options, self._runs, strict=True)
        ]

    def _judged(
        self, options: Options, runs: Sequence[StudyRun], folders: Sequence[str]
    ) -> Sequence[Claim]:
        results = Results(
            [Result(run, self._folder / name) for run, name in zip(runs, folders, strict=True)]
        )
        try:
            return self._study.judge(results, options).claims
        finally:
            results.close()


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m muster.studies.rate_measurement", description=__doc__
    )
    parser.add_argument("study", help="name of the study")
    parser.add_argument("--repetitions", type=int, default=100)
    parser.add_argument("--first", type=int, default=FIRST_SEED, help="the first seed")
    parser.add_argument(
        "--further", action="store_true", help="add repetitions to those that rates.json has"
    )
    parser.add_argument("--out", type=Path, required=True, help="folder that keeps the runs")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="runs at once")
    parser.add_argument("--failures", action="store_true", help="show each claim that failed")
    arguments = parser.parse_args()
    study = find_study(arguments.study)
    earlier = rates_of(study) if arguments.further else None
    first = arguments.first if earlier is None else earlier.next_first
    options = Options(quick=True, seed=first, seeds=study.quick_seeds)
    measurement = RateMeasurement(study, options, arguments.repetitions, arguments.out)
    if not _run(measurement.planned(), arguments.out, arguments.jobs):
        return 1
    judged = measurement.claims()
    held = Counter(claim.claim for claims in judged for claim in claims if claim.holds)
    every = {claim.claim: held[claim.claim] for claims in judged for claim in claims}
    if arguments.failures:
        for repetition, claims in zip(measurement.options, judged, strict=True):
            for claim in claims:
                if not claim.holds:
                    _print(f"  seed {repetition.seed}: {claim.claim}: {claim.measured}")
    last = measurement.options[-1].all_seeds[-1]
    rates = Rates(first, last, options.seeds, len(judged), every)
    whole = sum(all(claim.holds for claim in claims) for claims in judged)
    for text, count in sorted(every.items(), key=lambda item: item[1]):
        _print(f"{count:4} of {len(judged)}  {text}")
    _print(f"{whole:4} of {len(judged)}  all {len(every)} claims together")
    if earlier is not None:
        rates = earlier.joined(rates)
    _print(f"wrote {rates.write(study)}: {rates.text}")
    return 0


def _run(planned: Sequence[PlannedRun], folder: Path, jobs: int) -> bool:
    """Run what the folder does not have yet; return whether all runs have ended."""
    missing = [run for run in planned if not has_ended(folder / run.folder)]
    clock = WallClock()
    began, failed, ended = clock.monotonic(), 0, 0

    def on_end(run: Planned, status: str, problem: str, took_s: float) -> None:
        nonlocal failed, ended
        failed += bool(problem)
        ended += 1
        if problem:
            _print(f"{run.title}: {status}: {problem}")
        elif ended % 50 == 0:
            spent = clock.monotonic() - began
            left = seconds_text(round(spent / ended * (len(missing) - ended)))
            _print(f"{ended} of {len(missing)} runs; about {left} left")

    stopped = Workers(folder, IN_MEMORY, jobs, clock).run(missing, on_end)
    return not stopped and not failed


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
