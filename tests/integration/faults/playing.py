"""Whole runs with faults, for the tests beside this module."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from safetensors.numpy import load_file

from muster.common.config import validate
from muster.emulator.records.account import Account
from muster.emulator.scenario.scenario import Scenario
from muster.simulation.whole_run import simulate_run

CLIENTS = ("dev-0000", "dev-0001", "dev-0002", "dev-0003")
EVENTS = [f"fault_{state}" for state in ("planned", "applied", "observed", "healed", "verified")]
STRUCK = "dev-0002"


class Played(NamedTuple):
    folder: Path
    summary: dict[str, Any]
    answers: pd.DataFrame
    contributions: pd.DataFrame
    events: list[dict[str, Any]]

    @property
    def model(self) -> np.ndarray:
        (tensors,) = [load_file(self.folder / "model.safetensors")]
        return np.concatenate([tensor.ravel() for tensor in tensors.values()])

    def outcomes(self, client: str) -> list[tuple[int, str, str]]:
        """Round of the call, outcome and reason of all updates of a client that did not count."""
        rows = self.contributions[self.contributions["client"] == client]
        lost = rows[rows["outcome"] != "folded"]
        columns = lost["call_round"], lost["outcome"], lost["reason"].fillna("")
        return [
            (int(call), outcome, reason) for call, outcome, reason in zip(*columns, strict=True)
        ]

    def states(self, fault: str) -> list[tuple[str, int | None]]:
        """The events of a fault, with their rounds."""
        found = [(e["event"], e["round"]) for e in self.events if e["fault"] == fault]
        return [(event.removeprefix("fault_"), round) for event, round in found]


def scenario(*faults: dict[str, Any], **more: Any) -> Scenario:
    values: dict[str, Any] = {
        "name": "faults",
        "seed": 2,
        "task": {"name": "linear", "dimension": 4, "heterogeneity": 1.0},
        "training": {"learning_rate": 0.05, "local_steps": 2, "batch_size": 8},
        "server": {"rounds": 6},
        "groups": [{"name": "dev", "count": 4, "device": {"examples_per_s": 10}}],
        "faults": list(faults),
    }
    return validate(Scenario, {**values, **more}, "faults")


def play_into(folder: Path, *faults: dict[str, Any], **more: Any) -> Played:
    """Play a scenario with these faults in a folder of its own."""
    assert simulate_run(scenario(*faults, **more), folder) == "completed"
    summary = json.loads((folder / "summary.json").read_text())
    with Account(folder) as account:
        events = list(account.events(*EVENTS))
        return Played(folder, summary, account.answers, account.contributions, events)


Play = Callable[..., Played]
"""Plays a scenario with these faults; keyword arguments replace its sections."""


def on_struck(do: str, **more: Any) -> dict[str, Any]:
    target = {"names": [STRUCK]}
    return {"do": do, "target": target, "when": {"round": 3}, "for_rounds": 2, **more}


WHOLE = [("planned", 3), ("applied", 3), ("observed", 3), ("healed", 5), ("verified", 5)]
