"""What the page shows of a fleet, as JSON values.

The page has three kinds of data: sections, which are small and travel whole; columns, with one
character for every device; and series, to which rows are added.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from muster.emulator.following.progress import stage_of
from muster.emulator.following.run_progress import FaultProgress
from muster.emulator.live.finding import finding
from muster.emulator.live.fleet_state import FREQUENT, DeviceFacts, FleetState, LinkTraffic
from muster.emulator.live.round_digest import GroupDigest, sum_of
from muster.emulator.records.parts import finite, metrics_of
from muster.emulator.records.shared_links import LinkPlace
from muster.emulator.records.summary import clean

_MOST_METRICS = 20
_MOST_NAMES = 8
_MOST_CELLS = 20
_MOST_OCCURRENCES = 100
_UNKNOWN = " "
_NETWORKS = {"ethernet": "e", "wifi": "w", "cellular": "c"}


def sections(state: FleetState, states: str, run_state: str) -> dict[str, Any]:
    """The sections of the page by name.

    Args:
        states: `state.device_states()`.
        run_state: how the run stands; of a run that has ended, its status.
    """
    return {
        "setup": _setup(state),
        "run": _run(state, run_state),
        "groups": _groups(state, states),
        "finding": asdict(finding(state, run_state)),
        "links": [_link(place, state.traffic.get(place.name)) for place in state.setup.links],
        "app_metrics": _app_metrics(state.app_measured),
        "faults": _faults(state.progress.faults.values()),
    }


def columns(state: FleetState, states: str) -> dict[str, str]:
    """The columns of the page by name: a character for every device, in the order of the
    population; a space where nothing is known.

    Args:
        states: `state.device_states()`.
    """
    clients = state.setup.clients
    nothing = DeviceFacts()
    facts = [state.facts.get(place, nothing) for place in range(len(clients))]
    struck = {
        target
        for fault in state.progress.faults.values()
        if fault.acting
        for target in fault.targets
    }
    return {
        "state": states,
        "battery": "".join(_decile(each.battery) for each in facts),
        "power": "".join(_power(each.charging) for each in facts),
        "network": "".join(_NETWORKS.get(each.network or "", _UNKNOWN) for each in facts),
        "staleness": "".join(_digit(each.staleness) for each in facts),
        "fault": "".join("f" if client in struck else _UNKNOWN for client in clients),
    }


def _decile(share: float | None) -> str:
    return _UNKNOWN if share is None else str(min(max(int(share * 10), 0), 9))


def _power(charging: bool | None) -> str:
    return _UNKNOWN if charging is None else "c" if charging else "b"


def _digit(staleness: int | None) -> str:
    return _UNKNOWN if staleness is None else str(staleness) if staleness < 10 else "+"


def _setup(state: FleetState) -> dict[str, Any]:
    setup = state.setup
    return {
        "name": clean(setup.name),
        "folder": clean(setup.folder),
        "lockstep": setup.lockstep,
        "deadline_s": setup.deadline_s,
        "has_traffic": setup.has_traffic,
        "has_supervisor": setup.has_supervisor,
        "frequent_events": sorted(FREQUENT),
        "groups": [asdict(group) for group in setup.groups],
    }


def _run(state: FleetState, run_state: str) -> dict[str, Any]:
    progress = state.progress
    return {
        "state": run_state,
        "detail": progress.detail,
        "stage": stage_of(progress),
        "starting": progress.starting,
        "done": progress.done,
        "of": progress.rounds,
        "counts": progress.counts,
        "round": progress.round,
        "version": progress.version,
        "left_s": None if progress.status else progress.left_s,
        "scenario_s": state.scenario_s,
        "present": len(progress.present),
        "population": progress.population or len(state.setup.clients),
        "enrolled": len(progress.enrolled),
        "called": progress.called,
        "folded": progress.folded,
        "empty": progress.empty,
        "loss": progress.loss,
        "accuracy": progress.accuracy,
        "metrics": shown_metrics(state.metrics),
        "evaluated_round": progress.evaluated_round,
        "epsilon": progress.epsilon,
        "bytes_up": progress.bytes_up + progress.arriving,
        "bytes_down": progress.bytes_down,
        "seconds": progress.seconds,
        "looked_at": len(state.digests),
    }


def shown_metrics(text: str) -> dict[str, float | None]:
    """The first of the task's other metrics, from a cell of a column `metrics`."""
    found = [*metrics_of(text).items()][:_MOST_METRICS]
    return {clean(name): finite(value) for name, value in found}


def _app_metrics(event: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """What the server side of an app has measured last."""
    if event is None:
        return None
    metrics = {clean(name): value for name, value in event["metrics"].items()}
    return {"round": event["round"], "metrics": metrics}


def _groups(state: FleetState, states: str) -> list[dict[str, Any]]:
    total = sum_of(list(state.digests))
    found = []
    for group in state.setup.groups:
        digest = total.get(group.name, GroupDigest())
        evaluation = state.group_evaluations.get(group.name)
        of_group = states[group.first : group.first + group.count]
        found.append(
            {
                "name": group.name,
                "states": {state: of_group.count(state) for state in sorted(set(of_group))},
                "called": digest.called,
                "accepted": digest.accepted,
                "folded": digest.folded,
                "reasons": dict(digest.reasons.most_common()),
                "uncounted": dict(digest.uncounted.most_common()),
                "weight_share": digest.weight_share,
                "device_share": group.count / len(state.setup.clients),
                "staleness": {str(each): n for each, n in sorted(digest.staleness.items())},
                "slowest": asdict(digest.slowest) if digest.slowest else None,
                "loss": evaluation.loss if evaluation else None,
                "accuracy": evaluation.accuracy if evaluation else None,
                "metrics": shown_metrics(evaluation.metrics if evaluation else ""),
            }
        )
    return found


def _link(place: LinkPlace, link: LinkTraffic | None) -> dict[str, Any]:
    link = link or LinkTraffic()
    at, up, down = zip(*link.samples, strict=True) if link.samples else ((), (), ())
    moved = {name: cell.up_bps + cell.down_bps for name, cell in link.cells.items()}
    most = sorted(moved, key=lambda name: moved[name], reverse=True)[:_MOST_CELLS]
    return {
        "name": clean(place.name),
        "groups": [clean(group) for group in place.groups],
        "at": at,
        "up_bps": [round(each) for each in up],
        "down_bps": [round(each) for each in down],
        "cap_up_bps": link.cap_up_bps,
        "cap_down_bps": link.cap_down_bps,
        "cells": [
            {"name": clean(name), "depth": depth, **link.cells[name]._asdict()}
            for name, depth in place.cells
            if name in most
        ],
        "cell_count": len(place.cells),
    }


def _faults(occurrences: Iterable[FaultProgress]) -> list[dict[str, Any]]:
    by_name: dict[str, list[FaultProgress]] = {}
    for each in occurrences:
        by_name.setdefault(each.fault, []).append(each)
    return [_fault(name, times) for name, times in by_name.items()]


def _fault(name: str, times: list[FaultProgress]) -> dict[str, Any]:
    newest = times[-1]
    return {
        "fault": name,
        "do": newest.do,
        "state": str(newest.state),
        "acting": any(each.acting for each in times),
        "seen": next((each.seen for each in reversed(times) if each.seen), ""),
        "targets": [clean(target) for target in newest.targets[:_MOST_NAMES]],
        "target_count": len(newest.targets),
        "times": len(times),
        "first": times[0].first,
        "rounds": [
            {"first": each.first, "healed": each.healed, "acting": each.acting}
            for each in times[-_MOST_OCCURRENCES:]
        ],
    }


def line_of(number: int, event: Mapping[str, Any]) -> dict[str, Any]:
    """An event of the journal as the page shows it."""
    rest = {
        key: value
        for key, value in event.items()
        if key not in ("event", "at", "role", "incarnation")
    }
    targets = rest.get("targets")
    if isinstance(targets, list) and len(targets) > _MOST_NAMES:
        rest["targets"] = [*targets[:_MOST_NAMES], f"… {len(targets)} in all"]
    return {"number": number, "event": event["event"], "at": event["at"], "fields": rest}
