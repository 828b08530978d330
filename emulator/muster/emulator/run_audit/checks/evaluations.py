"""Checks of evaluations: which are there, and whether their rows agree."""

import math
from collections.abc import Iterator

from muster.emulator.run_audit.check import Check
from muster.emulator.run_audit.evidence import Evidence, Row
from muster.emulator.run_audit.leaves import compare
from muster.emulator.run_audit.result import CheckLog
from muster.server.settings.process import ServerProcess

_ROUNDED = 1e-5
"""The largest relative difference of means that were added up in another order, in float32."""


def check_evaluations(evidence: Evidence, log: CheckLog) -> None:
    """A round has the loss and the accuracy of the evaluation of its version."""
    query = (
        "SELECT r.round, r.version, r.loss, r.accuracy, e.round AS made, e.loss AS measured, "
        "e.accuracy AS accuracy_measured FROM rounds r LEFT JOIN evaluations e "
        "ON r.version = e.version AND r.outcome = 'aggregated' ORDER BY r.round"
    )
    for row in evidence.rows(query):
        if row["made"] is not None:
            log.compare("round of the evaluation", row["round"], row["made"], row["round"])
        log.compare("loss", row["measured"], row["loss"], row["round"])
        log.compare("accuracy", row["accuracy_measured"], row["accuracy"], row["round"])


def check_due(evidence: Evidence, log: CheckLog) -> None:
    """The versions that `evaluate_every` names were evaluated, and the last one, and no other."""
    if isinstance(config := evidence.config, str):
        log.skip(f"which versions were to be evaluated: {config}")
        return
    made = {r["version"]: r["round"] for r in evidence.rows("SELECT version, round FROM versions")}
    there = {row["version"]: row for row in evidence.rows("SELECT * FROM evaluations")}
    due = set(_due(config, made))
    completed = evidence.status == "completed"
    if completed and made:
        due.add(max(made))
    elif evidence.status is None or evidence.servers > 1:
        due |= {v for v in there if v in made}  # the last one of an earlier end
    for version in sorted(due | there.keys()):
        if completed or version in there:
            what = f"evaluation of version {version}"
            times = int(version in there)
            log.compare(f"number of rows of the {what}", int(version in due), times)
        if version in there:
            log.compare(f"round of the {what}", made.get(version), there[version]["round"])
    if evidence.status is None:
        log.skip("evaluations that are missing: the run goes on, or its server was killed")


def _due(config: ServerProcess, made: dict[int, int]) -> Iterator[int]:
    """The versions that `evaluate_every` names."""
    settings = config.server
    for version, round in made.items():
        count = version if settings.mode.counts_versions else round
        if count % settings.evaluate_every == 0:
            yield version


def check_parts(evidence: Evidence, log: CheckLog) -> None:
    """Every evaluation has the same groups and devices, and those of a group are its mean."""
    if isinstance(config := evidence.config, str):
        log.skip(f"evaluations of groups and devices: {config}")
        return
    groups = {member.client: member.group for member in config.population}
    versions = {row["version"]: row["round"] for row in evidence.rows("SELECT * FROM evaluations")}
    kinds = (
        ("group_evaluations", "group", set(groups.values()), config.server.evaluate_groups),
        ("device_evaluations", "client", set(groups), config.server.evaluate_devices),
    )
    for table, of, names, asked in kinds:
        rows = list(evidence.rows(f"SELECT * FROM {table} ORDER BY version"))
        examples = {row[of]: row["examples"] for row in rows[: len(names)]}
        for version in versions if asked else ():
            of_version = {row[of] for row in rows if row["version"] == version}
            for name in sorted(examples.keys() ^ of_version):
                log.compare(f"{of} {name} in {table} of version {version}", name in examples,
                            name in of_version)  # fmt: skip
        for row in rows:
            where = f"{table}, version {row['version']}, {row[of]}"
            log.require(asked and row["version"] in versions, f"row of {where}",
                        "one for an evaluation that measures them", row[of])  # fmt: skip
            log.require(row[of] in names, f"name in {where}", "one of the scenario", row[of])
            log.compare(f"examples in {where}", examples.get(row[of]), row["examples"])
            if table == "group_evaluations":
                log.compare(f"round in {where}", versions.get(row["version"]), row["round"])
    if config.server.evaluate_groups and config.server.evaluate_devices:
        _check_means(evidence, groups, log)


def _check_means(evidence: Evidence, groups: dict[str, str], log: CheckLog) -> None:
    """Compare the results of groups with the means of their devices."""
    devices = dict[tuple[int, str], list[Row]]()
    for row in evidence.rows("SELECT * FROM device_evaluations"):
        devices.setdefault((row["version"], groups.get(row["client"], "")), []).append(row)
    for row in evidence.rows("SELECT * FROM group_evaluations"):
        parts = devices.get((row["version"], row["group"]), [])
        where = f"group_evaluations, version {row['version']}, {row['group']}"
        total = sum(part["examples"] for part in parts)
        log.compare(f"examples in {where}", total, row["examples"])
        for name in ("loss", "accuracy"):
            values = [(part["examples"], part[name]) for part in parts]
            if total and all(value is not None for _, value in values):
                mean = math.fsum(size * value for size, value in values) / total
                compare(log, f"{name} in {where}", mean, row[name], tolerance=_ROUNDED)


CHECKS = (
    Check(
        "evaluations",
        "The loss and accuracy of a round are those of its version.",
        check_evaluations,
    ),
    Check(
        "evaluations that are due",
        "The versions that `server.evaluate_every` names have one each, the last version of a "
        "completed run too, and no other version has.",
        check_due,
    ),
    Check(
        "evaluations of groups and devices",
        "Each evaluation has all of them if the scenario asks for them, with the same examples, "
        "and a group has the mean of its devices.",
        check_parts,
    ),
)
