"""Training of several devices at the same time gives what each of them gives alone."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from muster.client.training.local import train, training_thread
from muster.client.training.settings import Training
from muster.client.training.together import Job, most_together, require_layers, train_together
from muster.client.training.trainer import Trained
from muster.common.config import validate
from muster.common.errors import ConfigError
from muster.common.seeds import stream
from muster.emulator.scenario.scenario import Scenario
from muster.tasks.classification import Digits
from muster.tasks.logistic import LogisticRegression, OpenLogisticRegression
from muster.tasks.models import Mlp, Softmax
from muster.tasks.parts import vector_of
from muster.tasks.regression import LinearRegression
from muster.tasks.task import Examples, OpenTask

DEVICES = 6

TASKS: dict[str, OpenTask] = {
    "linear": LinearRegression(dimension=4, ridge=0.1).open(DEVICES, 3),
    "softmax": Digits(model=Softmax()).open(DEVICES, 3),
    "mlp": Digits(model=Mlp(hidden=[6])).open(DEVICES, 3),
    "deep": Digits(model=Mlp(hidden=[7, 5], activation="tanh")).open(DEVICES, 3),
}

SETTINGS: dict[str, dict[str, Any]] = {
    "steps": {"local_steps": 11},
    "epochs": {"local_epochs": 2},
    "full": {"local_steps": 3, "batch_size": "full"},
    "momentum": {"optimizer": {"kind": "sgd", "momentum": 0.9, "weight_decay": 0.1}},
    "adam": {"optimizer": {"kind": "adam", "weight_decay": 0.1}, "learning_rate": 0.01},
    "proximal": {"proximal_mu": 0.5, "local_steps": 4},
    "clipped": {"clip_norm": 0.1, "clip_update": 0.02, "projection_radius": 1.0},
    "gradient": {"gradient": True, "local_epochs": 1},
    "noise": {"clip_update": 0.1, "update_noise": 0.01, "initial_loss": True},
    "none": {"local_steps": 0},
}


def settings(**values: Any) -> Training:
    return validate(Training, {"batch_size": 5, "learning_rate": 0.05, **values}, "test")


def jobs(task: OpenTask) -> list[Job]:
    """Devices that hold different numbers of examples."""
    held = [task.client(index) for index in range(DEVICES)]
    counts = [13, 1, 3, 5, 21, 10]
    parts = [Examples(e.x[:count], e.y[:count]) for e, count in zip(held, counts, strict=True)]
    return [Job(f"dev-{number}", part) for number, part in enumerate(parts)]


def received_by(task: OpenTask) -> np.ndarray:
    start = vector_of(task.module())
    noise = stream(2, "a test's model").normal(0, 0.1, len(start))
    return start + noise.astype(np.float32)


def together(task: OpenTask, picked: list[Job], wanted: Training) -> list[Trained]:
    width = max(wanted.minibatch(len(job.examples)) for job in jobs(task))
    given = (task, task.module(), received_by(task), picked, wanted)
    return train_together(*given, width=width, seed=7, round=2)


def alone(task: OpenTask, job: Job, wanted: Training) -> Trained:
    given = (task, task.module(), received_by(task), job.examples, wanted)
    return train(*given, seed=7, client=job.client, round=2, base_version=0)


@pytest.mark.parametrize("model", TASKS)
@pytest.mark.parametrize("name", SETTINGS)
def test_it_gives_what_each_device_gives_alone_up_to_rounding(model: str, name: str) -> None:
    task, wanted = TASKS[model], settings(**SETTINGS[name])
    for job, found in zip(jobs(task), together(task, jobs(task), wanted), strict=True):
        expected = alone(task, job, wanted)
        scale = max(1e-6, float(np.abs(expected.delta).max()))
        assert found.delta == pytest.approx(expected.delta, rel=0, abs=2e-5 * scale)
        assert found.delta.dtype == np.float32
        assert (found.examples, found.train_steps) == (expected.examples, expected.train_steps)
        assert found.loss == pytest.approx(expected.loss, rel=1e-5, nan_ok=True)
        assert found.facts == expected.facts


@given(st.permutations(range(DEVICES)), st.integers(1, DEVICES), st.sampled_from([*TASKS]))
def test_the_bits_do_not_depend_on_the_devices_beside(
    order: list[int], count: int, model: str
) -> None:
    task, wanted = TASKS[model], settings(local_epochs=2)
    with training_thread() as thread:  # there torch uses one core, as in a pack
        everybody = thread.submit(together, task, jobs(task), wanted).result()
        picked = [jobs(task)[number] for number in order[:count]]
        some = thread.submit(together, task, picked, wanted).result()
    for number, found in zip(order, some, strict=False):
        assert found.delta.tobytes() == everybody[number].delta.tobytes()
        assert found.loss == pytest.approx(everybody[number].loss, rel=0, nan_ok=True)


def test_a_device_without_examples_changes_nothing() -> None:
    task, first = TASKS["mlp"], jobs(TASKS["mlp"])[0]
    empty = Job("dev-9", Examples(first.examples.x[:0], first.examples.y[:0]))
    found = together(task, [empty, first], settings())
    assert not found[0].delta.any()
    assert (found[0].examples, found[0].train_steps) == (0, 0)
    assert found[1].delta.tobytes() == together(task, [first], settings())[0].delta.tobytes()


def test_the_received_model_does_not_change() -> None:
    task = TASKS["mlp"]
    received = received_by(task)
    before = received.copy()
    train_together(task, task.module(), received, jobs(task), settings(), width=5, seed=7, round=2)
    assert np.array_equal(received, before)


def test_fewer_devices_train_at_the_same_time_if_their_minibatches_take_much_memory() -> None:
    task = TASKS["linear"]
    assert most_together(settings(together=4), jobs(task), 5) == 4
    assert most_together(settings(together=9), jobs(task), 5) == DEVICES
    assert most_together(settings(together=9, local_steps=400_000), jobs(task), 5) == 2
    assert most_together(settings(together=9, local_steps=1_000_000), jobs(task), 5) == 1


class OwnLoss(OpenLogisticRegression):
    """A task with a loss of its own, which does not tell the loss of every example."""

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        return super().loss(outputs, y) * 2


def test_models_and_tasks_that_cannot_are_refused() -> None:
    task = TASKS["softmax"]
    with pytest.raises(ConfigError, match="multilayer perceptron, found Sequential"):
        require_layers(task, nn.Sequential(nn.Flatten(), nn.Linear(64, 10), nn.Dropout(0.1)))
    own = OwnLoss(LogisticRegression(), 2, 1)
    with pytest.raises(ConfigError, match="OwnLoss defines `loss` without `scores`"):
        require_layers(own, own.module())


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"training": {"together": 0}}, "training.together"),
        ({"training": {"together": 2, "trainer": "tests.unit.test_together:own"}}, "one of them"),
        (
            {"training": {"together": 2, "optimizer": "tests.unit.test_masked_training:Restless"}},
            "expected an optimizer of muster's own",
        ),
        (
            {"training": {"together": 2}, "server": {"aggregator": "scaffold"}},
            "training.together: devices with control variates",
        ),
        (
            {
                "training": {"together": 2},
                "groups": [{"name": "dev", "count": 2, "mask": "width"}],
            },
            "groups.0..mask: devices with masks train one after the other",
        ),
    ],
)
def test_settings_that_contradict_it_are_refused(sections: dict[str, Any], message: str) -> None:
    values: dict[str, Any] = {
        "name": "together",
        "task": {"name": "digits"},
        "groups": [{"name": "dev", "count": 2}],
    }
    server = {"rounds": 2, **sections.pop("server", {})}
    with pytest.raises(ConfigError, match=message):
        validate(Scenario, {**values, **sections, "server": server}, "test")


def own(*_: Any, **__: Any) -> None:
    """A trainer, which is named only."""
