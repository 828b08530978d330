"""The sections of the report as data: every section is a small function, and SECTIONS lists them.

To add a section, write a function that takes the account and the summary and returns a
`ReportSection`, or None if it has nothing to say. Then put it where it belongs in SECTIONS.
sections.html shows all sections alike and escapes everything in them. The sections on weights are
in weight_sections.py, those on simulated device state in life_sections.py, those on links in
link_sections.py.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pandas as pd

from muster.emulator.records.account import Account
from muster.emulator.records.calls import OUTCOMES
from muster.emulator.records.scenario_time import lockstep, round_durations
from muster.emulator.records.summary import (
    bytes_text,
    clean,
    number_text,
    other_metrics,
    percent_text,
    seconds_text,
    target_text,
)
from muster.emulator.records.worsening import worsening_text
from muster.emulator.report import (
    app_metrics,
    coverage,
    energy,
    expectations,
    failures,
    faults,
    pace,
    participation,
    privacy,
    secure_sums,
    spread,
    staleness,
    times,
    utility_curves,
    willingness,
)
from muster.emulator.report import life_sections as life
from muster.emulator.report import link_sections as link
from muster.emulator.report import weight_sections as weight
from muster.emulator.report.balance_section import represented
from muster.emulator.report.figures import course_finding, measured_metrics, traffic_finding
from muster.emulator.report.losses import lost_updates
from muster.emulator.report.section import ReportSection, ReportTable, Summary
from muster.emulator.report.training_times import ON_THIS_MACHINE, modelled_training

ENDS = 20
"""Rounds shown from the start and from the end of a long run."""

MOST_CLIENTS = 1000

_METRICS = 3
"""The most other metrics of the task in the headline, and of groups and devices."""

_COHORT = ("called", "accepted", "folded")

_LASTED = (
    "A round lasts in scenario time until the next one opens; how long it took on this machine "
    "depends on what else the machine did."
)


def headline(account: Account, summary: Summary) -> ReportSection:
    final, started = summary["final"], datetime.fromtimestamp(account.run.started_at, UTC)
    facts = [("loss", number_text(final["loss"]))]
    if "accuracy" in final:
        facts.append(("accuracy", percent_text(final["accuracy"])))
    facts += [(clean(n), number_text(v)) for n, v in [*other_metrics(final).items()][:_METRICS]]
    if account.counts_versions:
        facts.append(("versions", f"{summary['rounds'] - summary['empty_rounds']:,}"))
        if summary["empty_rounds"]:
            facts.append(("rounds without a version", f"{summary['empty_rounds']:,}"))
    else:
        facts.append(("rounds", f"{summary['rounds']:,}"))
    facts += [
        *_times(account, summary),
        ("participation", percent_text(summary["participation_rate"])),
        ("updates folded", f"{summary['updates_folded']:,}"),
        ("up", bytes_text(summary["bytes_up"])),
        ("down", bytes_text(summary["bytes_down"])),
    ]
    devices = f"{summary['enrolled']:,} of {summary['population']:,} devices enrolled"
    parts = [f"Started {started:%Y-%m-%d %H:%M} UTC; {devices}.", *why_ended(summary)]
    if "worse" in summary:
        parts.append(f"Warning: {worsening_text(summary['worse'])}.")
    if "target" in summary:
        parts.append(f"Target: {target_text(summary)}.")
    return ReportSection(clean(summary["name"]), " ".join(filter(None, parts)), facts)


def why_ended(summary: Summary) -> list[str]:
    """How the run ended, as a sentence, if the ledger says more of it than its status."""
    detail = clean(summary["detail"] or "").rstrip(".")
    return [f"It {_ENDED.get(summary['status'], summary['status'])}: {detail}."] if detail else []


_ENDED = {"stopped": "was stopped"}


def _times(account: Account, summary: Summary) -> list[tuple[str, str]]:
    """The time of all rounds: in lockstep that of the scenario, too."""
    measured = ("time in rounds on this machine", seconds_text(summary["seconds"]))
    modelled = summary.get("scenario_s")
    if modelled is None or not lockstep(account):
        return [measured]
    return [("scenario time", seconds_text(modelled)), measured]


def learning(account: Account, summary: Summary) -> ReportSection:
    measured = measured_metrics(account)
    text = (
        "A curve that has become flat shows that training has converged. If a curve turns back, "
        "the model is getting worse again. An empty round leaves the model, and the curve, as it "
        "was."
    )
    if len(measured) > 1:
        return ReportSection("Learning", text, figure="learning")
    ends = [course_finding(str(name), column.dropna()) for name, column in measured.items()]
    only = "No version of the model was evaluated." if measured.empty else f"{'. '.join(ends)}."
    return ReportSection("Learning", only)


def groups(account: Account, summary: Summary) -> ReportSection | None:
    parts, devices = (summary["final"].get(name, {}) for name in ("groups", "devices"))
    if not parts and not devices:
        return None
    measured = [part.get("metrics", {}) for part in parts.values()]
    others = list(dict.fromkeys(name for metrics in measured for name in metrics))[:_METRICS]
    rows = [
        [clean(name), f"{part['examples']:,}", number_text(part["loss"]),
         percent_text(part.get("accuracy")), *(number_text(metrics.get(other)) for other in others)]
        for (name, part), metrics in zip(parts.items(), measured, strict=True)
    ]  # fmt: skip
    text = (
        "How well the model works on the data of each group and device. A good mean can hide a "
        "group, or a tail of devices, that the model serves badly."
    )
    columns = ["group", "examples", "loss", "accuracy", *map(clean, others)]
    table = ReportTable(columns, rows) if rows else None
    drawn = "groups" if spread.groups(account) else ""
    points = [*spread.single_values(account), *_spread_points(devices)]
    return ReportSection("Groups and devices", text, figure=drawn, table=table, points=points)


def _spread_points(devices: Mapping[str, Any]) -> list[str]:
    """Sentences on how the task's other metrics are spread over devices."""
    return [
        f"Devices: {clean(name)} {number_text(spread['min'])} to {number_text(spread['max'])}, "
        f"median {number_text(spread['median'])}, a tenth below {number_text(spread['p10'])}."
        for name, spread in [*devices.get("metrics", {}).items()][:_METRICS]
    ]


def losses(account: Account, summary: Summary) -> ReportSection | None:
    called = int(account.rounds["called"].sum())
    if not called:
        return None
    rows = [
        [what, reason, f"{count:,}", percent_text(count / called)]
        for what, reason, count in lost_updates(account)
    ]
    if not rows:
        return None
    text = "How calls ended without a folded update, and why. The most frequent case comes first."
    columns = ["what happened", "reason", "count", "share of calls"]
    note = f"{called:,} calls in all."
    return ReportSection("Losses", text, table=ReportTable(columns, rows, note, words=2))


def traffic(account: Account, summary: Summary) -> ReportSection:
    if len(account.rounds) < 2:
        return ReportSection("Traffic", f"{traffic_finding(account)}.")
    text = (
        "Bytes sent since the start. The slope changes when other devices take part. Orange marks "
        "updates that were sent but not folded."
    )
    return ReportSection("Traffic", text, figure="bytes")


def disturbances(account: Account, summary: Summary) -> ReportSection | None:
    faults = [
        (fault.at, [fault.fault, fault.target, fault.status, fault.detail])
        for fault in account.faults.itertuples()
    ]
    deaths = [
        (
            event["at"],
            [event["event"], event["process"], event.get("cause", ""), event.get("status", "")],
        )
        for event in account.events("died", "restarted")
    ]
    found = sorted([*faults, *deaths], key=lambda row: row[0])
    if not found:
        return None
    start = account.run.started_at
    rows = [[seconds_text(max(0.0, at - start)), *map(_text, cells)] for at, cells in found]
    columns = ["after", "event", "target", "state", "detail"]
    text = "Faults that were injected, processes that died, and restarts."
    return ReportSection(
        "Disturbances", text, table=ReportTable(columns, *_ends(rows, "faults"), words=5)
    )


def rounds(account: Account, summary: Summary) -> ReportSection | None:
    modelled = lockstep(account)
    lasted = round_durations(account)
    rows = [
        [
            str(row["round"]), row["outcome"], *(f"{row[key]:,}" for key in _COHORT),
            number_text(row["effective_size"]), number_text(row["loss"]),
            percent_text(row["accuracy"]),
            *([_duration(lasted[row["round"]])] if modelled else []), seconds_text(row["seconds"]),
            bytes_text(row["bytes_up"]), bytes_text(row["bytes_down"]),
        ]
        for row in account.round_totals.to_dict("records")
    ]  # fmt: skip
    times = ["scenario time", ON_THIS_MACHINE] if modelled else ["time"]
    columns = ["round", "outcome", *_COHORT, "effective size", "loss",
               "accuracy", *times, "up", "down"]  # fmt: skip
    text = (
        "The effective size is the number of equally weighted updates that would average out noise "
        "as well as the weighted updates of the round. If it is far below the number of folded "
        "updates, a few updates dominate the round. "
    )
    text += _LASTED if modelled else "The time was measured on this machine."
    table = ReportTable(columns, *_ends(rows, "rounds"), words=2)
    return ReportSection("Rounds", text, table=table, folded=True) if rows else None


def _duration(seconds: float) -> str:
    return "–" if pd.isna(seconds) else seconds_text(seconds)


def clients(account: Account, summary: Summary) -> ReportSection | None:
    totals, modelled = account.client_totals, modelled_training(account)
    if len(modelled):
        totals = totals.assign(train_s=totals["client"].map(modelled))
    rows = [
        [
            clean(row["client"]), clean(row["group"]), f"{row['examples']:,}",
            *(f"{row[outcome]:,}" for outcome in OUTCOMES),
            _duration(row["train_s"]),
            bytes_text(row["bytes_up"]), bytes_text(row["bytes_down"]),
            "" if pd.notna(row["enrolled_at"]) else "never enrolled",
        ]
        for row in totals.head(MOST_CLIENTS).to_dict("records")
    ]  # fmt: skip
    training = "modelled training" if len(modelled) else f"mean training {ON_THIS_MACHINE}"
    columns = ["device", "group", "examples", *OUTCOMES, training, "up", "down", ""]
    left_out = len(totals) - len(rows)
    note = f"{left_out:,} more are in ledger.sqlite." if left_out else ""
    text = "How many updates of each device were folded or lost, over all rounds."
    return (
        ReportSection("Devices", text, table=ReportTable(columns, rows, note, words=2), folded=True)
        if rows
        else None
    )


def scenario(account: Account, summary: Summary) -> ReportSection | None:
    text = "The scenario that was run, with every default. `muster run` on this file repeats it."
    toml = account.scenario_text
    return ReportSection("Scenario", text, listing=toml, folded=True) if toml else None


def fingerprint(account: Account, summary: Summary) -> ReportSection | None:
    found = summary["fingerprint"]
    if found is None:
        return None
    all_of_them = found if isinstance(found, list) else [found]
    keys = list(dict.fromkeys(key for one in all_of_them for key in one))
    rows = [[_text(one.get(key)) for key in keys] for one in all_of_them]
    text = (
        "If this fingerprint is the same, then the same scenario and seed give the same model, bit "
        "for bit."
    )
    if len(rows) > 1:
        text = (
            "The devices differ in software or hardware that affects the bits of training, so "
            "hashes of models cannot be compared."
        )
    sha256 = summary["model_sha256"]
    note = f"model.safetensors has SHA-256 {clean(sha256)}" if sha256 else ""
    table = ReportTable(keys, rows, note, words=len(keys))
    return ReportSection("Fingerprint", text, table=table, folded=True)


FILES = {
    "scenario.toml": "the scenario that was run, with every default",
    "population.csv": "every device: group, enrollment, covariates Z, true propensities",
    "plan.csv": "the plan for each group and round",
    "faults.json": "the faults of the run: their targets and times, as they follow from the seed",
    "summary.json": "status, final metrics and totals, for programs",
    "ledger.sqlite": "the record of the run: rounds, answers, contributions, transfers, estimates, "
    "devices, evaluations",
    "manifest.json": "checksums of the files, with which every reader checks them",
    "journal.jsonl": "every event of the run, one JSON object per line",
    "model.safetensors": "the model at the end of the run",
    "models": "the versions of the model that are kept",
    "best.safetensors": "the best version of the model, with server.best",
    "versions": "every n-th version of the model, with server.keep_versions",
    "memory.bin": "the last update of every device, for an aggregator that needs them",
    "updates": "the updates of every round as they arrived, with server.keep_updates",
    "sums": "the secure sum of every round, with server.secure.keep_sums",
    "strategy": "what the strategy of an app wanted of every round, and the replies that it got",
    "figures": "the charts of this page as figures, for papers",
    "report.html": "this page",
    "address.json": "where the server listened, and its process id",
    "revoked.json": "the credentials that were revoked",
    "logs": "the log of each process; look here if something went wrong",
    "devices": "the state that each device keeps for a restart",
    "setup": "the configurations of the processes",
}


def files(account: Account, summary: Summary) -> ReportSection:
    there = {path.name for path in account.folder.iterdir()} | {"report.html"}
    rows = [[name, what] for name, what in FILES.items() if name in there]
    table = ReportTable(["file", "what it is"], rows, words=2, wraps=True)
    return ReportSection("Files", "The files in the run folder.", table=table, folded=True)


SECTIONS: Sequence[Callable[[Account, Summary], ReportSection | None]] = (
    learning,
    expectations.section,
    app_metrics.section,
    groups,
    pace.section,
    participation.section,
    represented,
    willingness.section,
    utility_curves.section,
    staleness.section,
    privacy.section,
    secure_sums.section,
    coverage.section,
    weight.weights,
    weight.propensities,
    weight.overlap,
    weight.calibration,
    weight.shares,
    weight.estimates,
    life.calls,
    life.reasons,
    life.batteries,
    life.planned,
    losses,
    failures.section,
    times.section,
    traffic,
    energy.section,
    link.rates,
    link.waits,
    link.matrix,
    link.use,
    faults.section,
    disturbances,
    rounds,
    clients,
    scenario,
    fingerprint,
    files,
)


def _ends(rows: list[list[str]], table: str) -> tuple[list[list[str]], str]:
    """The first and the last `ENDS` rows, and a note about the rows between them."""
    if len(rows) <= 2 * ENDS:
        return rows, ""
    gap = ["…"] * len(rows[0])
    note = (
        f"The first and last {ENDS} of {len(rows):,} rows are shown; all are in ledger.sqlite, "
        f"table {table}."
    )
    return [*rows[:ENDS], gap, *rows[-ENDS:]], note


def _text(value: Any) -> str:
    return "" if value is None or value is pd.NA else clean(value)
