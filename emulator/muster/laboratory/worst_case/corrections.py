"""The corrections of the papers under an adversary: the worst schedule that is found for each.

    python -m muster.laboratory.worst_case.corrections

It is started in the clone, because it reads the examples, and writes the results from which the
table of docs/studies/worst-case.md is made. What the file has already is not searched again.
"""

import argparse
import dataclasses
import math
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from muster.common.clock import WallClock
from muster.common.errors import ConfigError
from muster.common.files import write_atomic
from muster.emulator.records.intervals import interval
from muster.laboratory.worst_case.finding import worst_of

RESULTS = Path("docs/studies/worst-case.json")
BUDGET, ROUNDS, BASE = 0.1, 20, "fedavg"


_COLUMNS = (
    "rule (study)", "no fault", "random, and at most", "worst found", "ratio", "schedules",
    "more than fedavg", "gain on fedavg without", "and at the worst",
    "the schedule on the first seed",
)  # fmt: skip


class Correction(NamedTuple):
    """A rule, with what it needs to be searched.

    Attributes:
        rule: of the server.
        paper: the study of its paper.
    """

    rule: str
    paper: str
    example: str = "unavailable.toml"
    settings: tuple[str, ...] = ()


_MASKS = tuple(
    setting
    for group in (0, 1)
    for setting in (
        f"groups.{group}.device.capacity=0.67",
        f'groups.{group}.mask={{ kind = "random", schedule = "drawn" }}',
    )
)

CORRECTIONS = (
    Correction(BASE, "–"),
    Correction("fedipw", "fedipw"),
    Correction("participation-ipw", "fedipw"),
    Correction("calibrated", "fedipw"),
    Correction("importance", "correlated"),
    Correction("agnostic", "agnostic"),
    Correction("fedplt", "fedplt", settings=_MASKS),
    Correction("feduca", "feduca", example="feduca.toml"),
)


def searched(correction: Correction, seed: int, runs: int) -> dict[str, Any]:
    """The result for a rule, or why it was refused."""
    plain = correction.example == "unavailable.toml"
    with tempfile.TemporaryDirectory(prefix="muster-worst-") as scratch:
        settings = [f"seed={seed}", f"server.evaluate_every={ROUNDS}", *correction.settings]
        if plain:
            settings.append(f"server.aggregator={correction.rule}")
        try:
            found, _ = worst_of(
                Path("examples") / correction.example,
                budget=BUDGET,
                against="loss",
                family="groups",
                rounds=ROUNDS,
                runs=runs,
                seed=seed,
                settings=settings,
                out=Path(scratch) / "search",
            )
        except ConfigError as error:
            reason = str(error).splitlines()[-1].strip()
            return {"rule": correction.rule, "seed": seed, "refused": reason}
    return dataclasses.asdict(found) | {"seed": seed}


def table(results: Mapping[str, Any]) -> list[str]:
    """The lines of the table of the page, means over the seeds with 95 % intervals, and then what
    became of the gain of each rule on the base."""
    found = dict[str, list[Mapping[str, Any]]]()
    for row in results["searches"]:
        found.setdefault(row["rule"], []).append(row)
    base = {row["seed"]: row for row in found[BASE]}
    lines = [f"| {' | '.join(_COLUMNS)} |", f"|{'---|' * len(_COLUMNS)}"]
    verdicts = list[str]()
    for correction in CORRECTIONS:
        rows = found.get(correction.rule, [])
        if not rows:
            continue
        name = f"`{correction.rule}` ({correction.paper})"
        if "refused" in rows[0]:
            lines.append(f"| {name} | refused | | | | | | | | {rows[0]['refused']} |")
            continue
        pairs = [(row, base[row["seed"]]) for row in rows]
        random = [row["random_mean"] for row in rows]
        said = [
            _mean([row["without"] for row in rows]),
            f"{_mean(random)}, {max(row['random_max'] for row in rows):.2f}",
            _mean([row["harm"] for row in rows]),
            _ratio([row["harm"] for row in rows], random),
            f"{sum(row['runs'] for row in rows)}",
        ]
        if correction.rule == BASE:
            said += ["–"] * 3
        else:
            without, worst = zip(*(gains(*pair) for pair in pairs), strict=True)
            said += [
                _mean([row["harm"] - plain["harm"] for row, plain in pairs]),
                _mean(without),
                _mean(worst),
            ]
            counted = Counter(verdict(*pair) for pair in pairs).most_common()
            ends = ", ".join(f"{words} ({number} of {len(rows)})" for words, number in counted)
            verdicts.append(f"- `{correction.rule}`: {ends}")
        lines.append(f"| {name} | {' | '.join(said)} | {rows[0]['words']} |")
    return [*lines, "", *verdicts]


def _mean(values: Sequence[float]) -> str:
    found = interval(values)
    width = "" if math.isnan(found.half) else f" ± {found.half:.2f}"
    return f"{found.mean:.2f}{width}"


def _ratio(harms: Sequence[float], random: Sequence[float]) -> str:
    usual = interval(random)
    return f"{interval(harms).mean / usual.mean:.2g}" if usual.mean > usual.half else "–"


def gains(row: Mapping[str, Any], base: Mapping[str, Any]) -> tuple[float, float]:
    """How much lower the loss of a rule is than that of the base: without a schedule, and when each
    of them meets the worst that was found for it."""
    return base["without"] - row["without"], base["worst"] - row["worst"]


def verdict(row: Mapping[str, Any], base: Mapping[str, Any]) -> str:
    """What became of the gain of a rule. It survives if half of it is left."""
    without, worst = gains(row, base)
    if without <= 0:
        return "had no gain" if worst >= 0 else "had no gain, and ends worse than fedavg"
    if worst < 0:
        return "worse than fedavg"
    return "survives" if worst >= without / 2 else "survives in part"


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m muster.laboratory.worst_case.corrections",
        description=__doc__.partition("\n")[0],
    )
    parser.add_argument("--runs", type=int, default=100, help="schedules for each search")
    parser.add_argument(
        "--seeds", default="9401,9402,9403,9404,9405", help="seeds of scenarios and searches"
    )
    arguments = parser.parse_args()
    clock = WallClock()
    searches = orjson.loads(RESULTS.read_bytes())["searches"] if RESULTS.exists() else []
    began, known = clock.monotonic(), {(each["rule"], each["seed"]) for each in searches}
    for seed in map(int, arguments.seeds.split(",")):
        for correction in CORRECTIONS:
            if (correction.rule, seed) in known:
                continue
            searches.append(searched(correction, seed, arguments.runs))
            results = {"budget": BUDGET, "rounds": ROUNDS, "searches": searches}
            write_atomic(RESULTS, orjson.dumps(results, option=orjson.OPT_INDENT_2) + b"\n")
            sys.stdout.write(f"{clock.monotonic() - began:.0f} s: {searches[-1]}\n")
            sys.stdout.flush()
    sys.stdout.write("\n".join(table(results)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
