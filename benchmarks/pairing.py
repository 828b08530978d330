"""How much narrower intervals of paired differences are than those of independent seeds.

python benchmarks/pairing.py [FIRST_SEED]

Prints the table of docs/what-if.md. Each example is played in virtual time with twelve seeds.
"""

import math
import statistics
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from scipy.special import stdtrit  # type: ignore[import-untyped]

from muster.common.garbage import keep_what_is_left
from muster.emulator.records.intervals import interval
from muster.emulator.scenario.reading import read_scenario
from muster.laboratory.worst_case.measure import FinalMeasure
from muster.simulation.scratch import scratch_folder
from muster.simulation.whole_run import simulate_run

SEEDS = 12
EXAMPLES = {
    "unavailable": ("loss", "mifa", ["fedvarp", "fedipw", "fedavg"]),
    "stragglers": ("accuracy", "fedavg", ["trimmed-mean", "fedavgm", "fedadam"]),
    "asynchronous": ("accuracy", "fedavg", ["fedbuff", "multi-krum", "fedavgm"]),
}
"""By example: the measure, the rule to compare with, and the others."""

RATES = {"unavailable": 0.06, "stragglers": 0.12, "asynchronous": 0.12}
"""A small change of a setting: a learning rate that is higher by a fifth."""

Case = tuple[str, str, tuple[str, ...], int]
"""An example, its measure, what is changed in it, and the seed."""


def measured(case: Case) -> float:
    """The measure at the end of a run."""
    example, column, changes, seed = case
    settings = [*changes, f"seed={seed}"]
    with scratch_folder() as scratch:
        simulate_run(read_scenario(Path(f"examples/{example}.toml"), settings), scratch / "run")
        value = FinalMeasure(column).value(scratch / "run")
    keep_what_is_left()
    return value


def compared(example: str) -> Iterator[tuple[str, tuple[str, ...], tuple[str, ...]]]:
    """Yield what is compared in an example: a name, and both changes."""
    _, base, rules = EXAMPLES[example]
    plain = (f"server.aggregator={base}",)
    rate = f"training.learning_rate={RATES[example]}"
    yield f"`{base}`: `{rate}`", (*plain, rate), plain
    for rule in rules:
        yield f"`{rule}` − `{base}`", (f"server.aggregator={rule}",), plain


def independent(first: Sequence[float], second: Sequence[float]) -> float:
    """Half the width of the 95 % interval of the difference of two groups of other seeds."""
    spread = math.hypot(statistics.stdev(first), statistics.stdev(second))
    return float(stdtrit(2 * SEEDS - 2, 0.975)) * spread / math.sqrt(SEEDS)


def main() -> None:
    first = int(sys.argv[1]) if len(sys.argv) > 1 else 301
    seeds = range(first, first + SEEDS)
    print("| example | difference | mean | paired | independent | ratio | correlation |")
    print("|---|---|---|---|---|---|---|")
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        for example, (column, _, _) in EXAMPLES.items():
            known: dict[tuple[str, ...], list[float]] = {}
            for name, *both in compared(example):
                for changes in both:
                    if changes not in known:
                        cases = [(example, column, changes, seed) for seed in seeds]
                        known[changes] = list(pool.map(measured, cases))
                changed, plain = (known[changes] for changes in both)
                differences = [a - b for a, b in zip(changed, plain, strict=True)]
                paired = interval(differences)
                apart = independent(changed, plain)
                alike = statistics.correlation(changed, plain)
                per, unit = (0.01, " points") if column == "accuracy" else (1, "")
                print(
                    f"| `{example}` | {name} | {paired.mean / per:+.3g}{unit} | "
                    f"± {paired.half / per:.2g}{unit} | ± {apart / per:.2g}{unit} | "
                    f"{paired.half / apart:.2f} | {alike:.2f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
