"""Transforms of own data, and regression on them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import interpolate

from muster.common.config import validate
from muster.common.errors import ConfigError
from muster.common.own_code import use
from muster.emulator.scenario.scenario import Scenario
from muster.simulation.whole_run import simulate_run
from muster.tasks.task import Task
from muster.tasks.tasks import TASKS, read_task

PIXELS = np.arange(6 * 4 * 5 * 3, dtype=np.uint8).reshape(6, 4, 5, 3)


def task_of(folder: Path, transforms: list[Any], x: Any = PIXELS, **more: Any) -> Task:
    np.savez(folder / "a.npz", x=x, y=np.arange(len(x)) % 2)
    source = {"kind": "npz", "path": str(folder / "a.npz")}
    asked = {"name": "own", "source": source, "transforms": transforms, "test_ratio": 0.2, **more}
    parsed = TASKS.parse(asked)
    assert isinstance(parsed, Task)
    return read_task(parsed.to_json())


def examples(folder: Path, transforms: list[Any], x: Any = PIXELS) -> Any:
    """All examples in the order of their first values, as models get them."""
    opened = task_of(folder, transforms, x).open(1, 1)
    both = np.concatenate([opened.client(0).x, opened.test().x])
    return both[np.argsort(both.reshape(len(both), -1)[:, 0])]


def test_transforms_are_applied_one_after_the_other(tmp_path: Path) -> None:
    found = examples(tmp_path, ["channels-first", "flatten"])
    expected = np.moveaxis(PIXELS, 3, 1).reshape(6, -1) / np.float32(255)
    np.testing.assert_array_equal(np.sort(found[:, 0]), np.sort(expected[:, 0]))
    assert found.shape == expected.shape


def test_pixels_that_become_floats_are_not_divided(tmp_path: Path) -> None:
    x = np.arange(12, dtype=np.uint8).reshape(6, 2)
    np.testing.assert_array_equal(examples(tmp_path, ["to-float"], x), x.astype(np.float32))


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_pictures_are_resized_as_torch_does(tmp_path: Path, dtype: type) -> None:
    x: Any = (np.arange(6)[:, None, None] * 20 + np.arange(56).reshape(7, 8)).astype(dtype)
    found = examples(tmp_path, [{"kind": "resize", "height": 3, "width": 4}], x)
    expected = interpolate(
        torch.from_numpy(x.astype(np.float32)).unsqueeze(1), (3, 4), mode="bilinear", antialias=True
    )[:, 0].numpy()
    whole = np.rint(expected) / np.float32(255) if dtype is np.uint8 else expected
    np.testing.assert_allclose(found, whole, rtol=1e-6)


OWN = """
def doubled(x, factor: int = 2):
    return x.astype("float32") * factor

def short(x):
    return x[1:]

def texts(x):
    return ["a"]

def broken(x):
    raise KeyError("nowhere")

def named(x):
    return {"left": x[:, :1], "right": x[:, 1:]}
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    (tmp_path / "my_transforms.py").write_text(OWN)
    use(str(tmp_path))
    return tmp_path


def test_a_function_of_ones_own_is_a_transform_with_settings(own: Path) -> None:
    x = np.arange(12, dtype=np.float32).reshape(6, 2)
    tripled = [{"kind": "my_transforms:doubled", "factor": 3}]
    np.testing.assert_array_equal(examples(own, tripled, x), 3 * x)
    by_name = task_of(own, ["my_transforms:named"], x).open(1, 1).client(0).x
    assert {name: values.shape[1:] for name, values in by_name.items()} == {
        "left": (1,),
        "right": (1,),
    }


@pytest.mark.parametrize(
    ("transforms", "why"),
    [
        (["flat"], "flat"),
        ([{"kind": "resize", "height": 3}], "width"),
        ([{"kind": "resize", "height": 0, "width": 3}], "height"),
        (["flatten", "channels-first"], "channels-first: expected pictures of shape .* found"),
        (["flatten", {"kind": "resize", "height": 2, "width": 2}], "resize: expected pictures"),
        (["my_transforms:short"], "a row for each of the 6 examples, found 5 rows"),
        (["my_transforms:texts"], "expected a NumPy array or a dense tensor, found list"),
        (["my_transforms:broken"], r"failed with KeyError: 'nowhere' .*my_transforms.py"),
        (["my_transforms:named", "flatten"], "flatten takes one array, .* have left, right"),
    ],
)
def test_what_does_not_fit_is_refused(own: Path, transforms: list[Any], why: str) -> None:
    x = PIXELS if "channels" in why else PIXELS[:, 0, 0]
    with pytest.raises((ConfigError, ValueError), match=why):
        task_of(own, transforms, x).open(1, 1)


def table(folder: Path, text: str) -> dict[str, Any]:
    (folder / "rows.csv").write_text(text)
    source = {"kind": "csv", "path": str(folder / "rows.csv"), "label": "price"}
    return {"name": "own-regression", "source": source, "test_ratio": 0.25, "standardise": True,
            "model": {"kind": "linear", "bias": True}}  # fmt: skip


def rows(count: int = 40) -> str:
    random = np.random.default_rng(0)
    lines = [f"{x:.4f},{2 * x + 1:.4f}" for x in random.normal(size=count)]
    return "\n".join(["size,price", *lines]) + "\n"


def scenario(task: dict[str, Any], **more: Any) -> Scenario:
    values = {"name": "prices", "task": task, "training": {"learning_rate": 0.2, "local_steps": 5},
              "server": {"rounds": 20, "evaluate_groups": True},
              "groups": [{"name": "g", "count": 3}]}  # fmt: skip
    return validate(Scenario, values | more, "test")


def test_a_line_is_found_by_regression_on_a_table(tmp_path: Path) -> None:
    asked = scenario(table(tmp_path, rows()))
    assert simulate_run(asked, tmp_path / "run") == "completed"
    final = json.loads((tmp_path / "run/summary.json").read_text())["final"]
    assert 0 <= final["loss"] < 1e-3
    assert "accuracy" not in final
    opened = asked.task.open(3, 1)
    outputs, y = torch.tensor([[1.0], [4.0]]), torch.tensor([0.0, 1.0])
    assert opened.loss(outputs, y).item() == 5.0
    scores = opened.scores(outputs, y)
    assert scores is not None
    assert scores[0].tolist() == [1.0, 9.0]


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"labels": [0, 1]}, "the examples have numbers, not classes"),
        ({"partition": {"kind": "dirichlet", "alpha": 1.0}}, "dirichlet divides examples by class"),
    ],
)
def test_what_needs_classes_is_refused_for_numbers(
    tmp_path: Path, more: dict[str, Any], why: str
) -> None:
    with pytest.raises(ConfigError, match=why):
        scenario(table(tmp_path, rows()) | more)


def test_an_accuracy_is_not_expected_of_numbers(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="measures no accuracy"):
        scenario(table(tmp_path, rows()), expect=[{"that": "accuracy > 0.5"}])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("size,price\n1,cheap\n2,3.5\n3,4\n", "labels: expected numbers, found .*cheap"),
        ("size,price\n1,1e99\n2,3.5\n3,4\n", "numbers that float32 can hold, found 1e.?99"),
    ],
)
def test_labels_that_are_no_numbers_are_refused(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        scenario(table(tmp_path, text)).task.open(1, 1)


def test_fractions_as_classes_name_the_task_for_numbers(tmp_path: Path) -> None:
    task = table(tmp_path, rows()) | {"name": "own"}
    with pytest.raises(ConfigError, match=r"line 2, column price: .*task.name = 'own-regression'"):
        scenario(task).task.open(1, 1)
