"""What is refused of a scenario with a Flower app before anything is imported."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from muster.common.config import validate
from muster.common.errors import ConfigError
from muster.emulator.scenario.scenario import Scenario
from muster.tasks.flower.project import read_project

PROJECT = """
[tool.flwr.app.components]
serverapp = "mine.server:app"
clientapp = "mine.client:app"
[tool.flwr.app.config]
rate = 0.5
[tool.flwr.app.config.data]
folder = "x"
"""


def test_the_configuration_is_flat_and_the_scenario_replaces_values(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    project = read_project(str(tmp_path), {"data.folder": "y"})
    assert project.run_config == {"rate": 0.5, "data.folder": "y"}
    assert (project.client_app, project.server_app) == ("mine.client:app", "mine.server:app")


@pytest.mark.parametrize(
    ("text", "run_config", "expected"),
    [
        (None, {}, "pyproject.toml does not exist; expected the folder of a Flower app"),
        ("[tool", {}, "pyproject.toml cannot be read"),
        ("[tool.flwr]", {}, "with clientapp and serverapp as 'module:object', found none"),
        (PROJECT.replace("serverapp", "server"), {}, "needs [tool.flwr.app.components]"),
        (PROJECT, {"lr": 1}, "the app has no lr in [tool.flwr.app.config]; there are: rate, data."),
    ],
)
def test_a_folder_that_is_no_app_is_refused(
    tmp_path: Path, text: str | None, run_config: dict[str, float], expected: str
) -> None:
    if text is not None:
        (tmp_path / "pyproject.toml").write_text(text)
    with pytest.raises(ConfigError) as refused:
        read_project(str(tmp_path), run_config)
    assert expected in str(refused.value)


def values(**sections: Any) -> dict[str, Any]:
    return {
        "name": "hosted",
        "task": {"name": "flower", "app": "/app", "examples": 10},
        "server": {"rounds": 3},
        "groups": [{"name": "phones", "count": 4}],
    } | sections


GROUP: dict[str, Any] = {"name": "phones", "count": 4}


@pytest.mark.parametrize(
    ("sections", "expected"),
    [
        ({"training": {"learning_rate": 0.5}}, "training.learning_rate: the app trains"),
        ({"training": {"local_epochs": 2}}, "training.local_epochs: the app trains"),
        ({"server": {"rounds": 3, "aggregator": "scaffold"}}, "'scaffold' corrects local steps"),
        ({"server": {"rounds": 3, "aggregator": "fednova"}}, "'fednova' needs the local steps"),
        ({"server": {"rounds": 3, "evaluate_groups": True}}, "server.evaluate_groups: the app"),
        ({"groups": [{**GROUP, "mask": {"kind": "width"}}]}, "groups[0].mask: an app trains the"),
        ({"groups": [{**GROUP, "training": {"local_steps": 2}}]}, "groups[0].training: the app"),
        (
            {"groups": [{**GROUP, "participation": {"kind": "rational"}}]},
            "groups[0].participation: rational devices judge",
        ),
        (
            {"faults": [{"name": "f", "do": "label-flip", "when": {"round": 1}}]},
            "faults[0].do: label-flip changes examples",
        ),
        ({"task": {"name": "flower", "app": "/app"}}, "task.examples"),
        (
            {"task": {"name": "flower", "app": "/a", "examples": 1, "model": "cnn"}},
            "model: the app brings",
        ),
    ],
)
def test_what_an_app_cannot_do_is_refused(sections: dict[str, Any], expected: str) -> None:
    validate(Scenario, values(), "test")
    with pytest.raises(ConfigError) as refused:
        validate(Scenario, values(**sections), "test")
    assert expected in str(refused.value)


STRATEGY = {"rounds": 3, "aggregator": "flower"}


@pytest.mark.parametrize(
    ("sections", "expected"),
    [
        ({"task": {"name": "digits"}}, "the task has none; set task.name = 'flower'"),
        (
            {"server": {**STRATEGY, "selection": {"kind": "uniform", "k": 2}}},
            "the strategy of the app chooses the devices of a round",
        ),
        (
            {"server": {**STRATEGY, "mode": {"kind": "buffered", "k": 2, "concurrency": 2}}},
            "so an update cannot count in a later one",
        ),
        ({"server": {**STRATEGY, "minimum": 2}}, "decides how many replies it needs"),
        (
            {"server": {**STRATEGY, "privacy": {"clip": 1.0, "noise": 1.0}}},
            "the aggregator 'flower' lives on weights of its own",
        ),
    ],
)
def test_what_a_strategy_cannot_do_is_refused(sections: dict[str, Any], expected: str) -> None:
    validate(Scenario, values(server=STRATEGY), "test")
    with pytest.raises(ConfigError) as refused:
        validate(Scenario, values(**{"server": STRATEGY, **sections}), "test")
    assert expected in str(refused.value)


def test_flower_is_imported_only_when_an_app_is_used() -> None:
    lines = [
        "import sys",
        "import muster.emulator, muster.client.processes.nursery, muster.server.evaluation.process",
        "from muster.tasks.tasks import read_task",
        'read_task(\'{"name": "digits"}\').open(2, 1).module()',
        "assert 'muster.tasks.flower.opened' in sys.modules",
        "sys.exit('flwr' in sys.modules)",
    ]
    subprocess.run([sys.executable, "-c", "\n".join(lines)], check=True, timeout=100)
