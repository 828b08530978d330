import subprocess
import sys
from typing import Any

import pytest

from muster.common.config import Section, validate
from muster.common.errors import ConfigError
from muster.tasks.classification import Digits, Mnist
from muster.tasks.models import Linear, Mlp, Softmax
from muster.tasks.partitions import Dirichlet, Iid
from muster.tasks.regression import LinearRegression
from muster.tasks.tasks import BUILT_IN, TASKS, AnyTask, read_task

NAMES = ", ".join(sorted(BUILT_IN))


class Scenario(Section):
    task: AnyTask


def parse(**values: Any) -> Any:
    return validate(Scenario, {"task": values}, "scenario.toml").task


def mistakes(**values: Any) -> list[str]:
    with pytest.raises(ConfigError) as error:
        parse(**values)
    return [line.strip() for line in str(error.value).splitlines()[1:]]


def test_a_name_alone_is_a_task_with_every_default() -> None:
    task = TASKS.parse({"name": "digits"})
    assert isinstance(task, Digits)
    assert task.model == Mlp(kind="mlp", hidden=[200], activation="relu")
    assert task.partition == Iid(kind="iid")
    assert TASKS.parse("digits") == task


def test_the_models_settings_may_stand_beside_its_name() -> None:
    task = parse(name="mnist", model="mlp", hidden=[200, 100], activation="tanh")
    assert isinstance(task, Mnist)
    assert task.model == Mlp(kind="mlp", hidden=[200, 100], activation="tanh")


def test_the_models_settings_may_stand_beside_the_default_model() -> None:
    assert parse(name="digits", hidden=[8]).model == Mlp(kind="mlp", hidden=[8])
    assert parse(name="linear", bias=True).model == Linear(kind="linear", bias=True)


def test_the_models_settings_may_have_a_table_of_their_own() -> None:
    assert parse(name="digits", model={"kind": "softmax"}).model == Softmax(kind="softmax")


def test_a_partition_is_chosen_in_its_table() -> None:
    task = parse(name="digits", partition={"kind": "dirichlet", "alpha": 0.1})
    assert task.partition == Dirichlet(kind="dirichlet", alpha=0.1)


def test_a_task_of_ones_own_is_named_by_module_and_class() -> None:
    task = parse(name="muster.tasks.regression:LinearRegression", dimension=3)
    assert isinstance(task, LinearRegression)
    assert task.dimension == 3


@pytest.mark.parametrize(
    "values",
    [
        *({"name": name} for name in BUILT_IN if name not in ("flower", "own", "own-regression")),
        {"name": "own", "source": {"kind": "npz", "path": "/x.npz"}, "transforms": ["flatten"]},
        {"name": "own-regression", "source": {"kind": "npz", "path": "/x.npz"}},
        {"name": "flower", "app": "/app", "examples": 10},
        {"name": "mnist", "model": "softmax", "data": {"directory": "d"}},
        {"name": "digits", "hidden": [4], "partition": {"kind": "by-label"}},
        {"name": "linear", "noise": 0, "model": {"kind": "mlp"}},
        {"name": "20news", "model": "lstm", "pooling": "max", "tokens": 50},
        {"name": "cifar10", "model": "cnn", "validation_ratio": 0.1, "partition": "shards"},
    ],
)
def test_what_is_written_into_the_run_folder_or_sent_reads_as_the_same_task(
    values: dict[str, Any],
) -> None:
    scenario = validate(Scenario, {"task": values}, "scenario.toml")
    resolved = scenario.model_dump(exclude_none=True)
    assert resolved["task"]["name"] == values["name"]
    assert values["name"] == "flower" or resolved["task"]["model"]["kind"]
    assert validate(Scenario, resolved, "resolved") == scenario
    assert Scenario.from_json(scenario.to_json()) == scenario
    assert read_task(scenario.task.to_json()) == scenario.task
    assert type(scenario.task).from_json(scenario.task.to_json()) == scenario.task


def test_all_mistakes_are_reported_with_their_paths() -> None:
    found = mistakes(
        name="digits",
        modle="mlp",
        hidden=["many"],
        partition={"kind": "dirichlet", "alpha": "half", "beta": 1},
        data={"directory": 3},
    )
    paths = [line.split(":")[0] for line in found]
    assert sorted(paths) == [
        "task.data.directory",
        "task.model.hidden[0]",
        "task.modle",
        "task.partition.alpha",
        "task.partition.beta",
    ]


def test_unknown_names_are_reported_with_the_names_that_there_are() -> None:
    [task] = mistakes(name="digit")
    assert f"no task called 'digit' (did you mean 'digits'?); there are: {NAMES}" in task
    model, partition = mistakes(name="digits", model="cn", partition="rows")
    assert model.startswith(
        "task.model: there is no model called 'cn' (did you mean 'cnn'?); "
        "there are: cnn, linear, lstm"
    )
    assert partition.startswith("task.partition: there is no partition called 'rows'; there are:")


def test_a_suggestion_is_a_key_of_the_task_and_the_model_that_were_chosen() -> None:
    assert mistakes(name="digits", samples=3) == ["task.samples: unknown key"]  # flower: examples
    assert mistakes(name="digits", lables=[1, 2]) == [
        "task.lables: unknown key; did you mean 'labels'?"
    ]
    model = {"kind": "mlp", "hiden": [3]}
    found = mistakes(name="digits", model=model, partition={"kind": "iid", "labls": 1})
    assert found == [
        "task.model.hiden: unknown key; did you mean 'hidden'?",
        "task.partition.labls: unknown key",  # another partition has labels
    ]


def test_a_task_without_a_name_is_told_the_names() -> None:
    assert mistakes(kind="digits") == [f"task: name is required: one of {NAMES}"]


def test_settings_that_the_task_or_model_does_not_have_are_refused() -> None:
    assert mistakes(name="digits", model="softmax", hidden=[3]) == ["task.hidden: unknown key"]
    assert mistakes(name="linear", partition="iid") == ["task.partition: unknown key"]
    assert mistakes(name="linear", model="softmax") == [
        "task.model: softmax chooses between classes; expected linear or mlp here"
    ]


@pytest.mark.parametrize(
    ("values", "mistake"),
    [
        ({"name": "mnist", "model": "lstm"}, "task.model: lstm reads texts, and the examples"),
        ({"name": "digits", "model": "lstm"}, "task.model: lstm reads texts"),
        ({"name": "shakespeare", "model": "mlp"}, "task.model: mlp takes numbers"),
        ({"name": "20news", "model": "cnn"}, "task: model: cnn takes pictures of shape"),
        (
            {"name": "20news", "model": "mlp", "features": "tokens"},
            "task: model: mlp takes numbers, and the examples are texts; expected lstm",
        ),
        ({"name": "linear", "model": "cnn"}, "task.model: cnn takes pictures"),
        (
            {"name": "quadratic", "model": "mlp"},
            "task: model: a quadratic function is a function of θ itself",
        ),
        (
            {"name": "quadratic", "validation_ratio": 0.1},
            "task: validation_ratio: the examples of quadratic are its function",
        ),
        (
            {"name": "digits", "validation_ratio": 1},
            "task.validation_ratio: expected less than 1, found 1",
        ),
    ],
)
def test_what_a_model_cannot_take_is_refused_when_the_scenario_is_read(
    values: dict[str, Any], mistake: str
) -> None:
    [found] = mistakes(**values)
    assert found.startswith(mistake)


def test_what_a_peer_sends_is_read_as_strictly() -> None:
    with pytest.raises(ConfigError, match="not JSON"):
        read_task("{")
    with pytest.raises(ConfigError, match=r"task\.model\.hiden: unknown key"):
        read_task('{"name": "digits", "model": {"kind": "mlp", "hiden": [3]}}')


def test_settings_are_read_without_importing_torch_or_scikit_learn() -> None:
    code = (
        "import sys; import muster.tasks.tasks, muster.client.training.settings; "
        "print(*({'torch', 'sklearn', 'scipy'} & sys.modules.keys()))"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert output.stdout.strip() == b""
