"""Exports a run into a store of MLflow: a database and a folder of artifacts."""

import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from muster.common.errors import ConfigError
from muster.emulator.results.account import Account
from muster.emulator.results.export.metrics import metrics_of
from muster.emulator.results.summary import SUMMARY, UNFINISHED, outline
from muster.emulator.runs.run_folder import SCENARIO, shown

DATABASE, ARTIFACTS = "mlflow.db", "artifacts"

RUN_TAG: Final = "muster.run"
"""The tag with the identity of the run."""

_STATUS: Final = {"completed": "FINISHED", "diverged": "FINISHED", "stopped": "KILLED"}
"""MLflow's status by the run's; of others it is FAILED, and of a run without one RUNNING."""

_MOST_METRICS, _MOST_PARAMS = 1000, 100
"""How many a call to the store takes."""

_LONGEST_PARAM = 6000


def write_mlflow(account: Account, out: Path) -> None:
    """Add the run to the experiment of the scenario's name: the settings of the scenario as
    parameters, the metrics, and the scenario and the summary as artifacts.

    Raises:
        ConfigError: the store has the run already.
    """
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # an export asks nothing of a network
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Param

    client = MlflowClient(f"sqlite:///{(out / DATABASE).resolve()}")
    experiment = client.get_experiment_by_name(account.name)
    if experiment is None:
        artifacts = (out / ARTIFACTS).resolve().as_uri()
        number = client.create_experiment(account.name, artifact_location=artifacts)
    else:
        number = experiment.experiment_id
    if client.search_runs([number], filter_string=f"tags.`{RUN_TAG}` = '{account.run.id}'"):
        raise ConfigError(
            f"{shown(out)} has this run already, and muster export overwrites nothing; name "
            f"another folder with --out"
        )
    run, status = account.run, outline(account)["status"]
    entry = client.create_run(
        number,
        start_time=_ms(run.started_at),
        run_name=account.folder.resolve().name,
        tags={RUN_TAG: run.id, "muster.status": status},
    ).info.run_id
    settings = list(_flat(account.scenario))
    for some in _parts(settings, _MOST_PARAMS):
        client.log_batch(entry, params=[Param(_allowed(k), v[:_LONGEST_PARAM]) for k, v in some])
    for some in _parts(metrics_of(account), _MOST_METRICS):
        client.log_batch(
            entry,
            metrics=[Metric(_allowed(m.name), m.value, _ms(m.at), m.round) for m in some],
        )
    for name in (SCENARIO, SUMMARY):
        if (account.folder / name).is_file():
            client.log_artifact(entry, str(account.folder / name))
    if status != UNFINISHED:
        ended_at = None if run.ended_at is None else _ms(run.ended_at)
        client.set_terminated(entry, _STATUS.get(status, "FAILED"), end_time=ended_at)


def _flat(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """The settings below a value, by their paths."""
    if isinstance(value, Mapping):
        parts = value.items()
    elif isinstance(value, list) and any(isinstance(part, Mapping) for part in value):
        parts = {str(number): part for number, part in enumerate(value)}.items()
    else:
        yield path, value if isinstance(value, str) else json.dumps(value)
        return
    for key, part in parts:
        yield from _flat(part, f"{path}.{key}" if path else key)


def _parts(values: list[Any], size: int) -> Iterator[list[Any]]:
    for first in range(0, len(values), size):
        yield values[first : first + size]


def _allowed(name: str) -> str:
    """A name with the letters that MLflow allows."""
    return re.sub(r"[^\w\-. /:]", "_", name)


def _ms(seconds: float) -> int:
    return round(1000 * seconds)
