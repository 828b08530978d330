"""The work of a round, counted: the same number on every machine, however busy it is.

Runs in virtual time are counted twice, with few and with more rounds. The difference is the work of
rounds, without that of start and end.
"""

import csv
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from muster.common.config import validate
from muster.emulator.scenario.scenario import Scenario
from muster.simulation.drawn_fleets import LARGE
from muster.simulation.whole_run import simulate_run

RECORD = Path(__file__).with_name("work.csv")
"""The committed counts: a row for each thing that is counted, a column for each fleet."""

_ROUNDS = (4, 14)

_EMULATION = ("simulation/", "wire/in_memory/", "emulator/")
"""What stands for network, disk and clock in virtual time, and so does no work in a real run."""

_STATEMENTS = ("execute", "executemany")
_SYNCED = ("fsync", "fdatasync")

STATEMENTS, SYNCED, MESSAGES, BYTES = (
    "(statements of the ledger)",
    "(files made durable)",
    "(messages)",
    "(bytes of messages)",
)
FUNCTIONS = "(calls of functions)"
TOTALS = (FUNCTIONS, STATEMENTS, SYNCED, MESSAGES, BYTES)

Work = Mapping[str, float]
"""What is counted, to how often a round: the totals, and "folder/file.py function"."""


def _fleet(group: dict[str, Any], **sections: Any) -> dict[str, Any]:
    values = {
        "name": "counted",
        "seed": 3,
        "task": {"name": "linear", "dimension": 100, "examples_per_client": 8},
        "training": {"learning_rate": 1e-6, "local_steps": 1, "batch_size": 4},
        "groups": [{"name": "dev", **group}],
    }
    return values | sections


FLEETS = {
    "ten": _fleet({"count": 10}),
    "twenty": _fleet({"count": 20}),
    "packed": _fleet({"count": 20, "devices_per_process": 20}),
    "large": _fleet(
        {"count": 10}, task={"name": "linear", "dimension": LARGE, "examples_per_client": 4}
    ),
    "buffered": _fleet(
        {"count": 10}, server={"mode": {"kind": "buffered", "k": 5, "concurrency": 8}}
    ),
    "phones": _fleet(
        {"count": 20, "link": {"profile": "4g"}, "device": {"profile": "phone"}},
        server={"goal": 5, "deadline_s": 60.0},
        clock={"round_s": 600},
    ),
}
"""The fleets by name: devices in processes of their own (and as many more, for what an update
costs), in a pack, with bodies that travel in chunks, in the buffered mode, with lives and links."""


def work_of(name: str) -> Work:
    """Count the work of a round of one of the fleets."""
    few, many = (_counted(name, rounds) for rounds in _ROUNDS)
    between = _ROUNDS[1] - _ROUNDS[0]
    return {
        counted: (many[counted] - few[counted]) / between
        for counted in (*TOTALS, *sorted((few | many).keys() - {*TOTALS}))
        if counted in TOTALS or many[counted] != few[counted]
    }


def _counted(name: str, rounds: int) -> Counter[str]:
    fleet = FLEETS[name]
    server = {**fleet.get("server", {}), "rounds": rounds, "evaluate_every": rounds}
    counts = Counter[str]()
    names: dict[CodeType, str] = {}

    def count(frame: FrameType, event: str, called: Any) -> None:
        if event == "c_call":
            if called.__name__ in _STATEMENTS:
                counts[STATEMENTS] += 1
            elif called.__name__ in _SYNCED:
                counts[SYNCED] += 1
        elif event == "call":
            code = frame.f_code
            if code not in names:
                names[code] = _name(code)
            if named := names[code]:
                counts[FUNCTIONS] += 1
                counts[named] += 1
            elif code.co_qualname == "Outgoing.write":
                counts[MESSAGES] += 1
                counts[BYTES] += len(frame.f_locals["data"])

    with tempfile.TemporaryDirectory() as folder:
        scenario = validate(Scenario, {**fleet, "server": server}, name)
        before = sys.getprofile()
        threading.setprofile(count)
        sys.setprofile(count)
        try:
            simulate_run(scenario, Path(folder) / "run")
        finally:
            sys.setprofile(before)
            threading.setprofile(before)
    return counts


def _name(code: CodeType) -> str:
    """Return "folder/file.py function" for functions of the product, or "". Comprehensions are
    functions in some versions of Python only, and those without a name are not found again."""
    _, found, file = code.co_filename.rpartition("/muster/")
    if not found or "site-packages" in code.co_filename or file.startswith(_EMULATION):
        return ""
    return f"{file} {code.co_qualname}" if code.co_name[0] != "<" else ""


def recorded() -> Mapping[str, Work]:
    """Read the committed counts of every fleet."""
    with RECORD.open(newline="", encoding="utf-8") as file:
        rows = [*csv.DictReader(file)]
    return {name: {row["counted"]: float(row[name] or 0) for row in rows} for name in FLEETS}


def record(works: Mapping[str, Work]) -> None:
    """Write the counts of every fleet, to be committed."""
    counted = [*TOTALS, *sorted({each for work in works.values() for each in work} - {*TOTALS})]
    with RECORD.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["counted", *works])
        for each in counted:
            writer.writerow([each, *(f"{work.get(each, 0):g}" for work in works.values())])


def main() -> None:
    works = {name: work_of(name) for name in FLEETS}
    record(works)
    rows = [("a round of", works), *((each, [w[each] for w in works.values()]) for each in TOTALS)]
    for first, rest in rows:
        cells = (each if isinstance(each, str) else f"{each:,.1f}" for each in rest)
        sys.stdout.write(f"{first:34}" + "".join(f"{cell:>12}" for cell in cells) + "\n")


if __name__ == "__main__":
    main()
