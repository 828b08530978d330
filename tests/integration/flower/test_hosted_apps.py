"""The `ClientApp` of a Flower app trains a device: messages, seeds, and what the device keeps."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest

from muster.client.training.hosted import train_hosted
from muster.client.training.settings import Training
from muster.tasks.parts import layout_of, load_vector, vector_of

if TYPE_CHECKING:
    from tests.integration.flower.conftest import MakeApp

    from muster.tasks.flower.opened import OpenFlower
    from muster.tasks.hosted import HostedUpdate


def trained(
    task: OpenFlower, index: int = 2, round: int = 7, kept: bytes = b"", seed: int = 1
) -> HostedUpdate:
    received = vector_of(task.module())
    return task.train(index, f"phones-{index}", received, seed, round, kept)


def test_the_model_is_the_one_with_which_the_server_app_begins(make_app: MakeApp) -> None:
    module = make_app().module()
    tensors = {t.name: t.shape for t in layout_of(module).schema.tensors}
    assert tensors == {"0": (2, 2), "1": (3,)}
    expected = np.array([0, 0, 0, 0, 1, 1, 1], np.float32)
    np.testing.assert_array_equal(vector_of(module), expected)


def test_an_update_has_the_arrays_the_examples_and_the_loss_of_the_reply(make_app: MakeApp) -> None:
    update = trained(make_app())
    np.testing.assert_array_equal(update.trained, np.array([3, 3, 3, 3, 4, 4, 4], np.float32))
    assert (update.examples, update.loss) == (30, 0.5)


ECHO = """
        config, node = message.content["config"], context.node_config
        array = message.content["arrays"].to_numpy_ndarrays()[0]
        facts = [config["lr"], config["server-round"], config.get("extra", -1),
                 context.run_config["rate"], node["num-partitions"], int(array.dtype == np.float64),
                 int(message.metadata.message_type == "train")]
        array = np.array(facts, np.float64)
        metrics = MetricRecord({"num-examples": 1})
        content = RecordDict({"arrays": ArrayRecord([array]), "metrics": metrics})
        return Message(content, reply_to=message)
"""
ONE_ARRAY = """
        config = ConfigRecord({"lr": context.run_config["rate"]})
        FedAvg().start(grid, ArrayRecord([np.zeros(7)]), num_rounds=1, train_config=config)
"""


def test_messages_are_those_of_the_server_app_with_the_round_and_the_scenarios_values(
    make_app: MakeApp,
) -> None:
    task = make_app(
        train=ECHO, main=ONE_ARRAY, run_config={"rate": 0.25}, train_config={"extra": 3}
    )
    expected = np.array([0.25, 7, 3, 0.25, 4, 1, 1], np.float32)
    np.testing.assert_array_equal(trained(task).trained, expected)


RANDOM = """
        import random
        import torch
        draws = [random.random(), np.random.random(), torch.rand(1).item()]
        array = np.float32(draws)
        content = RecordDict({"a": ArrayRecord([array]), "m": MetricRecord({"num-examples": 1})})
        return Message(content, reply_to=message)
"""
THREE = "FedAvg().start(grid, ArrayRecord([np.zeros(3, np.float32)]), num_rounds=1)"


def test_random_numbers_depend_on_the_seed_the_device_and_the_call_alone(
    make_app: MakeApp,
) -> None:
    task = make_app(train=RANDOM, main=THREE)
    first = trained(task).trained
    others = [trained(task, index=1), trained(task, round=8), trained(task, seed=2)]
    np.testing.assert_array_equal(trained(task).trained, first)
    for other in others:
        assert not (other.trained == first).any()


STATE = """
        state = context.state
        before = state["seen"]["times"] if "seen" in state else 0
        state["seen"] = ConfigRecord({"times": before + 1, "raw": b"\\x00\\xff", "two": [1.5, 2.5]})
        state["odd"] = MetricRecord({"float": 0.1, "whole": 3})
        if before:
            assert state["seen"]["raw"] == b"\\x00\\xff" and state["odd"]["float"] == 0.1
            assert state["head"].to_numpy_ndarrays()[0].dtype == np.float16
        state["head"] = ArrayRecord([np.float16([1, 2])])
        array = np.float32([before, 0, 0])
        content = RecordDict({"a": ArrayRecord([array]), "m": MetricRecord({"num-examples": 1})})
        return Message(content, reply_to=message)
"""


def test_the_state_of_the_context_is_what_the_device_keeps(make_app: MakeApp) -> None:
    task = make_app(train=STATE, main=THREE)
    first = trained(task)
    second = trained(task, round=8, kept=first.kept)
    again = trained(task, round=8, kept=first.kept)
    assert [u.trained[0] for u in (first, second, again)] == [0, 1, 1]
    assert second.kept == again.kept


COUNTER = """
        weight, counter = message.content["arrays"].to_numpy_ndarrays()
        metrics = MetricRecord({"num-examples": 1})
        arrays = ArrayRecord([weight + np.float32(counter), np.array(counter + 1)])
        return Message(RecordDict({"a": arrays, "m": metrics}), reply_to=message)
"""
WITH_COUNTER = """
        arrays = [np.zeros(2, np.float32), np.array(5)]
        FedAvg().start(grid, ArrayRecord(arrays), num_rounds=1)
"""


def test_local_arrays_stay_on_their_device(make_app: MakeApp) -> None:
    task = make_app(train=COUNTER, main=WITH_COUNTER, local_arrays=["1"])
    first = trained(task)
    second = trained(task, kept=first.kept)
    np.testing.assert_array_equal(first.trained, np.array([5, 5], np.float32))
    np.testing.assert_array_equal(second.trained, np.array([6, 6], np.float32))


def test_an_evaluation_is_the_mean_over_the_nodes_weighted_by_their_examples(
    make_app: MakeApp,
) -> None:
    task = make_app(evaluated_devices=3)
    module = task.module()
    load_vector(module, np.array([1, 2, 3, 4, 0, 0, 0], np.float32))
    # (1 · 10 + 2 · 11 + 3 · 12) / 6, and the accuracies (0, ¼, ½) likewise
    assert task.metrics(module) == pytest.approx({"loss": 68 / 6, "accuracy": 2 / 6})


EVALUATE_ODD = """
        metrics = {"num-examples": 2, "nll": 2.0, "top1": 0.5, "other": 1, "list": [1, 2]}
        metrics |= {"loss": 9.0, "accuracy": 0.1}
        return Message(RecordDict({"m": MetricRecord(metrics)}), reply_to=message)
"""


def test_the_loss_and_the_accuracy_may_have_names_of_the_apps_own(make_app: MakeApp) -> None:
    task = make_app(evaluate=EVALUATE_ODD, loss_metric="nll", accuracy_metric="top1")
    assert task.metrics(task.module()) == {"loss": 2.0, "accuracy": 0.5, "other": 1.0}


def test_an_app_that_evaluates_on_no_node_has_no_loss(make_app: MakeApp) -> None:
    main = "FedAvg(fraction_evaluate=0).start(grid, ArrayRecord([np.zeros(2)]), num_rounds=2)"
    task = make_app(main=main)
    assert math.isnan(task.metrics(task.module())["loss"])


def test_updates_are_clipped_before_they_leave_the_device(make_app: MakeApp) -> None:
    task = make_app()
    received = vector_of(task.module())
    named = {"seed": 1, "client": "a", "index": 0, "round": 1, "kept": b""}
    whole, _ = train_hosted(task, received, Training(), **named)  # type: ignore[arg-type]
    clipped, _ = train_hosted(task, received, Training(clip_update=0.5), **named)  # type: ignore[arg-type]
    np.testing.assert_array_equal(whole.delta, np.ones(7, np.float32))
    np.testing.assert_allclose(clipped.delta, np.full(7, 0.5 / math.sqrt(7)), rtol=1e-6)


LEGACY_CLIENT = """
    import numpy as np
    from flwr.client import ClientApp, NumPyClient

    class Client(NumPyClient):
        def __init__(self, context):
            self.index = context.node_config["partition-id"]

        def get_parameters(self, config):
            return [np.full(2, 4.0, np.float32), np.zeros(1)]

        def fit(self, parameters, config):
            return [p + config["server_round"] for p in parameters], 5 + self.index, {"loss": 0.25}

        def evaluate(self, parameters, config):
            return float(parameters[0].sum()), 3, {"accuracy": 0.75}

    app = ClientApp(client_fn=lambda context: Client(context).to_client())
"""
LEGACY_SERVER = """
    from flwr.server import ServerApp, ServerAppComponents, ServerConfig
    from flwr.server.strategy import FedAvg

    def server_fn(context):
        strategy = FedAvg(on_fit_config_fn=lambda round: {"server_round": round})
        return ServerAppComponents(strategy=strategy, config=ServerConfig(num_rounds=2))

    app = ServerApp(server_fn=server_fn)
"""


def test_an_app_with_the_legacy_api_trains_and_begins_with_a_nodes_parameters(
    make_app: MakeApp,
) -> None:
    task = make_app(client=LEGACY_CLIENT, server=LEGACY_SERVER)
    update = trained(task)
    np.testing.assert_array_equal(vector_of(task.module()), np.array([4, 4, 0], np.float32))
    np.testing.assert_array_equal(update.trained, np.array([11, 11, 7], np.float32))
    assert (update.examples, update.loss) == (7, 0.25)
    assert task.metrics(task.module()) == {"loss": 8.0, "accuracy": 0.75}
