"""The summary of a run: the dict behind `summary.json`, and the same as text for people.

Everything is computed from the account, so a summary can be made again from the run folder alone.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from muster.common.clock_kinds import is_lockstep
from muster.common.files import write_atomic
from muster.emulator.records.energy import energy_of, energy_text, totals_of
from muster.emulator.records.failures import failures_of, failures_text
from muster.emulator.records.faults import faults_of, vacuous
from muster.emulator.records.judging import judge_run, judgement_text
from muster.emulator.records.parts import finite, metrics_of, parts_of
from muster.emulator.records.privacy import privacy_of, privacy_text
from muster.emulator.records.scenario_time import clock_of, time_after
from muster.emulator.records.worsening import worsening_of, worsening_text
from muster.server.account.run_rows import all_metrics
from muster.server.settings.server import Target

if TYPE_CHECKING:
    from muster.emulator.records.account import Account

SUMMARY, MODEL = "summary.json", "model.safetensors"

UNFINISHED = "unfinished"
"""Status of a run whose ledger has none: the run goes on, or its server was killed."""

PARTICIPATION = (
    "Participation is the number of folded updates divided by the number of enrolled devices times "
    "the number of rounds."
)
"""The definition; everything else that is called participation in texts of a run has this value."""

_OUTCOMES = ("folded", "late", "dropped", "refused", "duplicate")

_MOST_GROUPS = _MOST_METRICS = 5

_FILES = {
    "report.html": "report",
    SUMMARY: "summary",
    "ledger.sqlite": "ledger",
    MODEL: "model",
    "logs": "logs",
}


def summarise(account: "Account", status: str | None = None) -> dict[str, Any]:
    """Return the content of `summary.json`; docs/results.md explains every key.

    Args:
        status: how the run ended; used if the ledger has no status because the server was killed.
    """
    return outline(account, status) | {"model_sha256": _sha256(account.folder / MODEL)}


def outline(account: "Account", status: str | None = None) -> dict[str, Any]:
    """As `summarise`, but without reading the model file: `model_sha256` is None."""
    run, totals, sent = account.run, account.round_totals, account.contributions
    outcomes = _outcomes(account)
    bytes_up, bytes_down = account.traffic_totals
    summary = {
        "name": account.name,
        "run": run.id,
        "status": run.status or status or UNFINISHED,
        "detail": run.detail,
        "rounds": len(totals),
        "empty_rounds": int((totals["outcome"] == "empty").sum()),
        "counts": "versions" if account.counts_versions else "rounds",
        "clock": clock_of(account).get("kind"),
        "final": _final(account),
        "population": account.run.population,
        "enrolled": account.enrolled,
        "participation_rate": participation_rate(account),
        "updates_folded": outcomes["folded"],
        "outcomes": outcomes,
        "bytes_up": bytes_up,
        "bytes_down": bytes_down,
        "bytes_saved": int(sent["bytes_saved"].sum()),
        "seconds": float(totals["seconds"].sum()),
        "scenario_s": time_after(account, len(totals)),
        "model_sha256": None,
        "fingerprint": _fingerprint(account),
    }
    if failures := failures_of(account):
        summary["training_failed"] = failures
    if worse := worsening_of(account.evaluations):
        summary["worse"] = worse
    if not account.transfers.empty:
        summary["transfers"] = _transfers(account)
    if (energy := energy_of(account)) is not None:
        summary["energy"] = totals_of(energy)
    if spent := privacy_of(account):
        summary["privacy"] = spent
    if faults := faults_of(account):
        summary |= {"faults": faults, "vacuous": vacuous(faults)}
    if judged := judge_run(account):
        summary["expectations"] = [judgement.as_json() for judgement in judged]
    wanted = account.scenario.get("server", {}).get("target")
    return summary | (
        {"target": _target(account, wanted)}
        if wanted and Target.model_validate(wanted).given
        else {}
    )


def participation_rate(account: "Account") -> float | None:
    """Participation as `PARTICIPATION` defines it; None without enrolled devices or rounds."""
    opportunities = account.enrolled * len(account.rounds)
    return _outcomes(account)["folded"] / opportunities if opportunities else None


def participation_text(summary: Mapping[str, Any]) -> str:
    """For example "39.9 % of 22 enrolled devices × 96 rounds"."""
    rate = percent_text(summary["participation_rate"])
    return f"{rate} of {summary['enrolled']} enrolled devices × {summary['rounds']} rounds"


def write_summary(folder: Path, summary: Mapping[str, Any]) -> Path:
    """Write `summary.json` into the run folder, whole or not at all, and return its path."""
    path = folder / SUMMARY
    text = json.dumps(summary, indent=2, ensure_ascii=False, allow_nan=False)
    write_atomic(path, f"{text}\n".encode())
    return path


def read_summary(folder: Path) -> dict[str, Any]:
    """The content of `summary.json`; empty if the file is missing or not JSON."""
    try:
        summary = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return summary if isinstance(summary, dict) else {}


def describe(summary: Mapping[str, Any], folder: Path) -> str:
    """Describe a run in a few lines: its status, its results, and where its files are."""
    facts = {"status": _status_text(summary), **_result_facts(summary), **_traffic_facts(summary)}
    files = {what: str(folder / name) for name, what in _FILES.items() if (folder / name).exists()}
    lines = [f"{clean(summary['name'])}", *_aligned(facts), *_expectation_lines(summary)]
    return "\n".join([*lines, "", *_aligned(files)])


def failed_expectations(summary: Mapping[str, Any]) -> int:
    """The number of expectations of a run that do not hold."""
    return sum(not judgement["holds"] for judgement in summary.get("expectations", ()))


def _expectation_lines(summary: Mapping[str, Any]) -> list[str]:
    """A line for each expectation, after an empty one; none without expectations."""
    lines = [
        f"  {'holds' if judgement['holds'] else 'FAILS'}  {clean(judgement_text(judgement))}"
        for judgement in summary.get("expectations", ())
    ]
    return ["", *lines] if lines else []


def _outcomes(account: "Account") -> dict[str, int]:
    counts = account.contributions["outcome"].value_counts()
    return {outcome: int(counts.get(outcome, 0)) for outcome in _OUTCOMES}


def _final(account: "Account") -> dict[str, Any]:
    """The newest evaluation: round, version, loss, accuracy if the task has it, metrics, and the
    results of groups and devices if they were measured."""
    if account.evaluations.empty:
        return {"loss": None}
    last = account.evaluations.iloc[-1]
    accuracy = {} if math.isnan(last["accuracy"]) else {"accuracy": float(last["accuracy"])}
    fixed = {"round": int(last["round"]), "version": int(last["version"]), "loss": last["loss"]}
    final = metrics_of(last["metrics"]) | fixed | accuracy
    return {name: finite(value) for name, value in final.items()} | parts_of(account)


def other_metrics(final: Mapping[str, Any]) -> dict[str, float | None]:
    """The metrics of a final model beside loss and accuracy, from `final` of a summary."""
    fixed = {"round", "version", "loss", "accuracy", "groups", "devices"}
    numbers = int, float, type(None)
    return {n: v for n, v in final.items() if n not in fixed and isinstance(v, numbers)}


def _target(account: "Account", wanted: Mapping[str, Any]) -> dict[str, Any]:
    """The first evaluation that reaches every target value, with its rounds, times and bytes."""
    target = Target.model_validate(wanted)
    rows = account.evaluations
    reaches = [
        target.reached(all_metrics(row["loss"], row["accuracy"], metrics_of(row["metrics"])))
        for row in rows.to_dict("records")
    ]
    good = rows[reaches]
    asked = {name: value for name, value in wanted.items() if value not in (None, {})}
    if good.empty:
        costs = dict.fromkeys(("rounds", "scenario_s", "seconds", "bytes"))
        return {**asked, "reached": False, **costs}
    reached = int(good["round"].iloc[0])
    needed = account.round_totals[account.round_totals["round"] <= reached]
    return {
        **asked,
        "reached": True,
        "rounds": reached,
        "scenario_s": time_after(account, reached),
        "seconds": float(needed["seconds"].sum()),
        "bytes": int(needed["bytes_up"].sum() + needed["bytes_down"].sum()),
    }


def _transfers(account: "Account") -> dict[str, Any]:
    """The number of transfers, their bytes and their seconds, by group and direction."""
    sent = account.transfers
    groups = sent["client"].map(account.clients.set_index("client")["group"])
    totals: dict[str, Any] = {}
    for (group, direction), rows in sent.groupby([groups, "direction"]):
        totals.setdefault(str(group), {})[str(direction)] = {
            "transfers": len(rows),
            "bytes": int(rows["bytes"].sum()),
            "wait_s": finite(rows["wait_s"].sum()),
            "seconds": finite(rows["seconds"].sum()),
        }
    return totals


def _fingerprint(account: "Account") -> Any:
    """The fingerprint of all clients; a list if they differ; None if no client enrolled."""
    texts = sorted(set(account.clients["fingerprint"].dropna()))
    found = [fingerprint for text in texts if (fingerprint := json.loads(text))]
    return found if len(found) > 1 else next(iter(found), None)


def _sha256(path: Path) -> str | None:
    if not path.is_file():
        return None
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _status_text(summary: Mapping[str, Any]) -> str:
    detail = f": {clean(summary['detail'])}" if summary["detail"] else ""
    return f"{summary['status']}{detail}"


def _result_facts(summary: Mapping[str, Any]) -> dict[str, str]:
    final, empty = summary["final"], summary["empty_rounds"]
    seconds = time_text(summary)
    if summary.get("counts") == "versions":  # a summary of an earlier muster has no such key
        barren = "1 round" if empty == 1 else f"{empty} rounds"
        more = f", and {barren} without a version" if empty else ""
        facts = {"versions": f"{summary['rounds'] - empty} in {seconds}{more}"}
    else:
        more = f", {empty} of them empty" if empty else ""
        facts = {"rounds": f"{summary['rounds']} in {seconds}{more}"}
    facts["loss"] = number_text(final["loss"])
    if "accuracy" in final:
        facts["accuracy"] = percent_text(final["accuracy"])
    metrics = [*other_metrics(final).items()]
    if metrics:
        told = [f"{clean(name)} {number_text(value)}" for name, value in metrics[:_MOST_METRICS]]
        more = f", {len(metrics) - len(told):,} more" if len(metrics) > len(told) else ""
        facts["metrics"] = f"{', '.join(told)}{more}"
    if "worse" in summary:
        facts["warning"] = worsening_text(summary["worse"])
    facts |= _spread_facts(final)
    if "privacy" in summary:
        facts["privacy"] = privacy_text(summary["privacy"])
    if "target" in summary:
        facts["target"] = target_text(summary)
    if failures := summary.get("training_failed"):
        facts["failed"] = f"training failed in {clean(failures_text(failures))}"
    return facts | _fault_facts(summary)


def _fault_facts(summary: Mapping[str, Any]) -> dict[str, str]:
    """How many faults were observed, how many of those that were healed were verified (at least
    once each), and which were not observed."""
    if "faults" not in summary:
        return {}
    never, faults = summary["vacuous"], summary["faults"]
    healed = [fault for fault in faults if fault["healed"]]
    verified = sum(fault["verified"] > 0 for fault in healed)
    observed = f"{len(faults) - len(never)} of {len(faults)} observed"
    observed += f", {verified} of {len(healed)} verified to be over" if healed else ""
    more = f"; vacuous, because never observed: {', '.join(map(clean, never))}" if never else ""
    return {"faults": observed + more}


def _spread_facts(final: Mapping[str, Any]) -> dict[str, str]:
    facts = {}
    if groups := final.get("groups"):
        of = "accuracy" if all("accuracy" in part for part in groups.values()) else "loss"
        text = percent_text if of == "accuracy" else number_text
        told = [f"{clean(name)} {text(part[of])}" for name, part in groups.items()]
        more = [f"{len(told) - _MOST_GROUPS} more"] if len(told) > _MOST_GROUPS else []
        facts["groups"] = ", ".join([*told[:_MOST_GROUPS], *more])
    if devices := final.get("devices"):
        text = percent_text if devices["of"] == "accuracy" else number_text
        low, median, high = (text(devices[key]) for key in ("min", "median", "max"))
        facts["devices"] = f"{devices['of']} {low} to {high}, median {median}"
    return facts


def _traffic_facts(summary: Mapping[str, Any]) -> dict[str, str]:
    counts = [f"{count} {outcome}" for outcome, count in summary["outcomes"].items() if count]
    return {
        "participation": participation_text(summary),
        "updates": ", ".join(counts) or "none",
        "traffic": f"{bytes_text(summary['bytes_up'])} up, "
        f"{bytes_text(summary['bytes_down'])} down",
        **({"energy": energy_text(summary["energy"])} if "energy" in summary else {}),
    }


def time_text(summary: Mapping[str, Any]) -> str:
    """The time of all rounds: in lockstep for example "30 min 00 s of scenario time (10.5 s on this
    machine)"; on the other clocks the measured time."""
    measured = seconds_text(summary["seconds"])
    if (modelled := _modelled(summary, summary.get("scenario_s"))) is None:
        return measured
    return f"{modelled} ({measured} on this machine)"


def _modelled(summary: Mapping[str, Any], seconds: float | None) -> str | None:
    """A time of a run in lockstep; None if the run was not, or if its time is not known."""
    if seconds is None or not is_lockstep(summary.get("clock")):
        return None
    return f"{seconds_text(seconds)} of scenario time"


def target_text(summary: Mapping[str, Any]) -> str:
    """For example "accuracy 90.0 % reached in round 12, after 12 min 00 s of scenario time and 4.0
    MiB"."""
    target = summary["target"]
    goals = {"accuracy": percent_text, "loss": number_text}
    named = {key: text(target[key]) for key, text in goals.items() if key in target}
    named |= {name: f">= {value:.4g}" for name, value in target.get("at_least", {}).items()}
    named |= {name: f"<= {value:.4g}" for name, value in target.get("at_most", {}).items()}
    asked = " and ".join(f"{name} {text}" for name, text in named.items())
    if not target["reached"]:
        return f"{asked} not reached"
    took = _modelled(summary, target.get("scenario_s")) or seconds_text(target["seconds"])
    spent = f"{took} and {bytes_text(target['bytes'])}"
    return f"{asked} reached in round {target['rounds']}, after {spent}"


def _aligned(facts: Mapping[str, str]) -> list[str]:
    width = max(map(len, facts), default=0)
    return [f"  {label:<{width}}  {text}" for label, text in facts.items()]


def bytes_text(count: float) -> str:
    """For example "12.3 MiB"."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def seconds_text(seconds: float) -> str:
    """For example "85 ms", "0.24 s", "12.3 s", "2 min 05 s", "3 h 20 min"."""
    if 0 < seconds < 0.1:
        return f"{1000 * seconds:.0f} ms" if seconds >= 0.001 else "<1 ms"
    if seconds < 60:
        return f"{seconds:.2f} s" if 0 < seconds < 1 else f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    return (
        f"{minutes} min {rest:02} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02} min"
    )


def percent_text(ratio: float | None) -> str:
    return "–" if ratio is None or math.isnan(ratio) else f"{100 * ratio:.1f} %"


def number_text(value: float | None) -> str:
    """Four significant digits; a dash for None or NaN."""
    return "–" if value is None or math.isnan(value) else f"{value:.4g}"


def clean(text: object) -> str:
    """`text` without control characters, because names come from peers and terminals act on
    escape sequences."""
    return "".join(letter if letter.isprintable() else "?" for letter in str(text))
