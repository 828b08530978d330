"""Small Flower apps. Their tests need the extra `flower`."""

from __future__ import annotations

import itertools
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from muster.common.config import validate
from muster.tasks.flower.opened import Flower, OpenFlower

MakeApp = Callable[..., OpenFlower]

CLIENT = """
    import numpy as np
    from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp

    app = ClientApp()

    @app.train()
    def train(message, context):
        {train}

    @app.evaluate()
    def evaluate(message, context):
        {evaluate}
"""

TRAIN = """
        index = context.node_config["partition-id"]
        arrays = [a + 1 + index for a in message.content["arrays"].to_numpy_ndarrays()]
        metrics = MetricRecord({"num-examples": 10 * (index + 1), "train_loss": 0.5})
        content = RecordDict({"arrays": ArrayRecord(arrays), "metrics": metrics})
        return Message(content, reply_to=message)
"""

EVALUATE = """
        index = context.node_config["partition-id"]
        total = float(sum(a.sum() for a in message.content["arrays"].to_numpy_ndarrays()))
        metrics = {"num-examples": 1 + index, "eval_loss": total + index, "eval_acc": 0.25 * index}
        return Message(RecordDict({"m": MetricRecord(metrics)}), reply_to=message)
"""

SERVER = """
    import numpy as np
    from flwr.app import ArrayRecord, ConfigRecord
    from flwr.serverapp import ServerApp
    from flwr.serverapp.strategy import FedAvg

    app = ServerApp()

    @app.main()
    def main(grid, context):
        {main}
"""

MAIN = """
        arrays = ArrayRecord([np.zeros((2, 2)), np.ones(3, np.float32)])
        config = ConfigRecord({"lr": context.run_config["rate"]})
        FedAvg().start(grid, arrays, num_rounds=2, train_config=config)
"""

PROJECT = """
    [tool.flwr.app.components]
    serverapp = "{name}.server:app"
    clientapp = "{name}.client:app"

    [tool.flwr.app.config]
    rate = 0.5
    nested.key = "a"
"""


def filled(template: str, **parts: str) -> str:
    """A template with bodies of functions, at whatever depth they are written."""
    text = textwrap.dedent(template)
    for name, part in parts.items():
        body = textwrap.indent(textwrap.dedent(part).strip(), "    ")
        text = text.replace(f"    {{{name}}}", body)
    return text


@pytest.fixture
def make_app(tmp_path: Path) -> Iterator[MakeApp]:
    """Make and open an app of four nodes: bodies of its functions, whole modules, or settings."""
    pytest.importorskip("flwr", reason="needs Flower, the extra flower")
    import torch

    numbers = itertools.count()
    names, path, threads = [], [*sys.path], torch.get_num_threads()
    torch.set_num_threads(1)

    def make(
        train: str = TRAIN,
        evaluate: str = EVALUATE,
        main: str = MAIN,
        client: str = CLIENT,
        server: str = SERVER,
        seed: int = 1,
        rehearsal_s: float = 60.0,
        **settings: Any,
    ) -> OpenFlower:
        name = f"app{next(numbers)}_of_{tmp_path.name}"
        names.append(name)
        package = tmp_path / name / name
        package.mkdir(parents=True)
        project = textwrap.dedent(PROJECT).format(name=name)
        (package.parent / "pyproject.toml").write_text(project)
        (package / "client.py").write_text(filled(client, train=train, evaluate=evaluate))
        (package / "server.py").write_text(filled(server, main=main))
        values = {"name": "flower", "app": str(package.parent), "examples": 100, **settings}
        task = validate(Flower, values, "test")
        task.check()
        return OpenFlower(task, 4, seed, rehearsal_s)

    yield make
    sys.path[:] = path
    torch.set_num_threads(threads)
    for name in [m for m in sys.modules if m.partition(".")[0] in names]:
        del sys.modules[name]
