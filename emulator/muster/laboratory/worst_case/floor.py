"""What no rule can prevent: the least error that an adversary forces on every algorithm, beside the
errors of rules in the worst cases that are found.

    python -m muster.laboratory.worst_case.floor

It is started in the clone, because it reads an example, and prints the table of docs/worst-case.md.

Device i minimises ½ |θ − θ_i|², and a share ε of the devices never takes part. They have θ_i = v in
one world and −v in the other, and the rest has 0. No algorithm can tell the worlds apart, so it
makes the same θ in both. The optima are εv and −εv, so its squared distance to one of them is at
least ε²|v|². In the terms of Su et al., Federated Learning in the Presence of Adversarial Client
Unavailability (arXiv 2305.19971), the heterogeneity is G² = ε(1 − ε)|v|², there is no noise, and
μ = 1. The floor that they prove for every algorithm, εG²/(8μ²), is lower.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import orjson

from muster.emulator.records.ledger_file import read_ledger
from muster.emulator.run_folder.folder import LEDGER
from muster.emulator.scenario.reading import read_scenario
from muster.laboratory.worst_case.finding import worst_of
from muster.simulation.scratch import scratch_folder
from muster.simulation.whole_run import simulate_run

EXAMPLE = Path("examples/unavailable.toml")
DEVICES, LOST, ROUNDS = 20, 2, 40
SHARE = LOST / DEVICES
SIDE = (4.0, 4.0, 4.0)
"""The vector v."""

FLOOR = SHARE**2 * sum(each**2 for each in SIDE)
"""No algorithm's squared distance is below it in both worlds."""

PAPER = SHARE * SHARE * (1 - SHARE) * sum(each**2 for each in SIDE) / 8
"""The floor of the paper."""

RULES = (
    "fedavg", "fedavgm", "fedadam", "mifa", "fedvarp", "fedipw", "calibrated", "importance",
    "agnostic", "median",
)  # fmt: skip


class Ending(NamedTuple):
    """How a run ended.

    Attributes:
        squared: the squared distance of the model to the optimum of all devices.
        model: the SHA-256 of the model.
    """

    squared: float
    model: str


def world(rule: str, side: float, seed: int, rounds: int = ROUNDS) -> list[str]:
    """The settings of a world: where the devices that the adversary takes away have their data."""
    constant = "{{ z = {{ side = {{ kind = 'constant', value = {} }} }} }}"
    always = "availability={ kind = 'always' }"
    return [
        f"seed={seed}", f"server.rounds={rounds}", f"server.evaluate_every={rounds}",
        f"server.aggregator={rule}", "task.heterogeneity=0", "training.learning_rate=0.3",
        f"groups.0.count={DEVICES - LOST}", f"groups.0.covariates={constant.format(0.0)}",
        f"groups.1.count={LOST}", f"groups.1.covariates={constant.format(side)}",
        f"groups.0.{always}", f"groups.1.{always}",
    ]  # fmt: skip


def never_there(settings: Sequence[str]) -> Ending:
    """The run in which the devices of the share are away in all rounds, as in the theorem."""
    away = "groups.1.availability={ kind = 'bernoulli', probability = 1e-12 }"
    with scratch_folder() as scratch:
        simulate_run(read_scenario(EXAMPLE, [*settings, away]), scratch / "run")
        return _ending(scratch / "run")


def found(settings: Sequence[str], runs: int, seed: int, processes: int) -> tuple[Ending, str]:
    """The worst run that a search finds with the same budget, and in words the schedule, which may
    have been made shorter, so that it does a little less."""
    with tempfile.TemporaryDirectory(prefix="muster-worst-") as scratch:
        worst, place = worst_of(
            EXAMPLE,
            budget=SHARE,
            against="loss",
            family="groups",
            runs=runs,
            seed=seed,
            settings=settings,
            out=Path(scratch) / "search",
            processes=processes,
        )
        shown = _ending(place / "worst")
        lost = worst.searched_harm - worst.harm  # of the mean of ½ |θ − θ_i|²
        return shown._replace(squared=shown.squared + 2 * lost), worst.words


def _ending(folder: Path) -> Ending:
    with read_ledger(folder / LEDGER) as ledger:
        (metrics,) = ledger.execute(
            "SELECT metrics FROM evaluations ORDER BY version DESC LIMIT 1"
        ).fetchone()
    summary = orjson.loads((folder / "summary.json").read_bytes())
    return Ending(orjson.loads(metrics)["distance"] ** 2, str(summary["model_sha256"]))


def rows(runs: int, seed: int, processes: int) -> Iterator[tuple[list[str], bool]]:
    """Yield the row of each rule, and whether it keeps what is proved: the same model in both
    worlds, and an error that is not below the floor in one of them."""
    for rule in RULES:
        worlds = [world(rule, side, seed) for side in (1.0, -1.0)]
        blind = [never_there(settings) for settings in worlds]
        searched = [found(settings, runs, seed, processes) for settings in worlds]
        worst, words = max(searched, key=lambda pair: pair[0].squared)
        same = blind[0].model == blind[1].model
        forced = max(ending.squared for ending in blind)
        kept = same and min(forced, worst.squared) >= FLOOR * (1 - 1e-5)  # float32
        cells = [
            f"`{rule}`", "yes" if same else "**no**",
            *(f"{ending.squared / FLOOR:.3f}" for ending in blind),
            f"{worst.squared / FLOOR:.1f}", words,
        ]  # fmt: skip
        yield cells, kept


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m muster.laboratory.worst_case.floor",
        description=__doc__.partition("\n\n")[0].replace("\n", " "),
    )
    parser.add_argument("--runs", type=int, default=40, help="schedules for each search")
    parser.add_argument("--seed", type=int, default=9501, help="seed of scenarios and searches")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    _print([f"floor {FLOOR:.4g}, of the paper {PAPER:.4g}; multiples of the floor:"])
    columns = ["rule", "same model in both worlds", "away in all rounds", "in the other world"]
    _print([*columns, "worst found", "schedule"])
    _print(["---"] * 6)
    all_kept = True
    for cells, kept in rows(arguments.runs, arguments.seed, arguments.processes):
        _print(cells)
        all_kept = all_kept and kept
    _print(["nothing lies below the floor" if all_kept else "something lies below the floor"])
    return 0 if all_kept else 1


def _print(cells: Sequence[str]) -> None:
    sys.stdout.write((f"| {' | '.join(cells)} |" if len(cells) > 1 else cells[0]) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
