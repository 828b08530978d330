"""Checks of evaluations: which are there, and whether their rows agree."""

import json
import math
import operator
from bisect import bisect_left
from collections.abc import Iterator
from typing import Any

from muster.emulator.run_audit.check import Check
from muster.emulator.run_audit.evidence import Evidence, Row
from muster.emulator.run_audit.leaves import compare, table_of
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
    if config.server.evaluate_on == "devices":
        _check_on_devices(config, reported_by_devices(evidence), there, log)
        return
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
    if config.server.evaluate_on != "server":
        _check_reports(evidence, groups, log)
        return
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


def reported_by_devices(evidence: Evidence) -> dict[int, dict[str, Row]]:
    """What devices have reported of each version with the updates of the first round that had any,
    by client."""
    query = (
        "SELECT rowid AS place, * FROM contributions WHERE outcome IN ('folded', 'late') "
        "AND received_examples >= 1 AND received_loss IS NOT NULL ORDER BY rowid"
    )
    rounds = evidence.rows("SELECT contributions FROM rounds ORDER BY round")
    ends = [row["contributions"] for row in rounds]
    found, first = dict[int, dict[str, Row]](), dict[int, int]()
    for row in evidence.rows(query):
        version, entered = row["base_version"], bisect_left(ends, row["place"])
        if entered < len(ends) and first.setdefault(version, entered) == entered:
            found.setdefault(version, {}).setdefault(row["client"], row)
    return found


def _check_on_devices(
    config: ServerProcess,
    reported: dict[int, dict[str, Row]],
    there: dict[int, Row],
    log: CheckLog,
) -> None:
    """Compare evaluations with the means of what devices have reported."""
    for version in sorted(reported.keys() | there.keys()):
        what = f"evaluation of version {version}"
        log.compare(
            f"number of rows of the {what}", int(version in reported), int(version in there)
        )
        log.compare(f"remainder of the {what}", 0, version % config.server.evaluate_every)
        if version in reported and version in there:
            _compare_mean(log, what, [*reported[version].values()], there[version])


def _check_reports(evidence: Evidence, groups: dict[str, str], log: CheckLog) -> None:
    """Compare the rows of devices and groups with what devices have reported."""
    reported = reported_by_devices(evidence)
    devices, of_groups = dict[tuple[int, str], Row](), dict[tuple[int, str], Row]()
    for row in evidence.rows("SELECT * FROM device_evaluations"):
        devices[row["version"], row["client"]] = row
    for row in evidence.rows("SELECT * FROM group_evaluations"):
        of_groups[row["version"], row["group"]] = row
    parts = dict[tuple[int, str], list[Row]]()
    for version, rows in reported.items():
        for client, row in rows.items():
            parts.setdefault((version, groups.get(client, "")), []).append(row)
    single = {(v, client): [row] for v, rows in reported.items() for client, row in rows.items()}
    for table, found, expected in (
        ("device_evaluations", devices, single),
        ("group_evaluations", of_groups, parts),
    ):
        for key in sorted(found.keys() | expected.keys()):
            where = f"{table} of version {key[0]}, {key[1]}"
            log.compare(f"number of rows in {where}", int(key in expected), int(key in found))
            if key in found and key in expected:
                total = sum(int(row["received_examples"]) for row in expected[key])
                log.compare(f"examples in {where}", total, found[key]["examples"])
                _compare_mean(log, where, expected[key], found[key])


def _compare_mean(log: CheckLog, what: str, reports: list[Row], row: Row) -> None:
    """Compare metrics with the mean of reports, weighted by examples. Metrics other than loss and
    accuracy are known of many only if all of them have them."""
    sizes = [report["received_examples"] for report in reports]
    measured = [
        {
            **json.loads(report["received_metrics"] or "{}"),
            "loss": report["received_loss"],
            "accuracy": report["received_accuracy"],
        }
        for report in reports
    ]
    found = _measured(row)
    found.pop("devices", None)
    for name in sorted(found.keys() | set.intersection(*map(set, measured))):
        values = [each.get(name) for each in measured]
        mean = None
        if None not in values:
            mean = math.fsum(map(operator.mul, sizes, values)) / sum(sizes)
        compare(log, f"{name} in {what}", mean, found.get(name), tolerance=_ROUNDED)


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
        measured = [_measured(part) for part in parts]
        for name in dict.fromkeys(name for of in measured for name in of):
            values = [of.get(name) for of in measured]
            if total and all(isinstance(value, int | float) for value in values):
                weighted = (p["examples"] * v for p, v in zip(parts, values, strict=True))
                found = _measured(row).get(name)
                compare(log, f"{name} in {where}", math.fsum(weighted) / total, found,
                        tolerance=_ROUNDED)  # fmt: skip


def _measured(row: Row) -> dict[str, Any]:
    """The loss, the accuracy and the other metrics of a row."""
    return {**table_of(row["metrics"]), "loss": row["loss"], "accuracy": row["accuracy"]}


CHECKS = (
    Check(
        "evaluations",
        "The loss and accuracy of a round are those of its version.",
        check_evaluations,
    ),
    Check(
        "evaluations that are due",
        "The versions that `server.evaluate_every` names have one each, the last version of a "
        'completed run too, and no other version has. With `server.evaluate_on = "devices"` those '
        "that devices have reported, with the means of the reports.",
        check_due,
    ),
    Check(
        "evaluations of groups and devices",
        "Each evaluation has all of them if the scenario asks for them, with the same examples, "
        "and a group has the mean of its devices.",
        check_parts,
    ),
)
