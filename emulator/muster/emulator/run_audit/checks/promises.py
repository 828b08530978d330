"""Checks of what follows from the scenario before the run: the configuration of the server, the
population, and the files that say what is planned."""

import csv
import io
import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from muster.common.errors import MusterError
from muster.emulator.fleet.lives import by_group, z_of
from muster.emulator.fleet.scenario_faults import FAULTS
from muster.emulator.planning.server_view import moments_of
from muster.emulator.records.inputs import MAY_CHANGE, leave_out
from muster.emulator.run_audit.check import Check
from muster.emulator.run_audit.evidence import Evidence
from muster.emulator.run_audit.leaves import MISSING, agree, compare, compare_leaves, table_of
from muster.emulator.run_audit.promises import (
    OF_THE_MACHINE,
    planned_files,
    promised_config,
    promised_faults,
)
from muster.emulator.run_audit.result import CheckLog
from muster.emulator.run_folder.folder import SCENARIO
from muster.emulator.scenario.population import Resident
from muster.server.account.run_rows import CLIENTS

_SERVER = "setup/server.json"


def check_configuration(evidence: Evidence, log: CheckLog) -> None:
    """The server was configured as the scenario says."""
    found = evidence.config
    _check_readable(evidence, log)
    made = found if isinstance(found, str) else promised_config(evidence, found)
    if isinstance(found, str) or isinstance(made, str):
        log.skip(f"{_SERVER}: {made}")
        return
    # A key that is not there is one that an earlier muster did not write.
    keys = found.model_fields_set - OF_THE_MACHINE
    expected, there = (config.model_dump(include=keys) for config in (made, found))
    for config in (expected, there):  # a scenario that was written may have another order
        config["x"] = {group: sorted(names) for group, names in config.get("x", {}).items()}
    for text in keys & {"task", "training"}:  # JSON inside JSON
        expected[text], there[text] = json.loads(expected[text]), json.loads(there[text])
    for config in (expected, there):  # a resumed run may have others
        leave_out(config, MAY_CHANGE)
    compare_leaves(log, "{} in " + _SERVER, expected, there)


def _check_readable(evidence: Evidence, log: CheckLog) -> None:
    """The scenario and the configuration can be read by the muster that has written the ledger."""
    if not evidence.current:
        return
    planned, config = evidence.planned, evidence.config
    if not isinstance(config, str):
        run = evidence.one("SELECT id FROM run")
        log.compare(f"run in {_SERVER}", run, config.run)
        path = evidence.folder / "setup/run"
        if path.is_file():
            log.compare("setup/run", run, path.read_text(encoding="utf-8").strip())
    if isinstance(planned, str):
        found = planned if isinstance(config, str) else planned.splitlines()[-1].strip()
        log.require(isinstance(config, str), SCENARIO, "a scenario that can be run", found)
    elif isinstance(config, str):
        log.require(False, _SERVER, "a configuration that can be read", config)
    else:
        rows = {tuple(row) for row in evidence.rows("SELECT kind, name, sha256 FROM inputs")}
        told = {(each.kind, each.name, each.sha256) for each in config.inputs}
        if told:
            log.compare(f"inputs in {_SERVER}", sorted(rows), sorted(told))


def check_population(evidence: Evidence, log: CheckLog) -> None:
    """The devices are those of the scenario, with their covariates and true propensities."""
    if isinstance(evidence.planned, str):
        log.skip(f"the population: {evidence.planned}")
        return
    run = next(evidence.rows("SELECT * FROM run"), None)
    if run is not None:
        log.compare("population of the run", len(evidence.residents), run["population"])
        moments = moments_of(evidence.planned, evidence.residents)
        compare_leaves(log, "moment {} of the run", moments, table_of(run["moments"]))
    _check_clients(evidence, log)
    if isinstance(evidence.config, str):
        log.skip(f"the files of the plan: {evidence.config}")
        return
    with tempfile.TemporaryDirectory(prefix="muster-audit-") as scratch:
        try:
            planned_files(evidence, evidence.config, Path(scratch))
        except MusterError as error:
            log.skip(f"the files of the plan: {error}")
            return
        for name in ("population.csv", "plan.csv"):
            _check_file(evidence.folder / name, Path(scratch) / name, log)


def _check_clients(evidence: Evidence, log: CheckLog) -> None:
    """Compare the table of the devices with the population and the configuration."""
    config = evidence.config
    limited = _is_limited(evidence)
    members = {} if isinstance(config, str) else {m.client: m for m in config.population}
    covariates = _covariates(evidence)
    rows = {row["client"]: row for row in evidence.rows(f"SELECT {CLIENTS.names} FROM clients")}
    for resident in evidence.residents:
        name, row = resident.client, rows.pop(resident.client, None)
        if limited and not resident.enrolled:
            log.compare("row of a device that may not train", None, row and name, device=name)
            continue
        if row is None:
            log.compare("row in clients", name, None, device=name)
            continue
        expected: dict[str, Any] = {
            "group": resident.group,
            "position": resident.index,
            "enrolled": int(resident.enrolled),
        }
        if name in members:
            expected["examples"] = members[name].examples
        for column, value in expected.items():
            log.compare(f"{column} in clients", value, row[column], device=name)
        _check_reported(evidence, resident, covariates[name], row, log)
    for name in rows:
        log.compare("row in clients", None, name, device=name)


def _check_reported(
    evidence: Evidence, resident: Resident, z: Mapping[str, float], row: Any, log: CheckLog
) -> None:
    """Compare what a device has told when it enrolled."""
    name, limited = resident.client, _is_limited(evidence)
    connected = row["enrolled_at"] is not None
    log.require(
        connected == (row["sessions"] > 0) == (row["fingerprint"] is not None),
        "enrolled_at, sessions and fingerprint", "all of them or none",
        (row["enrolled_at"], row["sessions"], row["fingerprint"]), device=name,
    )  # fmt: skip
    if connected:
        capacity = _capacity(evidence, resident.group)
        compare(log, "capacity in clients", capacity, row["capacity"], device=name)
    expected = z if connected or not limited else None
    found = None if row["z"] is None else table_of(row["z"])
    compare_leaves(log, f"covariate {{}} of {name} in clients", expected, found)


def _is_limited(evidence: Evidence) -> bool:
    """Whether the server knows a device only when it has connected."""
    return bool(evidence.server.get("information", "full") == "limited")


def _covariates(evidence: Evidence) -> Mapping[str, Mapping[str, float]]:
    """The covariates Z of every device as numbers, by column."""
    assert not isinstance(evidence.planned, str)
    found = dict[str, Mapping[str, float]]()
    for group, residents in by_group(evidence.planned, evidence.residents):
        columns = z_of(group, residents)
        for place, resident in enumerate(residents):
            found[resident.client] = {name: float(of[place]) for name, of in columns.items()}
    return found


def _capacity(evidence: Evidence, group: str) -> float | None:
    assert not isinstance(evidence.planned, str)
    found = {each.name: each.device.capacity for each in evidence.planned.groups}
    return found.get(group)


def _check_file(path: Path, made: Path, log: CheckLog) -> None:
    """Compare a table of the run folder with the one that was made again, cell by cell."""
    if not path.is_file():
        if made.is_file():
            log.skip(f"{path.name} is missing; it follows from the scenario (muster plan)")
        return
    expected, found = (_cells(file.read_text(encoding="utf-8")) for file in (made, path))
    log.compare(f"rows of {path.name}", len(expected), len(found))
    head = expected[0] if expected else []
    for number, (right, there) in enumerate(zip(expected, found, strict=False)):
        log.compare(f"cells in row {number} of {path.name}", len(right), len(there))
        for column, one, other in zip(head, right, there, strict=False):
            same = one == other or agree(_number(one), _number(other))
            name = f"{column} in row {number} of {path.name}"
            log.compare(name, other if same else one, other)


def _cells(text: str) -> Sequence[Sequence[str]]:
    return list(csv.reader(io.StringIO(text)))


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def check_timeline(evidence: Evidence, log: CheckLog) -> None:
    """The timeline of the faults is that of the scenario."""
    if isinstance(evidence.planned, str):
        log.skip(f"{FAULTS}: {evidence.planned}")
        return
    faults, path = promised_faults(evidence), evidence.folder / FAULTS
    expected: Any = None
    if faults is not None:
        expected = json.loads(faults.timeline.model_dump_json(exclude_none=True))
    if not path.is_file():
        if expected is not None:
            log.skip(f"{FAULTS} is missing; it follows from the scenario (muster plan)")
        return
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        found = str(error)
    compare_leaves(log, "{} in " + FAULTS, MISSING if expected is None else expected, found)


CHECKS = (
    Check(
        "the server's configuration",
        "`setup/server.json` is what the scenario gives, with every default.",
        check_configuration,
    ),
    Check(
        "the population",
        "The devices in the ledger, `population.csv` and `plan.csv` are those of the scenario and "
        "its seed: groups, covariates, examples, enrollment, propensities, and what is planned.",
        check_population,
    ),
    Check(
        "the timeline of faults",
        "`faults.json` has the faults of the scenario, with the targets and times of its seed.",
        check_timeline,
    ),
)
