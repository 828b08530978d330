"""The `[task]` table of a Flower app."""

from __future__ import annotations

import importlib.util
from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from muster.common.bounds import DeviceCount, ExampleCount
from muster.common.errors import ConfigError
from muster.common.installation import install_command
from muster.tasks.flower.project import ConfigValue, read_project
from muster.tasks.task import Task


class FlowerSettings(Task):
    """The settings of a Flower app."""

    hosted: ClassVar[bool] = True

    app: str
    """The folder of the app, with its `pyproject.toml`; relative to the scenario file."""

    examples: ExampleCount
    """The most examples that a device of the app trains on. A device that reports more is an error.
    Modelled durations count every device as having so many."""

    run_config: dict[str, ConfigValue] = Field(default_factory=dict)
    """Values that replace those of the app's `[tool.flwr.app.config]`, as `flwr run --run-config`
    does. Keys of a nested table are joined by dots."""

    train_config: dict[str, ConfigValue] = Field(default_factory=dict)
    """Values that the `ConfigRecord` of training messages has beside, or instead of, those that the
    app's `ServerApp` sends in its first round."""

    local_arrays: Annotated[list[str], Field(max_length=1_000)] = Field(default_factory=list)
    """Names of arrays of the model that stay on their device, as patterns (`*`, `?`). Every array
    that is not floating point must be among them, for example `["*.num_batches_tracked"]`."""

    loss_metric: str | None = None
    """The metric of an evaluation that is the loss. Absent: `loss`, or `eval_loss`. The loss of
    training is always `train_loss`, `train-loss` or `loss`."""

    accuracy_metric: str | None = None
    """The metric that is the accuracy. Absent: `accuracy`, `eval_acc` or `eval_accuracy`."""

    evaluated_devices: DeviceCount | None = None
    """Number of devices, from the first on, on whose data every evaluation calls the app. Absent:
    all devices."""

    @classmethod
    def takes_model(cls) -> bool:
        return False

    @model_validator(mode="after")
    def _app_brings_the_rest(self) -> Self:
        for name in ("model", "validation_ratio"):
            if getattr(self, name) != Task.model_fields[name].default:
                raise ValueError(f"{name}: the app brings its model and its data; leave it out")
        return self

    def check(self) -> None:
        if importlib.util.find_spec("flwr") is None:
            raise ConfigError(
                "task: a Flower app needs Flower, which is not installed; "
                f"{install_command('flower')}"
            )
        read_project(self.app, self.run_config)
