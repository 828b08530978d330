"""The checks of `muster audit --evaluate`: the task is opened, and models are measured again."""

import json
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from muster.common.clock import WallClock
from muster.common.errors import MusterError
from muster.common.tensors import WIRE, Vector
from muster.emulator.run_audit.check import Check
from muster.emulator.run_audit.checks.rule import Repetition, repeatable
from muster.emulator.run_audit.evidence import Evidence, Row
from muster.emulator.run_audit.leaves import compare, compare_leaves, table_of
from muster.emulator.run_audit.promises import prepared_by
from muster.emulator.run_audit.result import CheckLog
from muster.emulator.run_audit.vectors import Unknown, UnknownState, initial_of, newest_version
from muster.server.aggregators import State
from muster.server.evaluation.messages import Order
from muster.server.evaluation.process import ModelEvaluation
from muster.server.evaluation.schedule import setup_of
from muster.server.settings.process import ServerProcess
from muster.tasks.opening import open_task

_ROUNDED = 1e-5
"""The largest relative difference of a loss that was measured on two machines, in float32."""

_ASKED = "they are measured again with --evaluate"


def check_task(evidence: Evidence, log: CheckLog) -> None:
    """The task gives every device the examples that the ledger has, and the initial model."""
    config = evidence.config
    if not evidence.evaluates:
        log.skip("the examples of the devices and the initial model: " + _ASKED)
        return
    if isinstance(config, str):
        log.skip(f"the task: {config}")
        return
    from muster.client.processes.nursery import prepare
    from muster.tasks.parts import vector_of

    try:
        task = open_task(config.task, len(config.population), config.seed)
        made = prepare(task, None, {})
        initial = vector_of(task.module()).astype(WIRE)
    except (MusterError, OSError, ValueError) as error:
        log.skip(f"the task cannot be opened: {error}")
        return
    expected = {name: made[name] for name in ("examples", "schema", "frozen", "units")}
    if not config.masks:
        expected["units"] = []
    compare_leaves(log, "{} of the task", expected, prepared_by(config))
    found = initial_of(evidence, config)
    close = found.shape == initial.shape and np.allclose(found, initial, rtol=_ROUNDED, atol=1e-7)
    log.require(close, "the initial model", "that of the task and the seed", "another one")


def check_measured(evidence: Evidence, log: CheckLog) -> None:
    """Every version whose content is known has the loss that the ledger has."""
    config = evidence.config
    if not evidence.evaluates:
        log.skip("losses and accuracies: " + _ASKED)
    elif isinstance(config, str):
        log.skip(f"losses and accuracies: {config}")
    elif config.server.evaluate_on == "devices":
        log.skip("losses and accuracies: the devices have measured them, with entries of their own")
    else:
        try:
            measuring = _Measuring(evidence, config, log)
        except (MusterError, OSError, ValueError) as error:
            log.skip(f"the task cannot be opened: {error}")
            return
        measuring.compare_known()


class _Measuring:
    """Measures the versions of a run again."""

    def __init__(self, evidence: Evidence, config: ServerProcess, log: CheckLog) -> None:
        self._evidence = evidence
        self._config = config
        self._log = log
        self._evaluation = ModelEvaluation(setup_of(config), WallClock())
        self._rows = {r["version"]: r for r in evidence.rows("SELECT * FROM evaluations")}
        self._done = set[int]()

    def compare_known(self) -> None:
        """Compare all versions that can be had: with kept updates all, else the first and the
        newest."""
        evidence, config = self._evidence, self._config
        initial = initial_of(evidence, config)
        self.compare(0, config.server.aggregator.initial_state(initial), initial)
        if evidence.makes_again and not isinstance(repeatable(evidence), str):
            with TemporaryDirectory(prefix="muster-audit-") as folder:
                of_run = evidence, CheckLog("again"), config, Path(folder)
                Repetition(*of_run, made=self.compare).rounds()
        newest, model = max(self._rows, default=0), newest_version(evidence, config)
        if model is not None and newest == evidence.one("SELECT max(version) FROM versions"):
            self.compare(newest, UnknownState(), model)
        for version in sorted(self._rows.keys() - self._done):
            self._log.skip(f"the loss of version {version}, whose content is not there")

    def compare(self, version: int, state: State, model: Vector) -> None:
        """Compare the evaluation of a version with what its model gives."""
        row = self._rows.get(version)
        if row is None or version in self._done:
            return
        try:
            offered = self._config.server.aggregator.result(state, model)
        except Unknown:
            return
        self._done.add(version)
        body = np.asarray(offered, dtype=WIRE).tobytes()
        order = Order(version=version, round=row["round"], length=len(body))
        self._compare_row(row, self._evaluation.evaluate(order, body))

    def _compare_row(self, row: Row, measured: Any) -> None:
        log, what = self._log, f"of version {row['version']}"
        loss = measured.loss if np.isfinite(measured.loss) else row["loss"]
        for name, right in (("loss", loss), ("accuracy", measured.accuracy)):
            compare(log, f"{name} {what}", right, row[name], row["round"], tolerance=_ROUNDED)
        metrics = json.loads(json.dumps(measured.metrics))
        place = f"metric {{}} {what}"
        compare_leaves(log, place, metrics, table_of(row["metrics"]), tolerance=_ROUNDED)
        parts = (("group_evaluations", "group", measured.groups),
                 ("device_evaluations", "client", measured.devices))  # fmt: skip
        for table, of, found in parts:
            self._compare_parts(table, of, row["version"], found)

    def _compare_parts(self, table: str, of: str, version: int, found: Mapping[str, Any]) -> None:
        query = f"SELECT * FROM {table} WHERE version = ?"
        rows = {row[of]: row for row in self._evidence.rows(query, version)}
        for name, part in found.items():
            row, what = rows.get(name), f"in {table} of version {version}, {name}"
            if row is None:
                self._log.require(False, f"row {what}", "one", "none")
                continue
            self._log.compare(f"examples {what}", part.examples, row["examples"])
            compare(self._log, f"loss {what}", part.loss, row["loss"], tolerance=_ROUNDED)
            compare(self._log, f"accuracy {what}", part.accuracy, row["accuracy"],
                    tolerance=_ROUNDED)  # fmt: skip
            compare_leaves(self._log, f"metric {{}} {what}", dict(part.metrics),
                           table_of(row["metrics"]), tolerance=_ROUNDED)  # fmt: skip


CHECKS = (
    Check(
        "the task, opened again",
        "Only with `--evaluate`: the examples of every device, the shape of the model, and the "
        "initial model are those of the task and the seed.",
        check_task,
    ),
    Check(
        "versions, measured again",
        "Only with `--evaluate`: the losses of all versions whose content is known, also by group "
        "and device",
        check_measured,
    ),
)
