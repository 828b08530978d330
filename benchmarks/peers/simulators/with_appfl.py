"""The work with APPFL's simulation in virtual time, which trains in one process."""

import sys
import tempfile
from pathlib import Path
from typing import Any

import torchvision_for_processors  # noqa: F401  (first: appfl imports torchvision)
from appfl.agent import ClientAgent, ServerAgent
from appfl.vsim import ClientProfile, SyncSimDriver, VsimLogger
from omegaconf import OmegaConf
from work import (
    BATCH_SIZE,
    CLIENTS,
    EPOCHS,
    LEARNING_RATE,
    PER_ROUND,
    ROUNDS,
    SEED,
    TEST_EVERY,
    Stopwatch,
    accuracy,
    named,
    outcome,
    shared,
)

FILES = str(Path(__file__).with_name("appfl_files.py"))


def server_configs(logs: str) -> dict[str, Any]:
    return {
        "client_configs": {
            "train_configs": {
                "trainer": "VanillaTrainer",
                "mode": "epoch",
                "num_local_epochs": EPOCHS,
                "optim": "SGD",
                "optim_args": {"lr": LEARNING_RATE},
                "loss_fn": "CrossEntropyLoss",
                "metric_path": FILES,
                "metric_name": "accuracy",
                "do_validation": False,
                "train_batch_size": BATCH_SIZE,
                "train_data_shuffle": True,
                "optimize_memory": False,
            },
            "model_configs": {"model_path": FILES, "model_name": "model"},
        },
        "server_configs": {
            "num_clients": CLIENTS,
            "scheduler": "SyncScheduler",
            "scheduler_kwargs": {"same_init_model": True, "optimize_memory": False},
            "aggregator": "FedAvgAggregator",
            "aggregator_kwargs": {"client_weights_mode": "equal", "optimize_memory": False},
            "device": "cpu",
            "num_global_epochs": ROUNDS,
            "optimize_memory": False,
            "logging_output_dirname": logs,
            "logging_output_filename": "server",
            "val_data_configs": {
                "dataset_path": FILES,
                "dataset_name": "of_server",
                "batch_size": 10_000,
            },
        },
    }


def client_config(number: int, logs: str) -> dict[str, Any]:
    return {
        "client_id": f"client{number}",
        # It collects garbage four times for every client and round otherwise.
        "optimize_memory": False,
        "train_configs": {
            "device": "cpu",
            "logging_output_dirname": logs,
            "logging_output_filename": "client",
        },
        "data_configs": {
            "dataset_path": FILES,
            "dataset_name": "of_client",
            "dataset_kwargs": {"number": number},
        },
    }


def main() -> None:
    sys.argv[1] = str(Path(sys.argv[1]).absolute())
    with tempfile.TemporaryDirectory(prefix="bench-peers-") as logs:
        server = ServerAgent(server_agent_config=OmegaConf.create(server_configs(logs)))
        clients = [
            ClientAgent(client_agent_config=OmegaConf.create(client_config(number, logs)))
            for number in range(CLIENTS)
        ]
        for client in clients:
            client.load_config(server.get_client_configs())
        driver = SyncSimDriver(
            server_agent=server,
            client_agents=clients,
            profiles={client.get_id(): ClientProfile() for client in clients},
            participants_per_round=PER_ROUND,
            min_responses=PER_ROUND,
            target_rounds=ROUNDS,
            logger=VsimLogger(file_dir=logs, file_name="simulation"),
            seed=SEED,
            eval_every=TEST_EVERY,
        )
        watch = Stopwatch()
        driver.run()
        seconds = watch.seconds()
        updates = sum(entry["accepted_count"] for entry in driver.history)
        found = accuracy(server.model, *shared().test())
    outcome(named("appfl", "virtual time"), seconds, ROUNDS, found, updates)


if __name__ == "__main__":
    main()
