"""A model and data that are there in Python, as the task of a scenario."""

import copy
import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from muster.client.training.settings import Training
from muster.common.errors import ConfigError
from muster.common.files import refusal_of
from muster.emulator.comparison import compare
from muster.emulator.export.tracking import tracking
from muster.emulator.planning import plan
from muster.emulator.runs import running
from muster.emulator.scenario.reading import scenario_of, settings_in
from muster.emulator.scenario.scenario import Scenario
from muster.tasks.pickled import pickled
from muster.torch import results
from muster.torch.display import showing
from muster.torch.examples import named, task_of, written

Model = nn.Module | Callable[..., nn.Module]
ScenarioLike = Mapping[str, Any] | Path | str

SHORT: Mapping[str, str] = {
    "rounds": "server.rounds",
    "devices": "groups[0].count",
    "aggregator": "server.aggregator",
    "selection": "server.selection",
    "partition": "task.partition",
    "standardise": "task.standardise",
    "learning_rate": "training.learning_rate",
    "local_epochs": "training.local_epochs",
    "local_steps": "training.local_steps",
    "batch_size": "training.batch_size",
    "seed": "seed",
    "name": "name",
}
"""Settings that may be given as keywords, and what they are called in a scenario."""

_OWN, _NUMBERS = "own", "own-regression"
"""The tasks of data that are given: labels are classes, or numbers to predict."""

_SOURCE = "the scenario of muster.torch"


def run(
    model: Model,
    data: Any,
    scenario: ScenarioLike | None = None,
    *,
    test: Any = None,
    user: Any = None,
    out: Path | str | None = None,
    track: Sequence[str] = (),
    quiet: bool = False,
    **settings: Any,
) -> results.ShownRun:
    """Run a fleet whose devices train a model on their shares of data. It takes what `wrap` and
    `WrappedTask.run` take."""
    task = wrap(model, data, test=test, user=user)
    return task.run(scenario, out=out, track=track, quiet=quiet, **settings)


def wrap(model: Model, data: Any, *, test: Any = None, user: Any = None) -> "WrappedTask":
    """A model and data as a task, to plan it, run it, and compare variants of it.

    Args:
        model: a module, whose values are those that training begins with; or a function that
            returns one, called without arguments or, if it needs them, with the shape of the inputs
            and the number of outputs. It is pickled now: a later change of it has no effect.
        data: a pair (x, y) of arrays or tensors; a torch Dataset of such pairs; a data set of
            Hugging Face; or the name of a data set of muster, such as "digits". Labels are classes
            or, with `task={"name": "own-regression"}`, numbers to predict.
        test: examples for testing, in one of these forms; None: a share of `data`.
        user: whose each example is, for the natural partition: an array or, for a data set of
            Hugging Face, the name of a column.

    Raises:
        ConfigError: the model cannot be pickled, or is none.
    """
    if not isinstance(model, nn.Module) and not callable(model):
        raise ConfigError(
            f"model: expected a torch.nn.Module or a function that returns one, found "
            f"{type(model).__name__}"
        )
    return WrappedTask(pickled(model), data, test, user, _name_of(model))


class WrappedTask:
    """A model and data as a task: see `wrap`.

    The methods take a scenario (settings as a mapping, or the path of a TOML file; None: ten
    devices, ten rounds) and keywords with settings: those of `SHORT`, and the tables of a scenario,
    for example `training={"learning_rate": 0.05}`. Keywords take precedence.
    """

    def __init__(self, model: bytes, data: Any, test: Any, user: Any, name: str) -> None:
        self._model = model
        self._data, self._test, self._user = data, test, user
        self._name = name

    def scenario(
        self, scenario: ScenarioLike | None = None, *, folder: Path | str = "runs", **settings: Any
    ) -> Scenario:
        """The whole scenario. Model and data are written below `folder`.

        Raises:
            ConfigError: it is wrong; the message names every mistake.
        """
        place, values = _read(scenario)
        values.setdefault("name", self._name)
        values.setdefault("groups", [{"name": "devices", "count": 10}])
        _table(values, "server").setdefault("rounds", 10)
        changes = [*_changes(values, settings)]
        self._enter(_table(values, "task"), Path(folder) / "own")
        return scenario_of(values, place, changes)

    def run(
        self,
        scenario: ScenarioLike | None = None,
        *,
        out: Path | str | None = None,
        track: Sequence[str] = (),
        quiet: bool = False,
        **settings: Any,
    ) -> results.ShownRun:
        """Run the fleet, and return the run with its tables.

        Args:
            out: the run folder to make; default `runs/<name>-<time>`.
            track: trackers that record the run while it goes on: "mlflow", "tensorboard", "wandb".
            quiet: show no progress.

        Raises:
            ConfigError: something is wrong; nothing was started.
            RunFailed: the run failed; it can be resumed.
        """
        folder = "runs" if out is None else Path(out).parent
        read = self.scenario(scenario, folder=folder, **settings)
        with (
            tracking(track) as begin,
            showing(read.name, quiet) as show,
        ):
            return results.ShownRun.of(running.run(read, out=out, show=show, begin=begin))

    def plan(self, scenario: ScenarioLike | None = None, **settings: Any) -> results.ShownPlan:
        """Compute which devices take part when, without a run."""
        return results.ShownPlan.of(plan(self.scenario(scenario, **settings)))

    def compare(
        self,
        vary: Mapping[str, Sequence[Any]],
        scenario: ScenarioLike | None = None,
        *,
        seeds: int = 1,
        out: Path | str | None = None,
        track: Sequence[str] = (),
        quiet: bool = False,
        **settings: Any,
    ) -> results.ShownComparison:
        """Run every variant with the same seeds, and compare them.

        Args:
            vary: settings and their values, for example {"aggregator": ["fedavg", "fedadam"]}.
            seeds, out, track: see `muster.emulator.comparison.compare`.
        """
        folder = Path("runs") if out is None else Path(out).parent
        text = self.scenario(scenario, folder=folder, **settings).to_toml().encode()
        file = named(folder / "own", "scenario", ".toml", [text])
        written(file, lambda new: new.write_bytes(text))
        keys = {SHORT.get(key, key): values for key, values in vary.items()}
        found = compare(
            file, vary=keys, seeds=seeds, out=out, track=track, watch=lambda t: showing(t, quiet)
        )
        return results.ShownComparison.of(found)

    def _enter(self, task: dict[str, Any], folder: Path) -> None:
        """Write model and data, and name them in the table of the task."""
        with refusal_of(f"{folder} cannot be written", "name another folder with out="):
            file = named(folder, "model", ".pkl", [self._model])
            written(file, lambda new: new.write_bytes(self._model))
            found = task_of(self._data, self._test, self._user, folder)
        kinds = (found["name"], _NUMBERS) if found["name"] == _OWN else (found["name"],)
        if (name := task.get("name", found["name"])) not in kinds:
            raise ConfigError(
                f"task.name: data= makes the task {' or '.join(map(repr, kinds))}, but the "
                f"scenario has {name!r}; leave the name out"
            )
        if "source" in found:
            found["source"] |= _table(task, "source")
        task |= found | {"name": name, "model": {"kind": "pickled", "path": str(file)}}


def _name_of(model: Model) -> str:
    """A name for the scenario, from that of the module's class or of the function."""
    name = str(getattr(model, "__name__", type(model).__name__))
    return name.lower() if name.isidentifier() and not name.startswith("_") else "own"


def _read(scenario: ScenarioLike | None) -> tuple[Path, dict[str, Any]]:
    """The file to which paths of a scenario are relative, and its settings, which the caller may
    change."""
    if isinstance(scenario, (Path, str)):
        return Path(scenario), settings_in(Path(scenario))
    return Path(_SOURCE), copy.deepcopy(dict(scenario or {}))


def _table(values: dict[str, Any], name: str) -> dict[str, Any]:
    table = values.setdefault(name, {})
    if isinstance(table, str):  # the short form of a task
        table = values[name] = {"name": table}
    if not isinstance(table, dict):
        raise ConfigError(f"{name}: expected a table, found {type(table).__name__}")
    return table


def _changes(values: dict[str, Any], settings: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Enter keywords that are tables of a scenario, and yield the others as changes of settings."""
    for key, value in settings.items():
        if key in SHORT:
            groups = values["groups"]
            if key == "devices" and (not isinstance(groups, list) or len(groups) != 1):
                raise ConfigError("devices: expected a scenario with one group; give groups=[…]")
            yield SHORT[key], value
        elif key not in Scenario.model_fields:
            known = [*SHORT, *Scenario.model_fields]
            close = difflib.get_close_matches(key, known, n=1)
            meant = f" (did you mean {close[0]}?)" if close else ""
            if key in Training.model_fields:
                meant = f"; give training={{{key!r}: …}}"
            raise ConfigError(
                f"there is no setting {key!r}{meant}; expected one of {', '.join(SHORT)}, or a "
                f"table of a scenario: {', '.join(Scenario.model_fields)}"
            )
        elif isinstance(value, Mapping):
            _table(values, key).update(copy.deepcopy(dict(value)))
        else:
            values[key] = copy.deepcopy(value)
