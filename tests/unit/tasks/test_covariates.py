"""What devices are shapes what they hold: effects of covariates Z on a client's θ_i."""

import json
from typing import Any

import numpy as np
import pytest

from muster.common.config import Section, validate
from muster.common.errors import ConfigError
from muster.tasks.logistic import LogisticRegression
from muster.tasks.models import Linear, Mlp
from muster.tasks.regression import LinearRegression, Quadratic
from muster.tasks.synthetic import OpenSynthetic, Synthetic
from muster.tasks.task import SENT_Z
from muster.tasks.tasks import AnyTask, read_task

N = 6
Z = {
    "age": np.array([0.0, 1.0, -1.0, 2.0, 0.5, 0.1 + 0.2]),
    "os=15": np.array([0.0, 0.0, 1.0, 1.0, 0.0, 1.0]),
    "other": np.zeros(N),
}
TASKS = [
    LinearRegression(dimension=3, covariates=["age", "os=15"]),
    LinearRegression(dimension=3, covariates=["age", "os=15"], model=Linear(bias=True)),
    LogisticRegression(dimension=3, covariates=["age", "os=15"], model=Linear(bias=True)),
    LogisticRegression(dimension=3, covariates=["age", "os=15"], model=Mlp(hidden=[2])),
    Quadratic(dimension=3, covariates=["age", "os=15"]),
]


class Scenario(Section):
    task: AnyTask


def parse(**values: Any) -> Any:
    return validate(Scenario, {"task": values}, "scenario.toml").task


def mistakes(**values: Any) -> list[str]:
    with pytest.raises(ConfigError) as error:
        parse(**values)
    return [line.strip() for line in str(error.value).splitlines()[1:]]


def opened(task: Synthetic, seed: int = 3, rows: int = N) -> OpenSynthetic:
    columns = {name: column[:rows] for name, column in Z.items()}
    found = task.with_covariates(columns).open(rows, seed)
    assert isinstance(found, OpenSynthetic)
    return found


def bits(task: OpenSynthetic, index: int) -> tuple[bytes, bytes]:
    examples = task.client(index)
    return examples.x.tobytes(), examples.y.tobytes()


def test_a_clients_optimum_is_moved_by_its_covariates_along_the_effects() -> None:
    # No noise: least squares finds θ_i = θ₀ + Z_i1 (1, 0, 0) + Z_i2 (0, 2, 0), the constant last.
    effects = {"age": [1.0, 0.0, 0.0], "os=15": [0.0, 2.0, 0.5]}
    task = LinearRegression(dimension=2, noise=0.0, model=Linear(bias=True), covariates=effects)
    found = opened(task)
    for index in range(N):
        theta = found.optimum(np.eye(N)[index])
        age, os = Z["age"][index], Z["os=15"][index]
        expected = found.theta + age * np.array([1, 0, 0]) + os * np.array([0, 2, 0.5])
        np.testing.assert_allclose(theta, expected, atol=1e-5)


@pytest.mark.parametrize("task", TASKS, ids=lambda task: type(task).__name__)
def test_drawn_effects_are_unit_vectors_that_depend_on_seed_and_name_alone(task: Synthetic) -> None:
    constant = isinstance(task.model, Linear) and task.model.bias
    found = opened(task)
    assert found.effects.shape == (2, 3 + constant)
    np.testing.assert_allclose(np.linalg.norm(found.effects, axis=1), 1)
    alone = opened(task.model_copy(update={"covariates": ["os=15"]}))
    assert alone.effects[0].tolist() == found.effects[1].tolist()
    assert opened(task, seed=4).effects.tolist() != found.effects.tolist()


@pytest.mark.parametrize("task", TASKS, ids=lambda task: type(task).__name__)
def test_a_clients_data_do_not_depend_on_how_many_there_are(task: Synthetic) -> None:
    few, many = opened(task, rows=4), opened(task)
    assert [bits(few, index) for index in range(4)] == [bits(many, index) for index in range(4)]


def test_the_slopes_of_the_middle_are_those_without_covariates() -> None:
    plain = LinearRegression(dimension=3, model=Linear(bias=True)).open(N, seed=3)
    shaped = opened(TASKS[1])
    assert plain.theta.shape == (3,)
    assert shaped.theta[:3].tolist() == plain.theta.tolist()
    # Device 0 has covariates of 0, but a constant now.
    assert plain.client(0).x.tobytes() == shaped.client(0).x.tobytes()


@pytest.mark.parametrize("task", TASKS, ids=lambda task: type(task).__name__)
def test_what_was_given_travels_exactly_with_the_task(task: Synthetic) -> None:
    task = task.model_copy(update={"kind": {"Quadratic": "quadratic", "LinearRegression": "linear",
        "LogisticRegression": "logistic"}[type(task).__name__]})  # fmt: skip
    model = task.model.model_copy(update={"kind": type(task.model).__name__.lower()})
    task = task.model_copy(update={"model": model})
    given = task.with_covariates(Z)
    sent = given.to_json()
    assert json.loads(sent)[SENT_Z].keys() == {"age", "os=15"}
    arrived = read_task(sent)
    assert arrived == given != task
    assert arrived.to_json() == sent
    here, there = given.open(N, seed=3), arrived.open(N, seed=3)
    assert isinstance(here, OpenSynthetic)
    assert isinstance(there, OpenSynthetic)
    assert [bits(here, index) for index in range(N)] == [bits(there, index) for index in range(N)]


def test_two_thousand_devices_take_little_room_in_what_is_sent() -> None:
    z = {name: np.random.default_rng(1).standard_normal(2000) for name in "abc"}
    task = parse(name="logistic", covariates=["a", "b", "c"])
    assert len(task.with_covariates(z).to_json()) < 2000 * 3 * 11 + 500


def test_a_task_without_covariates_takes_none() -> None:
    task = LinearRegression()
    assert task.needs() == frozenset()
    assert task.with_covariates(Z) is task
    assert "covariates of" not in task.to_json()


def test_what_is_given_is_no_setting() -> None:
    given = {"age": "AAAAAAAAAAA="}
    [mistake] = mistakes(name="linear", covariates=["age"], **{SENT_Z: given})
    assert mistake == f"task.{SENT_Z}: unknown key"
    assert "covariates of" not in str(TASKS[0].with_covariates(Z).model_dump())


def test_examples_cannot_be_drawn_before_the_covariates_are_known() -> None:
    found = TASKS[0].open(N, seed=3)
    assert found.examples == [50] * N
    with pytest.raises(ConfigError, match=r"age shapes the clients' data, .* without it"):
        found.client(0)
    with pytest.raises(ConfigError, match=r"age is known of 6 devices, .* opened for 5"):
        TASKS[0].with_covariates(Z).open(5, seed=3).client(0)
    with pytest.raises(ConfigError, match=r"no device has os=15; there are: age"):
        TASKS[0].with_covariates({"age": Z["age"]})


@pytest.mark.parametrize("text", ["AAAA", "é", "A"])
def test_what_a_peer_sends_is_read_as_strictly(text: str) -> None:
    sent = {"name": "linear", "covariates": ["age"], SENT_Z: {"age": text}}
    with pytest.raises(ConfigError, match="covariates that cannot be read"):
        read_task(json.dumps(sent))
    with pytest.raises(ConfigError, match=r"z\.age: expected a valid string, found 3"):
        read_task(json.dumps({**sent, SENT_Z: {"age": 3}}))


@pytest.mark.parametrize(
    ("values", "mistake"),
    [
        ({"covariates": "age"}, "task.covariates: expected a list of names of covariates Z"),
        ({"covariates": ["a", "a"]}, "task.covariates: a is named twice"),
        ({"covariates": {"a": 1.0}}, "task.covariates: a: expected a list of numbers, found 1.0"),
        ({"covariates": {"a": [True]}}, "task.covariates: a: expected a list of numbers"),
        (
            {"covariates": {"a": [1.0]}, "dimension": 2},
            "task: covariates.a: expected 2 numbers, of the slopes; found 1",
        ),
        (
            {"covariates": {"a": [1.0, 1.0]}, "dimension": 2, "bias": True},
            "task: covariates.a: expected 3 numbers, of the slopes, then the constant; found 2",
        ),
    ],
)
def test_effects_that_do_not_fit_are_refused_when_the_scenario_is_read(
    values: dict[str, Any], mistake: str
) -> None:
    [found] = mistakes(name="linear", **values)
    assert found.startswith(mistake)


def test_effects_are_written_as_they_were_given() -> None:
    task = parse(name="linear", dimension=2, covariates={"a": [1, 0]})
    assert read_task(task.to_json()) == task
    assert task.covariates == {"a": [1, 0]}
