"""The corrections of the papers under an adversary: the worst schedule that is found for each.

    python -m muster.laboratory.worst_case.corrections --seeds 9301,9302

It is started in the clone, because it reads the examples, and writes the results from which the
table of docs/studies/worst-case.md is made. What the file has already is not searched again.
"""

import argparse
import dataclasses
import math
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from muster.common.clock import WallClock
from muster.common.errors import ConfigError
from muster.common.files import write_atomic
from muster.laboratory.worst_case.finding import FEWEST_RUNS, worst_of

RESULTS = Path("docs/studies/worst-case.json")
BUDGET, ROUNDS, BASE = 0.1, 20, "fedavg"


_COLUMNS = (
    "rule (study)", "seed", "no fault", "most of random", "worst found", "ratio", "runs",
    "gain on fedavg without, and at the worst", "the schedule",
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
                processes=1,
            )
        except ConfigError as error:
            reason = str(error).splitlines()[-1].strip()
            return {"rule": correction.rule, "seed": seed, "refused": reason}
    ratio = None if math.isnan(found.ratio) else found.ratio
    return dataclasses.asdict(found) | {"seed": seed, "ratio": ratio}


def table(results: Mapping[str, Any]) -> list[str]:
    """The lines of the table of the page: what was found for each rule and seed, and what became of
    what the correction gains on the base."""
    rows = results["searches"]
    base = {row["seed"]: row for row in rows if row["rule"] == BASE}
    papers = {each.rule: each.paper for each in CORRECTIONS}
    lines = [
        f"| {' | '.join(_COLUMNS)} |",
        f"|{'---|' * len(_COLUMNS)}",
    ]
    for row in sorted(rows, key=lambda row: (list(papers).index(row["rule"]), row["seed"])):
        name = f"`{row['rule']}` ({papers[row['rule']]})"
        if "refused" in row:
            lines.append(f"| {name} | {row['seed']} | refused | | | | | | {row['refused']} |")
            continue
        without, worst = gains(row, base[row["seed"]])
        ratio = "–" if row["ratio"] is None else f"{row['ratio']:.2g}"
        gain = "–" if row["rule"] == BASE else f"{without:+.2f}, {worst:+.2f}"
        lines.append(
            f"| {name} | {row['seed']} | {row['without']:.2f} | {row['random_max']:+.2f} | "
            f"{row['harm']:+.2f} | {ratio} | {row['runs']} | {gain} | {row['words']} |"
        )
    return [*lines, "", *_verdicts(rows, base)]


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


def _verdicts(rows: Sequence[Mapping[str, Any]], base: Mapping[int, Any]) -> Iterator[str]:
    found = dict[str, list[str]]()
    for row in rows:
        if row["rule"] != BASE and "refused" not in row:
            found.setdefault(row["rule"], []).append(verdict(row, base[row["seed"]]))
    for rule, said in found.items():
        same = len(set(said)) == 1
        yield f"- `{rule}`: {said[0] if same else 'inconclusive: ' + ', '.join(said)}"


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m muster.laboratory.worst_case.corrections",
        description=__doc__.partition("\n")[0],
    )
    parser.add_argument("--runs", type=int, default=FEWEST_RUNS, help="schedules for each search")
    parser.add_argument("--seeds", default="9301", help="seeds of scenarios and searches")
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
