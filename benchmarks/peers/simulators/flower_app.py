"""The work as a Flower app. Its processes find the data in the environment."""

import os
from functools import cache

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from work import (
    CLIENTS,
    PER_ROUND,
    ROUNDS,
    TEST_EVERY,
    Data,
    Stopwatch,
    accuracy,
    model,
    named,
    outcome,
    train,
)

DATA = "LR_MNIST_DATA"

client_app = ClientApp()
server_app = ServerApp()


@cache
def data() -> Data:
    """The data of this process, which trains many clients one after the other."""
    return Data(os.environ[DATA])


@client_app.train()
def train_client(message: Message, context: Context) -> Message:
    network = model()
    network.load_state_dict(message.content["arrays"].to_torch_state_dict())
    x, y = data().client(int(context.node_config["partition-id"]))
    metrics = MetricRecord({"loss": train(network, x, y), "num-examples": len(y)})
    content = RecordDict({"arrays": ArrayRecord(network.state_dict()), "metrics": metrics})
    return Message(content=content, reply_to=message)


@server_app.main()
def serve(grid: Grid, context: Context) -> None:
    test = data().test()
    network = model()

    def measured(arrays: ArrayRecord) -> float:
        network.load_state_dict(arrays.to_torch_state_dict())
        return accuracy(network, *test)

    def evaluate(number: int, arrays: ArrayRecord) -> MetricRecord | None:
        return None if number % TEST_EVERY else MetricRecord({"accuracy": measured(arrays)})

    watch = Stopwatch()
    ended = FedAvg(
        fraction_train=PER_ROUND / CLIENTS, fraction_evaluate=0.0, min_available_nodes=CLIENTS
    ).start(
        grid=grid,
        initial_arrays=ArrayRecord(network.state_dict()),
        num_rounds=ROUNDS,
        evaluate_fn=evaluate,
    )
    seconds = watch.seconds()
    outcome(
        named("flwr", "simulation"), seconds, ROUNDS, measured(ended.arrays), ROUNDS * PER_ROUND
    )
