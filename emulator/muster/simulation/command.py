"""The command `python -m muster.simulation`: search for histories that violate an invariant.

Without `--seed`, it plays the histories of `--number` seeds from `--first` on, in as many processes
as the machine has cores. With `--seed`, it plays one history again and prints its trace. If a
history violates an invariant, the exit status is 1, and its seed and the fewest faults that suffice
are printed. The last lines say which probes no history has reached. After Ctrl-C, what was found so
far is shown and written; the exit status is 130 if nothing was violated, because fewer histories
were played than were asked for.
"""

import argparse
import multiprocessing
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

from muster.common.clock import WallClock
from muster.simulation.batches import Batch, exhaustive_batch, random_batch
from muster.simulation.probes import begin_process
from muster.simulation.probes_page import names, page, summary
from muster.simulation.search import HISTORIES_OF_A_FLEET, HistoryPlan, simulator

_BATCH = 100
"""Histories in a batch of an exhaustive search. In a random one, each fleet is a batch."""

_HISTORIES = 1000
"""Histories that a process plays before it ends. When it ends, it releases what killed simulated
processes still held open."""

_REPORT_S = 10.0

_INTERRUPTED = 128 + signal.SIGINT
"""The exit status of a program that Ctrl-C has ended."""


def _batches(arguments: argparse.Namespace) -> tuple[Callable[..., Batch], list[Any], int, int]:
    """The function that plays a batch, its arguments, the size of a batch, and how many histories
    there are in all."""
    if arguments.every is None:
        size, stop = HISTORIES_OF_A_FLEET, arguments.first + arguments.number
        starts = [arguments.first, *range((arguments.first // size + 1) * size, stop, size)]
        return random_batch, list(pairwise([*starts, stop])), size, arguments.number
    with simulator() as found:
        total = sum(1 for _ in found.every_plan(arguments.every, arguments.pairs))
    parts = range(0, total, _BATCH)
    batches = [(arguments.every, arguments.pairs, s, s + _BATCH) for s in parts]
    return exhaustive_batch, batches, _BATCH, total


def search(arguments: argparse.Namespace) -> int:
    """Play many histories and return the exit status."""
    clock = WallClock()
    play, batches, size, asked = _batches(arguments)
    began = reported = clock.monotonic()
    played, endings, violations, times = 0, Counter[str](), 0, Counter[str]()
    interrupted = False
    # Each process starts afresh: torch's threads do not survive a fork.
    context = multiprocessing.get_context("spawn")
    # Not concurrent.futures: with max_tasks_per_child, its pool hangs in Python 3.11.
    try:
        with context.Pool(
            arguments.processes, initializer=begin_process, maxtasksperchild=_HISTORIES // size
        ) as pool:
            _print(f"{asked} histories are to be played")
            for batch in pool.imap_unordered(play, batches):
                played += batch.played
                endings += batch.endings
                times += batch.reached
                for plan, violation in batch.violations:
                    violations += 1
                    _print(f"\nseed {plan.seed} ({plan.scenario}) violates: {violation}")
                    _print("  shortest: " + (", ".join(map(str, plan.faults)) or "no fault at all"))
                    _print(f"  replay: {_replay(plan, arguments)}")
                now = clock.monotonic()
                if now - reported > _REPORT_S:
                    reported = now
                    _print(_progress(played, now - began, endings, violations))
                if violations >= arguments.most:
                    break
    except KeyboardInterrupt:
        interrupted = True
    if arguments.probes is not None:
        arguments.probes.write_text(page(times, played), encoding="utf-8")
    _print(summary(times, names()))
    if interrupted:
        _print(f"interrupted: {played} of {asked} histories were played")
    _print(_progress(played, clock.monotonic() - began, endings, violations))
    if violations:
        return 1
    return _INTERRUPTED if interrupted else 0


def _replay(plan: HistoryPlan, arguments: argparse.Namespace) -> str:
    if arguments.every is not None:
        return "play the faults above on seed 0"
    return f"make simulate SEED={plan.seed}"


def _progress(played: int, seconds: float, endings: Counter[str], violations: int) -> str:
    how = ", ".join(f"{count} {ending}" for ending, count in sorted(endings.items()))
    pace = 60 * played / max(seconds, 1e-9)
    return (
        f"{played} histories in {seconds:.0f} s ({pace:.0f} a minute): {how}; {violations} violate"
    )


def replay(seed: int) -> int:
    """Play one history again, print its trace, and return the exit status."""
    with simulator() as found:
        plan = found.random_plan(seed)
        outcome = found.play(plan, traced=True)
        for line in outcome.trace:
            _print(line)
        _print(f"\n{plan.scenario}, seed {seed}; faults:")
        for fault in plan.faults:
            _print(f"  {fault}")
        for violation in outcome.violations:
            _print(f"violates: {violation}")
        if outcome.violations:
            shortest = found.shortest(plan)
            _print("shortest: " + (", ".join(map(str, shortest.faults)) or "no fault at all"))
        else:
            _print("nothing is violated")
        return 1 if outcome.violations else 0


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m muster.simulation", description=__doc__)
    parser.add_argument("--number", type=int, default=2000, help="histories to play")
    parser.add_argument("--first", type=int, default=0, help="seed of the first")
    parser.add_argument("--seed", type=int, help="play this one again, with a trace")
    parser.add_argument("--every", metavar="SCENARIO", help="every single fault of a scenario")
    parser.add_argument("--pairs", action="store_true", help="with --every: and every pair")
    parser.add_argument("--most", type=int, default=10, help="violations after which it gives up")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--probes", type=Path, help="write the page of the probes into this file")
    arguments = parser.parse_args()
    return search(arguments) if arguments.seed is None else replay(arguments.seed)
