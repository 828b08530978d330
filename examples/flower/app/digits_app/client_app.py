"""What a node does."""

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from digits_app.task import Net, load_data
from digits_app.task import test as test_net
from digits_app.task import train as train_net

app = ClientApp()


@app.train()
def train(msg: Message, context: Context) -> Message:
    """Train with a rate that falls with the times that this node has trained."""
    net = Net()
    net.load_state_dict(msg.content["arrays"].to_torch_state_dict())
    times = context.state["history"]["times"] if "history" in context.state else 0
    data, _ = load_data(context.node_config["partition-id"], context.node_config["num-partitions"])
    rate = msg.content["config"]["lr"] / (1 + 0.1 * times)
    loss = train_net(net, data, context.run_config["local-epochs"], rate)
    context.state["history"] = ConfigRecord({"times": times + 1, "rate": rate})
    metrics = MetricRecord({"train_loss": loss, "num-examples": len(data)})
    content = RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": metrics})
    return Message(content=content, reply_to=msg)


@app.evaluate()
def evaluate(msg: Message, context: Context) -> Message:
    """Evaluate on what the node holds out."""
    net = Net()
    net.load_state_dict(msg.content["arrays"].to_torch_state_dict())
    _, data = load_data(context.node_config["partition-id"], context.node_config["num-partitions"])
    loss, accuracy = test_net(net, data)
    metrics = MetricRecord({"loss": loss, "accuracy": accuracy, "num-examples": len(data)})
    return Message(content=RecordDict({"metrics": metrics}), reply_to=msg)
