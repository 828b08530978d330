"""The `ServerApp` of a Flower app, with its strategy, over devices that train in the test."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.integration.flower.conftest import TRAIN

from muster.common.errors import ConfigError
from muster.tasks.parts import vector_of
from muster.tasks.replies import DeviceReply

if TYPE_CHECKING:
    from tests.integration.flower.conftest import MakeApp

    from muster.common.tensors import Vector
    from muster.tasks.flower.opened import OpenFlower
    from muster.tasks.replies import Measured

DEVICES = range(4)


@dataclass
class Devices:
    """The devices of an app. `train` is a round, in which the `away` ones have no update.

    Attributes:
        pushed: the model, the called devices and the timeout of every round.
        metrics: what the app has measured before every round, and after the last one.
        factor: of the number of examples that devices state.
    """

    task: OpenFlower
    away: Mapping[int, str] = field(default_factory=dict)
    seed: int = 1
    factor: int = 1
    pushed: list[tuple[Vector, list[int], float | None]] = field(default_factory=list)
    kept: dict[int, bytes] = field(default_factory=dict)
    metrics: list[Measured] = field(default_factory=list)

    def measured(self, metrics: Measured) -> None:
        self.metrics.append(metrics)

    def train(
        self, model: Vector, instructions: Mapping[int, bytes], timeout_s: float | None
    ) -> Mapping[int, DeviceReply]:
        self.pushed.append((model.copy(), list(instructions), timeout_s))
        return {index: self.reply(index, model, told) for index, told in instructions.items()}

    def reply(self, index: int, model: Vector, told: bytes) -> DeviceReply:
        if index in self.away:
            return DeviceReply(absence=self.away[index])
        round, kept = len(self.pushed), self.kept.get(index, b"")
        from muster.tasks.flower.hosting import other_draws

        with other_draws(0):  # devices have generators of their own
            update = self.task.train(index, f"d{index}", model, self.seed, round, kept, told)
        self.kept[index] = update.kept
        return DeviceReply(update.trained - model, update.examples * self.factor, update.report)

    def run(self) -> Vector | None:
        return self.task.run_strategy(self, DEVICES)

    def final(self) -> Vector:
        """Run the app, and return its last model."""
        model = self.run()
        assert model is not None
        return model


def weighted(model: Vector, devices: list[int]) -> Vector:
    """The mean of the models of `TRAIN`, weighted by its examples."""
    weights = [10 * (index + 1) for index in devices]
    gains = [1 + index for index in devices]
    return model + np.float32(np.dot(weights, gains) / sum(weights))


def test_the_strategy_averages_what_the_devices_return(make_app: MakeApp) -> None:
    task = make_app()
    devices = Devices(task)
    final = devices.final()
    first, second = (model for model, _, _ in devices.pushed)
    np.testing.assert_array_equal(first, vector_of(task.module()))
    np.testing.assert_allclose(second, weighted(first, [0, 1, 2, 3]), rtol=1e-6)
    np.testing.assert_allclose(final, weighted(second, [0, 1, 2, 3]), rtol=1e-6)
    assert [(called, timeout) for _, called, timeout in devices.pushed] == [
        ([0, 1, 2, 3], 3600)
    ] * 2


def test_an_absent_device_is_an_error_reply_with_its_reason(make_app: MakeApp) -> None:
    main = """
        from flwr.app import ConfigRecord, Message, RecordDict
        content = RecordDict({"arrays": ArrayRecord([np.zeros(2)]), "config": ConfigRecord()})
        messages = [Message(content, node, "train") for node in grid.get_node_ids()]
        replies = list(grid.send_and_receive(messages, timeout=7))
        print([r.error.reason if r.has_error() else r.metadata.src_node_id for r in replies])
        assert [r.metadata.src_node_id for r in replies] == [1, 2, 3, 4]
        if replies[1].has_error():
            raise ValueError([r.error.reason for r in replies if r.has_error()])
    """
    devices = Devices(make_app(main=main), {1: "decline: battery", 3: "deadline"})
    with pytest.raises(ConfigError, match=r"ValueError: \['decline: battery', 'deadline'\]"):
        devices.run()
    assert devices.pushed[0][2] == 7


def test_a_round_in_which_all_are_absent_leaves_the_model(make_app: MakeApp) -> None:
    devices = Devices(make_app(), dict.fromkeys(DEVICES, "not connected"))
    devices.run()
    np.testing.assert_array_equal(devices.pushed[0][0], devices.pushed[1][0])


PUSH_AND_PULL = """
        from flwr.app import Message, RecordDict
        model = ArrayRecord([np.zeros(3, np.float32)])
        for round in range(3):
            content = RecordDict({"arrays": model, "config": ConfigRecord({"server-round": round})})
            ids = grid.push_messages([Message(content, n, "train") for n in (2, 1)])
            replies = list(grid.pull_messages(ids))
            assert not list(grid.pull_messages(ids))
            means = np.mean([r.content["arrays"].to_numpy_ndarrays()[0] for r in replies], axis=0)
            model = ArrayRecord([means])
"""


def test_an_app_that_pushes_and_pulls_by_itself_gets_one_round_for_a_push(
    make_app: MakeApp,
) -> None:
    devices = Devices(make_app(main=PUSH_AND_PULL))
    assert devices.run() is None, "nobody is shown the model of the last round"
    assert [called for _, called, _ in devices.pushed] == [[0, 1]] * 3
    np.testing.assert_array_equal([model[0] for model, _, _ in devices.pushed], [0, 1.5, 3])


BOTH_KINDS = """
        from flwr.app import Message, RecordDict
        content = RecordDict({"arrays": ArrayRecord([np.zeros(3, np.float32)])})
        sent = [("evaluate", 2), ("train", 1), ("train", 2), ("evaluate", 1)]
        for round in range(2):
            ids = grid.push_messages([Message(content, node, kind) for kind, node in sent])
            replies = list(grid.pull_messages(ids))
            metadata = [reply.metadata for reply in replies]
            assert [(m.message_type, m.src_node_id) for m in metadata] == sent
            assert ["arrays" in reply.content for reply in replies] == [False, True, True, False]
"""


def test_a_node_may_train_and_evaluate_in_one_push(make_app: MakeApp) -> None:
    devices = Devices(make_app(main=BOTH_KINDS))
    devices.run()
    assert [called for _, called, _ in devices.pushed] == [[0, 1]] * 2


CONFIGURED = """
        class Falling(FedAvg):
            def configure_train(self, server_round, arrays, config, grid):
                config["lr"] = 1.0 / server_round
                return super().configure_train(server_round, arrays, config, grid)

        Falling().start(grid, ArrayRecord([np.zeros(2)]), num_rounds=3)
"""
ECHO_RATE = """
        config = message.content["config"]
        array = np.float64([config["lr"], config["server-round"]])
        metrics = MetricRecord({"num-examples": 1})
        content = RecordDict({"arrays": ArrayRecord([array]), "metrics": metrics})
        return Message(content, reply_to=message)
"""


def test_devices_get_the_configuration_of_every_round(make_app: MakeApp) -> None:
    devices = Devices(make_app(main=CONFIGURED, train=ECHO_RATE))
    final = devices.final()
    models = [model.tolist() for model, _, _ in devices.pushed] + [final.tolist()]
    assert models == [[0, 0], [1, 1], [0.5, 2], [np.float32(1 / 3), 3]]


METRICS = """
        def mean(contents, weighted_by):
            numbers = [(c["metrics"]["num-examples"], c["metrics"]["train_loss"]) for c in contents]
            if numbers != [(20, 0.5), (40, 0.5), (60, 0.5), (80, 0.5)]:
                raise ValueError(numbers)
            from flwr.app import MetricRecord
            return MetricRecord({"done": 1.0})

        strategy = FedAvg(train_metrics_aggr_fn=mean)
        strategy.start(grid, ArrayRecord([np.zeros(2)]), num_rounds=1)
"""


def test_the_strategy_gets_the_metrics_and_the_examples_that_the_device_states(
    make_app: MakeApp,
) -> None:
    # A device may state another number than the app reports, by a fault.
    with pytest.raises(ConfigError, match=r"\(10, 0.5\), \(20, 0.5\)"):
        Devices(make_app(main=METRICS)).run()
    Devices(make_app(main=METRICS), factor=2).run()


EVALUATED = """
        strategy = FedAvg()
        result = strategy.start(grid, ArrayRecord([np.zeros(2)]), num_rounds=2)
        losses = [dict(result.evaluate_metrics_clientapp[r])["eval_loss"] for r in (1, 2)]
        raise ValueError(losses)
"""


def test_nodes_evaluate_beside_the_server(make_app: MakeApp) -> None:
    # EVALUATE returns the sum of the model plus the index, which is 2 in the mean
    task = make_app(main=EVALUATED)
    with pytest.raises(ConfigError, match=r"ValueError: \[8\.0, 14\.0\]"):
        Devices(task).run()


SAMPLED = """
        import random
        drawn = [random.random(), np.random.random()]
        FedAvg(fraction_train=0.5).start(grid, ArrayRecord([np.array(drawn)]), num_rounds=6)
"""


def test_the_same_seed_gives_the_same_model(make_app: MakeApp) -> None:
    runs = [Devices(make_app(main=SAMPLED, seed=seed), seed=seed) for seed in (1, 1, 2)]
    finals = [devices.final() for devices in runs]
    calls = [[called for _, called, _ in devices.pushed] for devices in runs]
    np.testing.assert_array_equal(finals[0], finals[1])
    assert calls[0] == calls[1] != calls[2]
    assert len({tuple(each) for each in calls[0]}) > 1, "evaluations restart no generator"
    assert not np.array_equal(finals[0], finals[2])


MEASURED = """
        from flwr.app import MetricRecord

        def evaluate(round, arrays):
            total = float(sum(a.sum() for a in arrays.to_numpy_ndarrays()))
            return MetricRecord({"sum": total, "round": round})

        arrays = ArrayRecord([np.zeros((2, 2)), np.ones(3, np.float32)])
        result = FedAvg().start(grid, arrays, num_rounds=2, evaluate_fn=evaluate)
        import copy, dataclasses, pickle
        for same in (copy.deepcopy(result), pickle.loads(pickle.dumps(result))):
            assert same == result
        assert type(result.train_metrics_clientapp) is dict
"""


def test_what_the_app_measures_is_told_round_by_round(make_app: MakeApp) -> None:
    devices = Devices(make_app(main=MEASURED))
    devices.run()
    # Each round adds (10·1 + 20·2 + 30·3 + 40·4) / 100 = 3 to all 7 parameters. EVALUATE returns
    # the sum of the model plus the index i, and i / 4, with the weight i + 1: the mean of i is
    # (0·1 + 1·2 + 2·3 + 3·4) / 10 = 2.
    rounds = [
        {"train.train_loss": 0.5, "evaluate.eval_loss": total + 2.0, "evaluate.eval_acc": 0.5,
         "server.sum": total, "server.round": round}
        for round, total in [(1, 24.0), (2, 45.0)]
    ]  # fmt: skip
    assert devices.metrics[0] == {"server.sum": 3.0, "server.round": 0}
    assert [pytest.approx(each) for each in devices.metrics[1:]] == rounds


NOT_ALL_KEPT = """
        from flwr.app import MetricRecord

        def evaluate(round, arrays):
            odd = {"nan": float("nan"), "inf": -float("inf"), "list": [1.0], "l" * 100: 1.0}
            return MetricRecord(odd | {f"m{each:03}": each for each in range(200)})

        FedAvg().start(grid, ArrayRecord([np.zeros(2)]), num_rounds=1, evaluate_fn=evaluate)
"""


def test_what_is_no_number_or_too_much_is_left_out(
    make_app: MakeApp, caplog: pytest.LogCaptureFixture
) -> None:
    devices = Devices(make_app(main=NOT_ALL_KEPT))
    devices.run()
    expected = {"server.nan": "nan", "server.inf": "-inf"}
    numbers = {f"server.m{each:03}": float(each) for each in range(98)}
    assert devices.metrics[0] == expected | numbers
    warnings = [each for each in caplog.messages if "is left out, and others may be" in each]
    assert len(warnings) == 1
    assert "'server.list'" in warnings[0]


LEGACY_CLIENT = """
    import numpy as np
    from flwr.client import ClientApp, NumPyClient

    class Client(NumPyClient):
        def __init__(self, context):
            self.index = context.node_config["partition-id"]

        def get_parameters(self, config):
            return [np.full(2, 4.0, np.float32), np.zeros(1)]

        def fit(self, parameters, config):
            gain = config["round"] * (1 + self.index)
            return [p + gain for p in parameters], 10 * (1 + self.index), {"index": self.index}

        def evaluate(self, parameters, config):
            return float(parameters[0].sum()), 3, {"accuracy": 0.75}

    app = ClientApp(client_fn=lambda context: Client(context).to_client())
"""
LEGACY_SERVER = """
    from flwr.server import ServerApp, ServerAppComponents, ServerConfig
    from flwr.server.strategy import FedAvg

    class Ordered(FedAvg):
        def aggregate_fit(self, server_round, results, failures):
            print(server_round, [r.metrics["index"] for _, r in results], len(failures))
            return super().aggregate_fit(server_round, results, failures)

    def server_fn(context):
        strategy = Ordered(
            fraction_fit=0.75, on_fit_config_fn=lambda round: {"round": round}, min_fit_clients=1
        )
        return ServerAppComponents(strategy=strategy, config=ServerConfig(num_rounds=3))

    app = ServerApp(server_fn=server_fn)
"""


def legacy(make_app: MakeApp, **settings: Any) -> OpenFlower:
    return make_app(client=LEGACY_CLIENT, server=LEGACY_SERVER, **settings)


def test_a_legacy_strategy_sends_one_push_for_a_round(
    make_app: MakeApp, capsys: pytest.CaptureFixture[str]
) -> None:
    devices = Devices(legacy(make_app))
    final = devices.final()
    assert [len(called) for _, called, _ in devices.pushed] == [3, 3, 3]
    orders = [line for line in capsys.readouterr().out.splitlines() if line[:1] in "123"]
    lines = [f"{r} {called} 0" for r, (_, called, _) in enumerate(devices.pushed, start=1)]
    assert orders[-3:] == lines
    model = devices.pushed[0][0]
    np.testing.assert_array_equal(model, [4, 4, 0])
    for round, (pushed, called, _) in enumerate(devices.pushed, start=1):
        np.testing.assert_allclose(pushed, model, rtol=1e-6)
        model = pushed + round * (weighted(pushed, called) - pushed)
    np.testing.assert_allclose(final, model, rtol=1e-6)


def test_an_absent_device_is_a_failure_of_a_legacy_strategy(
    make_app: MakeApp, capsys: pytest.CaptureFixture[str]
) -> None:
    devices = Devices(legacy(make_app), {1: "decline: offline"})
    devices.run()
    away = sum(1 in called for _, called, _ in devices.pushed)
    out = [line for line in capsys.readouterr().out.splitlines() if line[:1] in "123"]
    assert sum(line.endswith("1") for line in out[-3:]) == away > 0


def test_the_same_seed_gives_the_same_model_with_a_legacy_strategy(make_app: MakeApp) -> None:
    first, second, other = (Devices(legacy(make_app, seed=seed)) for seed in (3, 3, 4))
    np.testing.assert_array_equal(first.final(), second.final())
    other.run()
    assert [called for _, called, _ in first.pushed] != [called for _, called, _ in other.pushed]


LEGACY_MEASURED = """
    from flwr.server import ServerApp, ServerAppComponents, ServerConfig
    from flwr.server.strategy import FedAvg

    def server_fn(context):
        def mean(metrics):
            examples = sum(count for count, _ in metrics)
            names = metrics[0][1]
            return {n: sum(c * each[n] for c, each in metrics) / examples for n in names}

        strategy = FedAvg(
            on_fit_config_fn=lambda round: {"round": round},
            evaluate_fn=lambda round, arrays, config: (10.0 + round, {"loss": 99.0, "name": "x"}),
            fit_metrics_aggregation_fn=mean, evaluate_metrics_aggregation_fn=mean,
        )
        return ServerAppComponents(strategy=strategy, config=ServerConfig(num_rounds=2))

    app = ServerApp(server_fn=server_fn)
"""


def test_what_a_legacy_strategy_measures_is_told_too(make_app: MakeApp) -> None:
    devices = Devices(make_app(client=LEGACY_CLIENT, server=LEGACY_MEASURED))
    devices.run()
    # fit returns the index i with the weight i + 1, whose mean is 2. In round r it adds r (1 + i),
    # in the mean 3 r, to the parameters, first 4; `evaluate` returns the sum of two of them. The
    # loss of evaluate_fn counts, not a metric of the same name.
    rounds = [
        {"train.index": 2.0, "evaluate.accuracy": 0.75, "evaluate.loss": 2 * value,
         "server.loss": 10.0 + round}
        for round, value in [(1, 4.0 + 3), (2, 4.0 + 3 + 6)]
    ]  # fmt: skip
    assert devices.metrics[0] == {"server.loss": 10.0}
    assert [pytest.approx(each) for each in devices.metrics[1:]] == rounds


TWO_MODELS = """
        from flwr.app import Message, RecordDict
        one, two = (RecordDict({"arrays": ArrayRecord([np.full(2, v)])}) for v in (0.0, 1.0))
        first = [Message(one, 1, "train")]
        grid.send_and_receive(first)
        grid.send_and_receive([Message(one, 1, "train"), Message(two, 2, "train")])
"""
TWICE = TWO_MODELS.replace('Message(two, 2, "train")', 'Message(one, 1, "train")')
STRANGER = TWO_MODELS.replace('Message(two, 2, "train")', 'Message(one, 77, "train")')
STRANGER_EVALUATED = STRANGER.replace('77, "train"', '77, "evaluate"')
LONG = TWO_MODELS.replace(
    'Message(two, 2, "train")',
    'Message(RecordDict({"arrays": one["arrays"], "c": ConfigRecord({"b": bytes(70000)})}), 2, '
    '"train")',
)
LATER = """
        FedAvg().start(grid, ArrayRecord([np.zeros(2)]), num_rounds=1)
        FedAvg().start(grid, ArrayRecord([np.zeros(3)]), num_rounds=1)
"""


@pytest.mark.parametrize(
    ("main", "expected"),
    [
        (TWO_MODELS, "sends different models to the nodes 1 and 2 in one push"),
        (TWICE, "two messages of training to one node in one push"),
        (STRANGER, r"sent messages to the nodes \[77\], which are none of those"),
        (STRANGER_EVALUATED, r"sent messages to the nodes \[77\], which are none of those"),
        (LONG, "tells node 2 9[0-9],[0-9]{3} bytes beside the model, expected at most 32,768"),
        (LATER, r"the array '0' as float64 of shape \(3,\)"),
        (LATER.replace("ArrayRecord([np.zeros(3)]), num", "1 / 0, num"), "ZeroDivisionError"),
    ],
)
def test_an_app_that_cannot_be_hosted_ends_with_what_it_did(
    make_app: MakeApp, main: str, expected: str
) -> None:
    with pytest.raises(ConfigError, match=expected):
        Devices(make_app(main=main)).run()


def test_an_app_that_catches_a_refusal_fails_nevertheless(make_app: MakeApp) -> None:
    lines = [line for line in TWO_MODELS.splitlines() if line.strip()]
    caught = [*lines[:-1], "        try:", "    " + lines[-1], "        except Exception:",
              "            pass"]  # fmt: skip
    with pytest.raises(ConfigError, match="sends different models"):
        Devices(make_app(main="\n".join(caught))).run()


def test_a_report_that_cannot_be_read_is_an_errorreply(make_app: MakeApp) -> None:
    class Broken(Devices):
        def reply(self, index: int, model: Vector, told: bytes) -> DeviceReply:
            found = super().reply(index, model, told)
            report = b"no report" if index == 3 else found.report
            return DeviceReply(found.delta, found.examples, report)

    devices = Broken(make_app())
    devices.run()
    first, second = (model for model, _, _ in devices.pushed)
    np.testing.assert_allclose(second, weighted(first, [0, 1, 2]), rtol=1e-6)


def test_a_report_is_refused_if_it_is_long(make_app: MakeApp) -> None:
    # The rehearsal has no strategy to which it reports, so it passes.
    long = TRAIN.replace('"train_loss": 0.5', '"train_loss": 0.5, "many": [0.1] * 20_000')
    with pytest.raises(ConfigError, match="bytes beside the model, expected at most 32,768"):
        Devices(make_app(train=long)).run()
