"""The work with Flower's simulation, two clients at a time on two cores."""

import os
import sys
from pathlib import Path

os.environ.update(FLWR_TELEMETRY_ENABLED="0")


def main() -> None:
    from flower_app import DATA, client_app, server_app
    from flwr.simulation import run_simulation
    from work import CLIENTS

    os.environ[DATA] = str(Path(sys.argv[1]).absolute())
    run_simulation(
        server_app,
        client_app,
        num_supernodes=CLIENTS,
        backend_config={"client_resources": {"num_cpus": 1.0, "num_gpus": 0.0}},
    )


if __name__ == "__main__":
    main()
