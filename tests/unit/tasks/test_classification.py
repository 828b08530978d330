import numpy as np
import pytest
import torch

from muster.common.errors import ConfigError
from muster.tasks.classification import Classification, Digits
from muster.tasks.datasets import Dataset
from muster.tasks.models import Mlp, Softmax
from muster.tasks.partitions import ByLabel
from muster.tasks.parts import load_vector, vector_of
from muster.tasks.task import predict


class Squares(Classification):
    """Four 1×2 pictures: label 0 is bright on the left, label 1 on the right."""

    model: Softmax = Softmax(kind="softmax")

    def dataset(self) -> Dataset:
        x = np.array([[[4, 0]], [[0, 4]], [[4, 0]], [[0, 4]]], np.uint8)
        y = np.array([0, 1, 0, 1])
        return Dataset(x, y, x[:3], y[:3], brightest=4, labels=2)


def test_clients_hold_the_examples_of_their_shares_scaled() -> None:
    opened = Squares(partition=ByLabel(labels_per_client=1)).open(population=2, seed=0)
    assert opened.examples == [2, 2]
    for index in (0, 1):
        client = opened.client(index)
        assert len(set(client.y.tolist())) == 1
        expected = [[1.0, 0.0]] if client.y[0] == 0 else [[0.0, 1.0]]
        assert client.x.tolist() == [expected, expected]
        assert (client.x.dtype.name, client.y.dtype.name) == ("float32", "int64")


def test_loss_and_accuracy_are_those_of_hand_arithmetic() -> None:
    opened = Squares().open(population=2, seed=0)
    module = opened.module()
    assert opened.metrics(module)["loss"] == pytest.approx(np.log(2))
    # Scores (2, 0) for bright on the left and (0, 0) with a bias of 1 for label 0 on the right:
    # labels 0, 1, 0 are found as 0, 0, 0.
    load_vector(module, np.array([2, 0, 0, 0, 1, 0], np.float32))
    right, wrong = np.log1p(np.exp(-3)), np.log1p(np.exp(1))
    assert opened.metrics(module) == pytest.approx(
        {"loss": (2 * right + wrong) / 3, "accuracy": 2 / 3}
    )


def test_every_party_starts_from_the_same_module() -> None:
    first = Digits(model=Mlp(hidden=[4])).open(population=3, seed=9)
    second = Digits(model=Mlp(hidden=[4])).open(population=3, seed=9)
    assert vector_of(first.module()).tobytes() == vector_of(second.module()).tobytes()
    assert first.client(1).x.tobytes() == second.client(1).x.tobytes()


def test_more_devices_than_examples_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"5 clients .* found 4"):
        Squares().open(population=5, seed=0)


def test_predicting_is_done_in_evaluation_mode_and_leaves_the_mode_as_it_was() -> None:
    module = torch.nn.Dropout(0.5)
    x = np.ones((2500, 3), np.float32)
    assert torch.equal(predict(module, x), torch.ones(2500, 3))
    assert module.training
