"""Proof that the search finds known weaknesses: rules that are fragile in a known way are broken in
that way.

    python -m muster.laboratory.worst_case.proof --runs 40

It is started in the clone, because it reads the examples. The rows are those of the table in
docs/worst-case.md.
"""

import argparse
import math
import os
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from muster.laboratory.worst_case.finding import WorstCase, worst_of


class Weakness(NamedTuple):
    """What is known of a rule.

    Attributes:
        why: why it is fragile there.
        family, against: how it is broken.
        settings: of the scenario.
        words: what the schedule that is found says, in one of these words.
        one_group: whether it strikes devices of one group only, in place of what it says.
    """

    why: str
    example: str
    family: str
    against: str
    rounds: int
    settings: tuple[str, ...]
    words: tuple[str, ...] = ()
    one_group: bool = False


_TWO_GROUPS = (
    'groups.0.availability={ kind = "bernoulli", probability = 0.9 }',
    'groups.1.availability={ kind = "bernoulli", probability = 0.9 }',
)
"""Two groups with other data that are there as often, so that only the schedule divides them."""

WEAKNESSES = (
    Weakness(
        "fedavg forgets a group that is away", "unavailable.toml", "groups", "loss", 40,
        ("server.aggregator=fedavg", *_TWO_GROUPS), one_group=True,
    ),
    Weakness(
        "agnostic weighs those that are there", "unavailable.toml", "groups", "loss", 40,
        ("server.aggregator=agnostic", *_TWO_GROUPS,
         'server.selection={ kind = "uniform", k = 8 }'), one_group=True,
    ),
    Weakness(
        "fedavg forgets a label that is away", "digits.toml", "classes", "accuracy", 60,
        ("server.aggregator=fedavg", "task.partition.alpha=0.1"), ("class",),
    ),
    Weakness(
        "mifa waits until every device has taken part once", "unavailable.toml", "outages", "loss",
        40, ("server.aggregator=mifa", *_TWO_GROUPS),
        # The first round of the scenario in which a device is there is nearly always one of these.
        ("from round 1 to", "from round 2 to"),
    ),
    Weakness(
        "participation-ipw learns of an absence when it is over",
        "unavailable.toml", "groups", "loss", 40,
        ("server.aggregator=participation-ipw", *_TWO_GROUPS), one_group=True,
    ),
    Weakness(
        "the buffered mode lives on one of its groups", "asynchronous.toml", "groups", "loss", 60,
        ("task.partition.alpha=0.1",), one_group=True,
    ),
    Weakness(
        "fedipw has nobody left of an absent group whose weight could grow",
        "unavailable.toml", "groups", "loss", 40,
        ("server.aggregator=fedipw", *_TWO_GROUPS), one_group=True,
    ),
    Weakness(
        "calibrated has nobody left of an absent group whose weight could grow",
        "unavailable.toml", "groups", "loss", 40,
        ("server.aggregator=calibrated", *_TWO_GROUPS), one_group=True,
    ),
    Weakness(
        "median goes to the group that has the majority, when some of the other are away",
        "unavailable.toml", "groups", "loss", 40,
        ("server.aggregator=median", *_TWO_GROUPS), one_group=True,
    ),
    Weakness(
        "fedavgm keeps moving to the group that is there",
        "unavailable.toml", "groups", "loss", 40,
        ("server.aggregator=fedavgm", *_TWO_GROUPS), one_group=True,
    ),
)  # fmt: skip


def broken(weakness: Weakness, runs: int, seed: int, processes: int) -> WorstCase:
    """The worst case of a rule that is known to be fragile."""
    with tempfile.TemporaryDirectory(prefix="muster-worst-") as scratch:
        found, _ = worst_of(
            Path("examples") / weakness.example,
            budget=0.1,
            against=weakness.against,
            family=weakness.family,
            rounds=weakness.rounds,
            runs=runs,
            seed=seed,
            settings=(*weakness.settings, f"seed={seed}"),
            out=Path(scratch) / "search",
            processes=processes,
        )
    return found


def as_expected(weakness: Weakness, found: WorstCase) -> bool:
    """Whether a rule was broken in the way in which it is fragile: by more than twice what any
    random schedule did, and by a schedule that strikes what is expected."""
    if weakness.one_group:
        as_known = len({client.rpartition("-")[0] for client in found.devices}) == 1
    else:
        as_known = any(word in found.words for word in weakness.words)
    return as_known and found.harm > 2 * max(0.0, found.random_max)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m muster.laboratory.worst_case.proof",
        description=__doc__.partition("\n")[0],
    )
    parser.add_argument("--runs", type=int, default=40, help="schedules for each rule")
    parser.add_argument("--seed", type=int, default=9701, help="seed of scenarios and searches")
    parser.add_argument("--rules", help="only the weaknesses of these rules, separated by commas")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    failed = list[str]()
    _print("| rule, family, measure | without | random | worst found | ratio | runs | schedule |")
    _print("|---|---|---|---|---|---|---|")
    asked = None if arguments.rules is None else arguments.rules.split(",")
    for weakness in WEAKNESSES:
        if asked is not None and weakness.why.partition(" ")[0] not in asked:
            continue
        found = broken(weakness, arguments.runs, arguments.seed, arguments.processes)
        ratio = "–" if math.isnan(found.ratio) else f"{found.ratio:.2g}"
        _print(
            f"| {found.rule}, {found.family}, {found.against} | {found.without:.4g} | "
            f"{found.random_mean:.2g} ± {found.random_half:.1g}, at most {found.random_max:.2g} | "
            f"{found.harm:.3g} | {ratio} | {found.runs} | {found.words} |"
        )
        if not as_expected(weakness, found):
            failed.append(weakness.why)
    for why in failed:
        _print(f"not broken as expected: {why}")
    return 1 if failed else 0


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
