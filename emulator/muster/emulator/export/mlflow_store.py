"""Exports a run into a store of MLflow: a database and a folder of artifacts."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from muster.common.environment import settle_environment
from muster.common.errors import ConfigError
from muster.emulator.export.metrics import metric_points
from muster.emulator.records.account import Account
from muster.emulator.records.summary import SUMMARY, UNFINISHED, outline
from muster.emulator.run_folder.folder import SCENARIO, shown

if TYPE_CHECKING:
    from mlflow import MlflowClient

DATABASE, ARTIFACTS = "mlflow.db", "artifacts"

RUN_TAG: Final = "muster.run"
"""The tag with the identity of the run. A run whose export failed does not have it."""

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
    settle_environment()
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{(out / DATABASE).resolve()}")
    experiment = _experiment(client, account.name, out / ARTIFACTS)
    run, status = account.run, outline(account)["status"]
    if client.search_runs([experiment], filter_string=f"tags.`{RUN_TAG}` = '{run.id}'"):
        raise ConfigError(
            f"{shown(out)} has this run already, and muster export overwrites nothing; name "
            f"another folder with --out"
        )
    entry = client.create_run(
        experiment,
        start_time=_ms(run.started_at),
        run_name=account.folder.resolve().name,
        tags={"muster.status": status},
    ).info.run_id
    _log(client, entry, account)
    client.set_tag(entry, RUN_TAG, run.id)  # last, so that an export that failed can be repeated
    if status != UNFINISHED:
        ended_at = None if run.ended_at is None else _ms(run.ended_at)
        client.set_terminated(entry, _STATUS.get(status, "FAILED"), end_time=ended_at)


def _experiment(client: "MlflowClient", name: str, artifacts: Path) -> str:
    """The experiment of a name, which is made if there is none."""
    number: str
    if found := client.get_experiment_by_name(name):
        number = found.experiment_id
    else:
        number = client.create_experiment(name, artifact_location=artifacts.resolve().as_uri())
    return number


def _log(client: "MlflowClient", entry: str, account: Account) -> None:
    """Log the parameters, metrics and artifacts of a run."""
    from mlflow.entities import Metric, Param

    params = [Param(_allowed(key), text[:_LONGEST_PARAM]) for key, text in _flat(account.scenario)]
    metrics = [
        Metric(_allowed(point.name), point.value, _ms(point.at), point.round)
        for point in metric_points(account)
    ]
    for some in _parts(params, _MOST_PARAMS):
        client.log_batch(entry, params=some)
    for some in _parts(metrics, _MOST_METRICS):
        client.log_batch(entry, metrics=some)
    for name in (SCENARIO, SUMMARY):
        if (account.folder / name).is_file():
            client.log_artifact(entry, str(account.folder / name))


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
