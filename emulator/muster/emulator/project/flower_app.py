"""A scenario for a Flower app, as `muster flower` writes it."""

import json
import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import tomli_w

from muster.common.bounds import MOST_EXAMPLES
from muster.common.config import validate
from muster.common.errors import ConfigError
from muster.common.files import refusal_of
from muster.common.processes import child_command, child_environment
from muster.tasks.flower.opened import Flower
from muster.tasks.flower.project import read_project

_ROUNDS = 1_000
"""Most rounds of a run whose app does not say how many it wants. The app ends the run."""


def flower_scenario(app: Path, devices: int, task: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a scenario that runs an app with its own strategy.

    Args:
        devices: the number of nodes.
        task: settings of the task beside `name`, `app` and `examples`.

    Raises:
        ConfigError: the app cannot be hosted.
    """
    name = app.resolve().name
    values = {"name": "flower", "app": str(app.resolve()), "examples": MOST_EXAMPLES, **task}
    checked = validate(Flower, values, "task")
    checked.check()
    rounds = read_project(checked.app, checked.run_config).run_config.get("num-server-rounds")
    return {
        "name": name,
        "seed": 1,
        "task": {**values, "examples": max(count_examples(checked, devices, seed=1))},
        "server": {
            "rounds": rounds if isinstance(rounds, int) and rounds > 0 else _ROUNDS,
            "aggregator": {"kind": "flower"},
        },
        "groups": [{"name": "node", "count": devices}],
    }


def count_examples(task: Flower, devices: int, seed: int) -> list[int]:
    """Return how many examples each device of an app trains on, by letting it train once.

    Raises:
        ConfigError: the app cannot be hosted.
    """
    setup = {"task": task.model_dump(mode="json"), "population": devices, "seed": seed}
    with TemporaryDirectory(prefix="muster-counting-") as scratch:  # for files of the app
        ended = subprocess.run(
            child_command("muster.tasks.flower.counting"),
            input=json.dumps(setup) + "\n",
            stdout=subprocess.PIPE,
            text=True,
            cwd=scratch,
            env=child_environment(),
            check=False,
        )
    answer = json.loads(ended.stdout or "{}")
    if "examples" not in answer:
        died = f"task.app: its rehearsal ended with status {ended.returncode}"
        raise ConfigError(answer.get("refused", died))
    return list(answer["examples"])


def write_scenario(make: Callable[[], Mapping[str, Any]], path: Path) -> None:
    """Write the settings of a scenario to a new file, with the app's folder relative to it.

    Args:
        make: makes the settings, if there is no such file.

    Raises:
        ConfigError: the file exists or cannot be written, or `make` has raised it.
    """
    if path.exists():
        raise ConfigError(
            f"{path} exists, and muster flower overwrites no file; run it with muster run {path}, "
            f"or name another file with --scenario"
        )
    values = make()
    app = os.path.relpath(values["task"]["app"], path.resolve().parent)
    text = tomli_w.dumps({**values, "task": {**values["task"], "app": app}})
    with refusal_of(f"{path} cannot be written", "name another file with --scenario"):
        path.write_text(text, encoding="utf-8")
