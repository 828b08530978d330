"""Scenarios from a model, data and keywords."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

from muster.client.processes.config import GroupTrial, Trial
from muster.client.processes.trial import try_task
from muster.client.training.settings import Training
from muster.common.errors import ConfigError
from muster.torch import WrappedTask, wrap
from muster.torch.display import NotebookBar, in_notebook

X = np.linspace(-1, 1, 120, dtype=np.float32).reshape(40, 3)
Y = np.arange(40) % 2


@pytest.fixture
def task() -> WrappedTask:
    return wrap(nn.Linear(3, 2), (X, Y))


def test_without_a_scenario_there_are_ten_devices_and_ten_rounds(
    task: WrappedTask, tmp_path: Path
) -> None:
    found = task.scenario(folder=tmp_path)
    assert (found.name, found.devices, found.server.rounds) == ("linear", 10, 10)
    assert found.task.kind == "own"
    assert found.task.model.kind == "pickled"


def test_keywords_are_settings_of_the_scenario(task: WrappedTask, tmp_path: Path) -> None:
    found = task.scenario(
        folder=tmp_path,
        rounds=3,
        devices=4,
        aggregator="fedadam",
        training={"local_steps": 2},
        learning_rate=0.25,
        name="mine",
        seed=7,
    )
    assert (found.name, found.seed, found.devices, found.server.rounds) == ("mine", 7, 4, 3)
    assert found.server.aggregator.kind == "fedadam"
    assert (found.training.local_steps, found.training.learning_rate_at(1)) == (2, 0.25)


def test_keywords_take_precedence_over_a_mapping_which_stays_as_it_is(
    task: WrappedTask, tmp_path: Path
) -> None:
    given = {"server": {"rounds": 5}, "groups": [{"name": "a", "count": 2}]}
    found = task.scenario(given, folder=tmp_path, rounds=6)
    assert (found.devices, found.server.rounds) == (2, 6)
    assert given["server"] == {"rounds": 5}


def test_a_file_is_a_scenario_too(task: WrappedTask, tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(
        'name = "a"\n[task]\npartition = "iid"\nvalidation_ratio = 0.25\n[server]\nrounds = 4\n'
        '[[groups]]\nname = "x"\ncount = 3\n'
    )
    found = task.scenario(tmp_path / "a.toml", folder=tmp_path)
    assert (found.name, found.devices, found.task.validation_ratio) == ("a", 3, 0.25)


def test_labels_may_be_numbers_to_predict(tmp_path: Path) -> None:
    numbers = wrap(nn.Linear(3, 1), (X, Y + 0.5))
    classes: Any = numbers.scenario(folder=tmp_path).task
    with pytest.raises(ConfigError, match=r"take task.name = 'own-regression'"):
        classes.open(2, 1)
    found: Any = numbers.scenario(folder=tmp_path, task={"name": "own-regression"}).task
    assert found.kind == "own-regression"
    assert set(found.open(2, 1).test().y) == {0.5, 1.5}


def test_labels_that_only_the_test_examples_have_are_named(tmp_path: Path) -> None:
    more = wrap(nn.Linear(3, 2), (X, Y), test=(X, np.arange(40) % 3))
    task: Any = more.scenario(folder=tmp_path).task
    trial = Trial(training=Training(), groups=[GroupTrial(name="a", devices={"a": 0})])
    with pytest.raises(ConfigError, match=r"labels from 0 to 2, and the model has 2 outputs"):
        try_task(task.open(1, 1), trial, 0)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a key of training": ({"optimizer": "adam"}, r"no setting 'optimizer'; give training=\{'optim"),
    "a slip": ({"round": 3}, r"no setting 'round' \(did you mean rounds\?\); expected one of rou"),
    "another task": (
        {"task": {"name": "digits"}},
        r"data= makes the task 'own' or 'own-reg.* 'digits'",
    ),
    "several groups": (
        {"groups": [{"name": "a", "count": 1}, {"name": "b", "count": 1}], "devices": 3},
        r"devices: expected a scenario with one group; give groups=",
    ),
    "no groups": ({"groups": 3, "devices": 3}, r"devices: expected a scenario with one group"),
    "no source": ({"task": {"source": 3}}, r"source: expected a table, found int"),
    "no table": (
        {"server": 3},
        r"server: expected a valid dictionary or instance of ServerSettings, found 3",
    ),
    "a value": ({"rounds": 0}, r"server\.rounds"),
    "a tensor as a value": ({"learning_rate": np.ones(2)}, r"training\.learning_rate"),
}


@pytest.mark.parametrize(("settings", "message"), REFUSED.values(), ids=REFUSED)
def test_wrong_settings_are_refused(
    task: WrappedTask, tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        task.scenario(folder=tmp_path, **settings)


def test_what_is_no_model_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"model: expected a torch\.nn\.Module or .* found str"):
        wrap("a model", (X, Y))  # type: ignore[arg-type]


def test_a_plan_shows_itself_in_a_notebook(
    task: WrappedTask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = task.plan(devices=4, rounds=2, name="planned")
    shown = found.html()
    assert "data:image/png;base64," in shown
    assert "Plan of planned: 2 rounds" in shown
    assert "http" not in shown
    assert str(found).startswith("planned: 2 rounds")


def test_a_bar_shows_how_far_a_run_is() -> None:
    drawn: list[str] = []
    bar = NotebookBar(drawn.append, title="a <run>", every_s=60.0)
    events: list[dict[str, Any]] = [
        {
            "event": "server_started",
            "population": 2,
            "rounds": 4,
            "round": 0,
            "version": 0,
            "seconds": 0.0,
            "bytes_up": 0,
            "bytes_down": 0,
        },
        {"event": "warned", "round": 1, "by": "x", "warning": "y"},
    ]
    for event in events:
        bar.show(event)
    bar.close()
    assert "<b>a &lt;run&gt;</b>" in drawn[-1]
    assert 'max="2"' in drawn[-1]


def test_a_test_is_no_notebook() -> None:
    assert not in_notebook()
