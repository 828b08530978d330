"""What a node does."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fashion_app.task import load_data, make_network
from fashion_app.task import train as train_network

app = ClientApp()


@app.train()
def train(msg: Message, context: Context) -> Message:
    """Train on the data of this node."""
    config = context.run_config
    network = make_network(config["network"])
    network.load_state_dict(msg.content["arrays"].to_torch_state_dict())
    data = load_data(config["data"], str(context.node_config["partition-id"]))
    loss = train_network(
        network, data, config["local-epochs"], config["batch-size"], msg.content["config"]["lr"]
    )
    metrics = MetricRecord({"train_loss": loss, "num-examples": len(data)})
    content = RecordDict({"arrays": ArrayRecord(network.state_dict()), "metrics": metrics})
    return Message(content=content, reply_to=msg)
