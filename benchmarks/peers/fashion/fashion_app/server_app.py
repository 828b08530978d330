"""What the server does."""

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from fashion_app.task import make_network

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Average the models of some nodes in every round."""
    config = context.run_config
    torch.manual_seed(config["seed"])
    FedAvg(fraction_train=config["fraction-train"], fraction_evaluate=0.0).start(
        grid=grid,
        initial_arrays=ArrayRecord(make_network(config["network"]).state_dict()),
        train_config=ConfigRecord({"lr": config["learning-rate"]}),
        num_rounds=config["num-server-rounds"],
    )
