"""Writes the faults that were injected by hand as tables `[[faults]]` for a scenario."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import tomli_w

from muster.common.errors import ConfigError
from muster.emulator.records.fault_traces import journal_lines
from muster.emulator.records.manifest import intact_folder
from muster.emulator.run_folder.folder import JOURNAL, SCENARIO
from muster.emulator.scenario.reading import read_scenario


def exported_faults(folder: Path | str) -> str:
    """The faults that were injected by hand into a run, as TOML of `[[faults]]` tables that repeat
    them: the same targets, from the same round on (on the wall and scaled clocks: from the same
    scenario time on), for as long as each of them lasted.

    Raises:
        ConfigError: there is no run in the folder, or no fault was injected by hand.
    """
    folder = intact_folder(Path(folder))
    clock = read_scenario(folder / SCENARIO).clock
    lockstep = clock.lockstep
    tables = list(_tables(folder / JOURNAL, lockstep, 1.0 if lockstep else clock.scale))
    if not tables:
        raise ConfigError(f"no fault was injected by hand into the run in {folder}")
    return tomli_w.dumps({"faults": tables})


def _tables(journal: Path, lockstep: bool, scale: float) -> Iterator[dict[str, Any]]:
    """The tables of the faults that were applied, in their order."""
    injected: dict[str, Mapping[str, Any]] = {}
    states: dict[tuple[str, str], Mapping[str, Any]] = {}
    for line in journal_lines(journal):
        if line["event"] == "fault_injected":
            injected[line["fault"]] = line
        elif line.get("fault") in injected:
            states[line["fault"], line["event"]] = line
    for name, fault in injected.items():
        applied, healed = states.get((name, "fault_applied")), states.get((name, "fault_healed"))
        if applied is None:
            continue
        when = {"round": applied["round"]} if lockstep else {"at_s": fault["scenario_s"]}
        target = _target(fault["table"], states[name, "fault_planned"]["targets"])
        table: dict[str, Any] = {**fault["table"], "name": name, "target": target, "when": when}
        # What lasted to the end of the run lasts to the end there too.
        if fault["lasts"] and healed is not None and (lockstep or not healed["with_run"]):
            table["for_s"] = round((healed["at"] - applied["at"]) * scale, 3)
        yield table


def _target(table: Mapping[str, Any], drawn: Sequence[str]) -> dict[str, Any]:
    """The target of a table; devices that were drawn are named, so that others are not drawn."""
    target = dict(table.get("target", {}))
    return {"names": list(drawn)} if {"count", "percent"} & target.keys() else target
