"""The work with FLGo, whose clients train one after the other in one process."""

import importlib
import os
import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

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
)

OPTIONS = {
    "sample": "uniform",
    "aggregate": "uniform",
    "proportion": PER_ROUND / CLIENTS,
    "num_rounds": ROUNDS,
    "num_epochs": EPOCHS,
    "batch_size": BATCH_SIZE,
    "learning_rate": LEARNING_RATE,
    "train_holdout": 0.0,
    "eval_interval": TEST_EVERY,
    "seed": SEED,
    "no_log_console": True,
    "no_tqdm": True,
}


def main() -> None:
    sys.argv[1] = str(Path(sys.argv[1]).absolute())
    config = Path(__file__).with_name("flgo_config.py")
    with tempfile.TemporaryDirectory(prefix="bench-peers-") as folder:
        os.chdir(folder)  # it writes a package for the benchmark, and imports it from here
        sys.path.append(folder)
        import flgo
        import flgo.algorithm.fedavg as fedavg
        from flgo.benchmark.toolkits.cv.classification import FromDatasetPipe
        from flgo.benchmark.toolkits.partition import BasicPartitioner

        # torch 2.13 asks subclasses of Subset for this; FLGo 0.4.4 has not got it.
        FromDatasetPipe.TaskDataset.__getitems__ = lambda examples, numbers: [
            examples[number] for number in numbers
        ]

        name = flgo.gen_benchmark_from_file("lr_mnist", str(config))
        benchmark = importlib.import_module(name)
        data = importlib.import_module(f"{name}.config").data

        class Clients(BasicPartitioner):  # type: ignore[misc]
            def __call__(self, examples: Any) -> list[list[int]]:
                return [list(range(*own)) for own in pairwise(data.ends.tolist())]

        flgo.gen_task_by_(benchmark, Clients(), "task")
        server = flgo.init("task", fedavg, OPTIONS)
        watch = Stopwatch()
        server.run()
        seconds = watch.seconds()
        found = accuracy(server.model, *data.test())
        os.chdir("/")
    outcome(named("flgo"), seconds, ROUNDS, found, ROUNDS * PER_ROUND)


if __name__ == "__main__":
    main()
