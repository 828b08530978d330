"""A run in a store of MLflow: a database and a folder of artifacts, or a server."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from muster.common.environment import settle_environment
from muster.common.errors import ConfigError
from muster.emulator.export.metrics import MetricPoint, metric_points
from muster.emulator.export.tracker import Tracker
from muster.emulator.records.account import Account
from muster.emulator.records.summary import SUMMARY, UNFINISHED, outline
from muster.emulator.run_folder.folder import SCENARIO, shown

DATABASE, ARTIFACTS = "mlflow.db", "artifacts"

TRACKED_TAG: Final = "muster.tracked"
"""The tag with the identity of a run that is or was tracked while it went on."""

RUN_TAG: Final = "muster.run"
"""The tag with the identity of the run. A run whose export failed does not have it."""

_STATUS: Final = {"completed": "FINISHED", "diverged": "FINISHED", "stopped": "KILLED"}
"""MLflow's status by the run's; of others it is FAILED, and of a run without one RUNNING."""

_MOST_METRICS, _MOST_PARAMS = 1000, 100
"""How many a call to the store takes."""

_LONGEST_PARAM = 6000


def write_mlflow(account: Account, out: Path) -> None:
    """Add the run to the experiment of the scenario's name.

    Raises:
        ConfigError: the store has the run already.
    """
    store = MlflowStore(out, uri_of(out))
    if store.found(account, RUN_TAG):
        raise ConfigError(
            f"{shown(out)} has this run already, and muster export overwrites nothing; name "
            f"another folder with --out"
        )
    store.create(account)
    store.log(metric_points(account))
    store.end(account)


def uri_of(out: Path) -> str:
    """The store in a folder."""
    return f"sqlite:///{(out / DATABASE).resolve()}"


class MlflowStore(Tracker):
    """Writes the settings of the scenario as parameters, the metrics, and the scenario and the
    summary as artifacts, into the experiment of the scenario's name.

    Args:
        out: the folder of the artifacts of a new experiment, if the store is in that folder.
        uri: the store.
        comparison: the value of the tag `muster.comparison` of a new entry; empty: it has no such
            tag.
    """

    def __init__(self, out: Path, uri: str, comparison: str = "") -> None:
        settle_environment()
        from mlflow import MlflowClient

        self._client = MlflowClient(uri)
        self._artifacts = (out / ARTIFACTS).resolve().as_uri() if uri == uri_of(out) else None
        self._comparison, self._entry = comparison, ""

    def begin(self, account: Account) -> None:
        """Continue the run that was tracked before, or create it."""
        if found := self.found(account, TRACKED_TAG):
            self._entry = found
            self._client.update_run(found, status="RUNNING")
        else:
            self.create(account)
            self._client.set_tag(self._entry, TRACKED_TAG, account.run.id)

    def found(self, account: Account, tag: str) -> str:
        """The entry of a run that has its identity as the value of a tag; empty if none has."""
        wanted = f"tags.`{tag}` = '{account.run.id}'"
        runs = self._client.search_runs([self._experiment(account.name)], filter_string=wanted)
        return str(runs[0].info.run_id) if runs else ""

    def create(self, account: Account) -> None:
        from mlflow.entities import Param

        self._entry = self._client.create_run(
            self._experiment(account.name),
            start_time=_ms(account.run.started_at),
            run_name=account.folder.resolve().name,
        ).info.run_id
        if self._comparison:
            self._client.set_tag(self._entry, "muster.comparison", self._comparison)
        params = [
            Param(_allowed(key), text[:_LONGEST_PARAM]) for key, text in _flat(account.scenario)
        ]
        for some in _parts(params, _MOST_PARAMS):
            self._client.log_batch(self._entry, params=some)

    def log(self, points: Sequence[MetricPoint]) -> None:
        from mlflow.entities import Metric

        metrics = [
            Metric(_allowed(point.name), point.value, _ms(point.at), point.round)
            for point in points
        ]
        for some in _parts(metrics, _MOST_METRICS):
            self._client.log_batch(self._entry, metrics=some)

    def end(self, account: Account) -> None:
        run, status = account.run, outline(account)["status"]
        for name in (SCENARIO, SUMMARY):
            if (account.folder / name).is_file():
                self._client.log_artifact(self._entry, str(account.folder / name))
        self._client.set_tag(self._entry, "muster.status", status)
        # Last, so that an export that failed can be repeated.
        self._client.set_tag(self._entry, RUN_TAG, run.id)
        if status != UNFINISHED:
            ended_at = None if run.ended_at is None else _ms(run.ended_at)
            self._client.set_terminated(
                self._entry, _STATUS.get(status, "FAILED"), end_time=ended_at
            )

    def _experiment(self, name: str) -> str:
        """The experiment of a name, which is made if there is none."""
        if found := self._client.get_experiment_by_name(name):
            return str(found.experiment_id)
        return str(self._client.create_experiment(name, artifact_location=self._artifacts))


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
