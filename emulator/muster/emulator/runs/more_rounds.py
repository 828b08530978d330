"""More rounds for a run that has ended, or will: whether the rounds so far are those of a longer
run, and the new number in the folder's scenario."""

import json
from collections.abc import Iterator
from pathlib import Path

import tomli_w

from muster.common.errors import ConfigError
from muster.common.files import write_atomic
from muster.common.toml import parse_toml
from muster.emulator.records.inputs import ROUNDS, asked_rounds
from muster.emulator.records.ledger_file import read_ledger
from muster.emulator.run_folder.folder import LEDGER, SCENARIO, afresh
from muster.emulator.scenario.scenario import Scenario
from muster.server.aggregators import Need

_CONFIG = "setup/server.json"


def asked_before(folder: Path) -> int | None:
    """The number of rounds that the newest server of a run was asked for; None if none was."""
    try:
        rounds = json.loads((folder / _CONFIG).read_bytes())["server"]["rounds"]
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return rounds if isinstance(rounds, int) else None


def require_rounds(folder: Path, scenario: Scenario) -> None:
    """Check that a run may go on with the number of rounds of its scenario.

    Raises:
        ConfigError: it is another number than before, and that number has decided something in
            earlier rounds; or more rounds are committed.
    """
    before, now = asked_before(folder), scenario.server.rounds
    if before is None or now == before:
        return
    where = f"{folder}: server.rounds = {now}, but the run began with {before}"
    if reasons := [*_decided_by_rounds(scenario)]:
        raise ConfigError(f"{where}, {reasons[0]}; go on with {before}, or {afresh(folder)}")
    if (done := _counted(folder, scenario)) > now:
        raise ConfigError(f"{where} and has made {done}; expected at least {done}")


def lacks_rounds(folder: Path, scenario: Scenario) -> bool:
    """Whether a run that has ended as completed has still rounds to do, because it was asked for
    more since."""
    now = scenario.server.rounds
    if asked_before(folder) not in (None, now):
        return True
    may_end_early = scenario.server.ends_early or scenario.task.hosted
    return not may_end_early and _counted(folder, scenario) < now


def _decided_by_rounds(scenario: Scenario) -> Iterator[str]:
    """What the number of rounds has decided in earlier ones."""
    server = scenario.server
    if server.mode.outlives_round():
        yield (
            f"and in the mode {server.mode.kind} the end of the run drops the updates that were on "
            f"their way"
        )
    if scenario.task.hosted:
        yield "and an app may plan its rounds by their number"
    if scenario.faults:
        yield "from which the times of its faults follow"
    if {Need.PROPENSITIES, Need.SHARES} & server.aggregator.needs():
        yield f"over which the true values of {server.aggregator.kind} are means"


def _counted(folder: Path, scenario: Scenario) -> int:
    """The number of committed rounds or, if the mode counts them, of versions."""
    path = folder / LEDGER
    if not path.is_file() or not path.stat().st_size:
        return 0
    column = "version" if scenario.server.mode.counts_versions else "round"
    with read_ledger(path) as ledger:
        (found,) = ledger.execute(f"SELECT coalesce(max({column}), 0) FROM rounds").fetchone()
    return int(found)


def write_rounds(folder: Path, rounds: int) -> None:
    """Write a number of rounds into the scenario of a run folder, unless it has that. If that is
    interrupted, the folder has the scenario of before, which is still that of the run."""
    path = folder / SCENARIO
    values = parse_toml(path.read_text(encoding="utf-8"), str(path))
    if (before := values["server"]["rounds"]) != rounds:
        known = asked_rounds(folder)
        asked = {"began": known.get("began", before), "asked": [*known.get("asked", []), rounds]}
        write_atomic(folder / ROUNDS, json.dumps(asked).encode())
        values["server"]["rounds"] = rounds
        write_atomic(path, tomli_w.dumps(values).encode())
