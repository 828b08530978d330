"""Inputs by name, for example token ids and masks, from a task of the user's own and from files."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from muster.client.processes.config import GroupTrial, Trial
from muster.client.processes.trial import try_task
from muster.common.config import validate
from muster.common.errors import ConfigError
from muster.common.own_code import use
from muster.emulator.run_audit import audit
from muster.emulator.scenario.scenario import Scenario
from muster.simulation.faults import KillAt
from muster.simulation.whole_run import simulate_run
from muster.tasks.opening import opened

NAMED = """
import numpy as np
import torch

from muster.tasks.task import Examples, OpenTask, Task

LENGTH = 6


def arrays(count, seed):
    random = np.random.default_rng(seed)
    ids = random.integers(0, 9, (count, LENGTH)).astype(np.int32)
    mask = (np.arange(LENGTH) < random.integers(1, LENGTH + 1, (count, 1))).astype(np.uint8)
    return {"ids": ids, "mask": mask}, ((ids * mask).sum(axis=1) > 12).astype(np.int64)


class Texts(Task):
    def open(self, population, seed):
        return OpenTexts(population, seed)


class OpenTexts(OpenTask):
    def __init__(self, population, seed):
        self.examples, self.seed = [5 + index for index in range(population)], seed

    def client(self, index):
        return Examples(*arrays(self.examples[index], index))

    def test(self):
        return Examples(*arrays(1100, 99))

    def module(self):
        torch.manual_seed(self.seed)
        return Masked()

    def loss(self, outputs, y):
        return torch.nn.functional.cross_entropy(outputs, y)


class Masked(torch.nn.Module):
    def __init__(self, first="ids"):
        super().__init__()
        self.table, self.first = torch.nn.Embedding(9, 4), first
        self.norm, self.head = torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2)

    def forward(self, ids, mask):
        mask = mask.float().unsqueeze(2)
        return self.head(self.norm((self.table(ids) * mask).sum(1) / mask.sum(1)))


def masked(inputs, outputs):
    assert inputs == {"ids": (LENGTH,), "mask": (LENGTH,)}, inputs
    return Masked()
"""


@pytest.fixture
def code(tmp_path: Path) -> Path:
    (tmp_path / "named.py").write_text(NAMED)
    use(str(tmp_path))
    return tmp_path


def scenario(folder: Path, task: dict[str, Any], **server: Any) -> Scenario:
    values = {
        "name": "named",
        "modules": str(folder),
        "task": task,
        "training": {"learning_rate": 0.1, "batch_size": 3, "initial_loss": True},
        "server": {"rounds": 3, "evaluate_groups": True, **server},
        "groups": [{"name": "g", "count": 3}],
    }
    return validate(Scenario, values, "test")


def model_of(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


def test_a_task_of_ones_own_trains_on_inputs_by_name_to_the_same_bits_after_kills(
    code: Path,
) -> None:
    asked = scenario(code, {"name": "named:Texts"})
    kills = KillAt("server", "round_committed", 1), KillAt("g-0001", "received", 2)
    for name, given in (("whole", ()), ("killed", kills)):
        assert simulate_run(asked, code / name, given) == "completed"
    assert model_of(code / "whole") == model_of(code / "killed")
    found = [str(d) for check in audit(code / "whole", evaluate=True).checks
             for d in check.differences]  # fmt: skip
    assert found == []


def files(folder: Path, kind: str) -> dict[str, Any]:
    """The table of a source with inputs by name."""
    space: dict[str, Any] = {}
    exec(NAMED, space)
    x, y = space["arrays"](60, 1)
    if kind == "npz":
        test, test_y = space["arrays"](20, 2)
        np.savez(folder / "texts.npz", **x, y=y, **{f"test_{k}": v for k, v in test.items()},
                 test_y=test_y)  # fmt: skip
        return {"kind": "npz", "path": str(folder / "texts.npz"), "x": ["ids", "mask"]}
    pa = pytest.importorskip("pyarrow")
    table = pa.table({"ids": x["ids"].tolist(), "mask": x["mask"].tolist(), "label": y})
    pytest.importorskip("pyarrow.parquet").write_table(table, folder / "texts.parquet")
    return {"kind": "parquet", "path": str(folder / "texts.parquet"), "label": "label",
            "separate": True}  # fmt: skip


@pytest.mark.parametrize("kind", ["npz", "parquet"])
def test_files_have_inputs_by_name(code: Path, kind: str) -> None:
    task = {"name": "own", "source": files(code, kind), "model": {"kind": "named:masked"}}
    asked = scenario(code, task)
    some = opened(asked.task, 3, 1).client(0)
    assert {name: (v.dtype.name, v.shape[1:]) for name, v in some.x.items()} == {
        "ids": ("int64", (6,)),
        "mask": ("int64", (6,)),
    }
    assert simulate_run(asked, code / "run") == "completed"


def test_columns_of_a_csv_file_may_be_inputs_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("token,value,label\n3,0.5,a\n-4,1,b\n5,2.5,a\n6,1,b\n")
    source = {"kind": "csv", "path": str(tmp_path / "rows.csv"), "label": "label", "separate": True}
    task = {"name": "own", "source": source, "model": {"kind": "linear"}, "test_ratio": 0.3}
    dataset = scenario(tmp_path, task).task.dataset()  # type: ignore[attr-defined]
    assert dataset.inputs == {"token": (), "value": ()}
    scaled = dataset.scaled(dataset.train_x)
    assert (scaled["token"].dtype, scaled["value"].dtype) == (np.int64, np.float32)
    with pytest.raises(ConfigError, match="linear takes one array, but the examples have token"):
        opened(scenario(tmp_path, task).task, 1, 1).module()


def changed(old: str, new: str) -> str:
    assert old in NAMED
    return NAMED.replace(old, new)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (changed('"mask": mask}', '"mask": mask[1:]}'), "as many rows of mask as of y, found 4"),
        (changed('{"ids": ids, "mask": mask}', "{}"), "arrays by the names of arguments .* none"),
        (changed('{"ids": ids, "mask"', '{"ids": ids, "a mask"'), "names 'ids', 'a mask'"),
        (
            changed('{"ids": ids, "mask"', '{"ids": ids, "other"'),
            "unexpected keyword .* 'other'",
        ),
        (changed('"mask": mask}', '"mask": [["a"]]}'), r"x\['mask'\]: expected a NumPy array"),
    ],
    ids=["a row short", "none", "a bad name", "another name", "texts"],
)
def test_mistakes_are_refused_before_anything_starts(
    tmp_path: Path, text: str, message: str
) -> None:
    name = f"named_{abs(hash(message)) % 10**8}"
    (tmp_path / f"{name}.py").write_text(text)
    use(str(tmp_path))
    asked = scenario(tmp_path, {"name": f"{name}:Texts"})
    trial = Trial(training=asked.training, groups=[GroupTrial(name="g", devices={"g-0000": 0})])
    with pytest.raises(ConfigError, match=message):  # noqa: PT012
        task = opened(asked.task, 3, 1)
        task.client(0)
        try_task(task, trial, 1)
