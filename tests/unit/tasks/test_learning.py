"""Every task that comes with muster is learned by a few clients in two rounds."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from muster.client.training.local import train
from muster.client.training.settings import Training
from muster.common.config import Section, validate
from muster.emulator.scenario.reading import read_scenario
from muster.emulator.scenario.scenario import Scenario
from muster.tasks import files
from muster.tasks.parts import load_vector, vector_of
from muster.tasks.task import Examples, OpenTask
from muster.tasks.tasks import BUILT_IN, AnyTask

EXAMPLES = Path(__file__).parents[3] / "examples"
CLIENTS = 3
SLICE = slice(60)


class Parts(Section):
    task: AnyTask
    training: Training


def losses(opened: OpenTask, settings: Training, measured: Examples) -> list[float]:
    """The loss before and after each of two rounds of federated averaging."""
    module = opened.module()
    found = [opened.metrics_on(module, measured)["loss"]]
    for round in (1, 2):
        received = vector_of(module)
        deltas = [
            train(
                opened,
                opened.module(),
                received,
                opened.client(index).take(SLICE),
                settings,
                seed=1,
                client=str(index),
                round=round,
                base_version=round - 1,
            ).delta
            for index in range(CLIENTS)
        ]
        load_vector(module, received + np.mean(deltas, axis=0))
        found.append(opened.metrics_on(module, measured)["loss"])
    return found


TASKS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"name": "digits"}, {"learning_rate": 0.1}),
    ({"name": "digits", "model": "cnn", "channels": 4, "hidden": 32}, {"learning_rate": 0.1}),
    ({"name": "linear"}, {"learning_rate": 0.1}),
    ({"name": "logistic"}, {"learning_rate": 0.5}),
    ({"name": "quadratic"}, {"learning_rate": 0.5}),
    ({"name": "mnist"}, {"learning_rate": 0.1}),
    ({"name": "fashion-mnist", "model": "resnet", "width": 4}, {"learning_rate": 0.1}),
    ({"name": "cifar10", "partition": "shards", "model": "softmax"}, {"learning_rate": 0.005}),
    ({"name": "uci-har"}, {"learning_rate": 0.02}),
    ({"name": "20news"}, {"learning_rate": 2.0}),
    (
        {"name": "20news", "model": "lstm", "hidden": 8, "pooling": "max", "tokens": 40},
        {"learning_rate": 0.5},
    ),
    ({"name": "shakespeare", "characters": 20, "hidden": 8}, {"learning_rate": 0.5}),
]


def test_every_task_is_here() -> None:
    # An app of Flower trains by itself: tests/integration/flower. Own data: test_sources.py.
    elsewhere = {"flower", "own", "own-regression"}
    assert {task["name"] for task, _ in TASKS} == set(BUILT_IN) - elsewhere


@pytest.mark.parametrize(
    ("task", "training"),
    [
        pytest.param(
            task,
            training,
            id=f"{task['name']}-{task.get('model', 'default')}",
            marks=[pytest.mark.data] if task["name"] in files.CHECKSUMS else [],
        )
        for task, training in TASKS
    ],
)
def test_two_rounds_lower_the_loss(
    task: dict[str, Any], training: dict[str, Any], request: pytest.FixtureRequest
) -> None:
    if task["name"] in files.CHECKSUMS:
        published = request.getfixturevalue("published")
        task = {**task, "data": {"directory": str(published)}}
    settings = {"local_epochs": 2, "batch_size": 10, **training}
    parts = validate(Parts, {"task": task, "training": settings}, "test")
    opened = parts.task.open(population=CLIENTS, seed=1)
    measured = [opened.client(index).take(SLICE) for index in range(CLIENTS)]
    together = Examples(
        np.concatenate([examples.x for examples in measured]),
        np.concatenate([examples.y for examples in measured]),
    )
    first, second, third = losses(opened, parts.training, together)
    assert first > second > third


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.toml")), ids=lambda path: path.stem)
def test_the_examples_are_read(path: Path) -> None:
    scenario: Scenario = read_scenario(path)
    assert scenario.devices >= 10
    assert path.read_text().startswith("# ")
