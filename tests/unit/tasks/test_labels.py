"""Which labels there are, who holds them, and on which examples models are measured."""

from typing import Any

import numpy as np
import pytest

from muster.common.config import Section, validate
from muster.common.errors import ConfigError
from muster.tasks.classification import Classification, Digits
from muster.tasks.datasets import Dataset
from muster.tasks.models import Softmax
from muster.tasks.partitions import Assigned, ByLabel, Natural
from muster.tasks.parts import vector_of
from muster.tasks.tasks import AnyTask, read_task


class Coloured(Classification):
    """24 training and 8 test examples of 1×1 pixel, of which the colour is ten times the label."""

    model: Softmax = Softmax(kind="softmax")

    def dataset(self) -> Dataset:
        y, test = np.arange(24) % 4, np.arange(8) % 4
        return Dataset(
            (10 * y.astype(np.uint8)).reshape(-1, 1, 1),
            y,
            (10 * test.astype(np.uint8)).reshape(-1, 1, 1),
            test,
            labels=4,
            train_user=np.arange(24) // 6,
            train_unit=np.arange(24) // 2,
        )


class Scenario(Section):
    task: AnyTask


def mistakes(**values: Any) -> list[str]:
    with pytest.raises(ConfigError) as error:
        validate(Scenario, {"task": {"name": "digits", **values}}, "scenario.toml")
    return [line.strip() for line in str(error.value).splitlines()[1:]]


def colours(task: Classification, clients: int) -> list[list[int]]:
    """Sorted colours of each client's examples: ten times the data set's own labels."""
    opened = task.open(clients, seed=1)
    return [
        np.sort(opened.client(index).x.ravel()).astype(int).tolist() for index in range(clients)
    ]


# --- task.labels ---------------------------------------------------------------------------------


def test_examples_of_other_labels_are_left_out_and_labels_are_numbered_as_listed() -> None:
    opened = Coloured(labels=[3, 1]).open(population=2, seed=1)
    assert opened.examples == [6, 6]
    assert vector_of(opened.module()).shape == (2 * 1 + 2,)
    for examples in (opened.client(0), opened.client(1), opened.test()):
        assert set(examples.x.ravel().tolist()) == {10, 30}
        assert (examples.y == np.where(examples.x.ravel() == 30, 0, 1)).all()
        assert examples.y.dtype == np.int64
    assert len(opened.test()) == 4


def test_all_labels_in_their_order_change_nothing() -> None:
    plain = Coloured(validation_ratio=0.2).open(population=2, seed=1)
    listed = Coloured(validation_ratio=0.2, labels=[0, 1, 2, 3]).open(population=2, seed=1)
    for index in (0, 1):
        assert plain.client(index).x.tobytes() == listed.client(index).x.tobytes()
        assert plain.validation(index).y.tobytes() == listed.validation(index).y.tobytes()


def test_users_keep_what_is_left_of_their_examples() -> None:
    # User u has the examples 6u to 6u + 5, of labels 6u % 4 and on.
    assert colours(Coloured(labels=[0, 1], partition=Natural()), 4) == [
        [0, 0, 10, 10],
        [0, 10],
        [0, 0, 10, 10],
        [0, 10],
    ]


def test_a_model_of_three_digits_has_three_outputs() -> None:
    opened = Digits(labels=[0, 1, 2]).open(population=3, seed=1)
    assert set(opened.test().y.tolist()) == {0, 1, 2}
    assert sum(opened.examples) < 1437 / 3
    assert opened.metrics(opened.module())["accuracy"] > 0.1


@pytest.mark.parametrize("unknown", [[0, 4], [7, 0, 9]])
def test_labels_that_the_data_do_not_have_are_refused(unknown: list[int]) -> None:
    with pytest.raises(ConfigError, match=r"task\.labels: expected labels from 0 to 3.* (4|7, 9)$"):
        Coloured(labels=unknown).open(population=2, seed=1)


@pytest.mark.parametrize(
    ("labels", "mistake"),
    [
        ([1], "task.labels: expected two labels at least to choose between, found [1]"),
        ([], "task.labels: expected two labels at least to choose between, found []"),
        ([1, 2, 1], "task.labels: expected each label once, found 1 twice"),
        ([1, -2], "task.labels[1]: expected at least 0, found -2"),
    ],
)
def test_labels_that_make_no_task_are_refused_when_the_scenario_is_read(
    labels: list[int], mistake: str
) -> None:
    assert mistakes(labels=labels) == [mistake]


# --- task.partition: assigned --------------------------------------------------------------------


def test_a_label_is_shared_out_evenly_among_its_holders() -> None:
    partition = Assigned(labels=[[0], [0, 2], [0], [3], [0]])
    assert colours(Coloured(partition=partition), 5) == [
        [0, 0],
        [0, 0, *[20] * 6],
        [0],
        [30] * 6,
        [0],
    ]


def test_no_example_goes_to_two_clients() -> None:
    labels = np.arange(60) % 3
    shares = Assigned(labels=[[0, 1], [1, 0], [1]]).split(labels, 3, seed=5)
    together = np.concatenate(shares)
    assert sorted(together.tolist()) == np.flatnonzero(labels < 2).tolist()
    assert all((np.diff(share) > 0).all() for share in shares)
    again = Assigned(labels=[[0, 1], [1, 0], [1]]).split(labels, 3, seed=6)
    assert [share.tolist() for share in again] != [share.tolist() for share in shares]


def test_clients_hold_as_many_examples_as_are_asked_for() -> None:
    partition = Assigned(labels=[[0], [2, 0], [3, 2, 1]], examples_per_client=3)
    assert colours(Coloured(partition=partition), 3) == [[0, 0, 0], [0, 20, 20], [10, 20, 30]]


def test_labels_are_those_of_the_data_set_whatever_the_task_makes_of_them() -> None:
    task = Coloured(labels=[3, 1], partition=Assigned(labels=[[3], [1]]))
    assert colours(task, 2) == [[30] * 6, [10] * 6]
    opened = task.open(population=2, seed=1)
    assert set(opened.client(0).y.tolist()) == {0}
    by_label = Coloured(labels=[3, 1], partition=ByLabel(labels_per_client=1)).open(2, seed=1)
    assert {by_label.client(0).y[0], by_label.client(1).y[0]} == {0, 1}


@pytest.mark.parametrize(
    ("task", "clients", "mistake"),
    [
        (
            Coloured(partition=Assigned(labels=[[0], [1]])),
            3,
            r"task\.partition\.labels: expected a list .* each of the 3 devices, found 2",
        ),
        (
            Coloured(partition=Assigned(labels=[[0], [9]])),
            2,
            r"label 9 has no examples; there are: 0, 1, 2, 3$",
        ),
        (
            Coloured(labels=[0, 1], partition=Assigned(labels=[[0], [2]])),
            2,
            r"label 2 has no examples; there are: 0, 1$",
        ),
        (
            Coloured(partition=Assigned(labels=[[0]] * 7)),
            7,
            r"label 0 has 6 examples, and 7 clients need 7;",
        ),
        (
            Coloured(partition=Assigned(labels=[[0], [0, 1]], examples_per_client=5)),
            2,
            r"label 0 has 6 examples, and 2 clients need 8;",  # 5 and, of a half, 3
        ),
    ],
)
def test_what_cannot_be_assigned_is_refused(
    task: Classification, clients: int, mistake: str
) -> None:
    with pytest.raises(ConfigError, match=mistake):
        task.open(clients, seed=1)


@pytest.mark.parametrize(
    ("settings", "mistake"),
    [
        ({"labels": [[0], []]}, "task.partition.labels: device 1: expected a label at least"),
        ({"labels": [[0, 0]]}, "task.partition.labels: device 0: expected each label once"),
        ({"labels": [0]}, "task.partition.labels[0]: expected a valid list, found 0"),
        ({}, "task.partition.labels: required, but missing"),
        (
            {"labels": [[0], [1, 2]], "examples_per_client": 1},
            "task.partition: examples_per_client: expected one at least of each of 2 labels",
        ),
    ],
)
def test_mistakes_are_found_when_the_scenario_is_read(
    settings: dict[str, Any], mistake: str
) -> None:
    [found] = mistakes(partition={"kind": "assigned", **settings})
    assert found.startswith(mistake)


def test_settings_travel() -> None:
    values = {
        "name": "digits",
        "labels": [2, 0],
        "evaluate_on": "training",
        "standardise": True,
        "partition": {"kind": "assigned", "labels": [[0], [2, 0]], "examples_per_client": 4},
    }
    task = validate(Scenario, {"task": values}, "scenario.toml").task
    assert read_task(task.to_json()) == task


def test_devices_train_and_models_are_measured_on_standardised_values() -> None:
    task = {"name": "digits", "standardise": True}
    opened = validate(Scenario, {"task": task}, "scenario.toml").task.open(2, 1)
    x = np.concatenate([opened.client(0).x, opened.client(1).x])
    assert abs(x.mean()) < 1e-4
    assert abs(x.std() - 1) < 1e-4
    assert abs(opened.test().x.mean()) < 0.05


# --- task.evaluate_on ----------------------------------------------------------------------------


def test_models_are_measured_on_what_all_clients_train_on_each_example_once() -> None:
    partition = Assigned(labels=[[0], [0, 1]])
    task = Coloured(partition=partition, evaluate_on="training", validation_ratio=0.2)
    opened = task.open(population=2, seed=1)
    held = [opened.client(0), opened.client(1)]
    found = opened.test()
    assert len(found) == sum(opened.examples) < 12
    assert found.x.tobytes() == b"".join(examples.x.tobytes() for examples in held)
    assert found.y.tobytes() == b"".join(examples.y.tobytes() for examples in held)


def test_the_training_loss_is_the_mean_over_all_training_examples() -> None:
    opened = Coloured(evaluate_on="training").open(population=3, seed=1)
    module = opened.module()
    clients = [opened.metrics_on(module, opened.client(index))["loss"] for index in range(3)]
    assert opened.metrics(module)["loss"] == pytest.approx(np.mean(clients))
