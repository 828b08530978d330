"""A run of Weights & Biases."""

import os
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from muster.emulator.export.metrics import MetricPoint
from muster.emulator.export.tracker import Tracker
from muster.emulator.records.account import Account
from muster.emulator.records.summary import outline


class WandbRun(Tracker):
    """Logs the metrics over `round`, with the scenario as configuration. The project is that of
    WANDB_PROJECT, else the name of the scenario; the id is the identity of the run, so that a
    resumed run continues.

    Args:
        out: the folder in which wandb makes its folder `wandb`.
        comparison: the group of the run; empty: it has none.
    """

    def __init__(self, out: Path, comparison: str = "") -> None:
        self._out, self._comparison = out, comparison

    def begin(self, account: Account) -> None:
        import wandb

        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT") or account.name,
            id=f"muster-{account.run.id}",
            name=account.folder.resolve().name,
            group=self._comparison or None,
            config=account.scenario,
            dir=os.environ.get("WANDB_DIR") or str(self._out.resolve()),
            resume="allow",
        )
        # The results of an evaluation come after later rounds, and steps of wandb must not go back.
        self._run.define_metric("round", hidden=True)
        self._run.define_metric("*", step_metric="round")

    def log(self, points: Sequence[MetricPoint]) -> None:
        for round, some in groupby(points, key=lambda point: point.round):
            self._run.log({"round": round} | {point.name: point.value for point in some})

    def end(self, account: Account) -> None:
        status = outline(account)["status"]
        self._run.summary["status"] = status
        self._run.finish(exit_code=0 if status in ("completed", "diverged", "stopped") else 1)
