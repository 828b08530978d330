"""What the server does. With an aggregator of muster, only the beginning of its first round is
played."""

from flwr.app import ArrayRecord, ConfigRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from digits_app.task import Net

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Average the models of all nodes."""
    FedAvg().start(
        grid=grid,
        initial_arrays=ArrayRecord(Net().state_dict()),
        train_config=ConfigRecord({"lr": context.run_config["learning-rate"]}),
        num_rounds=context.run_config["num-server-rounds"],
    )
