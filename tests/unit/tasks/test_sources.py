"""Data of the user's own: what sources read, and what they refuse."""

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from muster.client.training.local import train
from muster.common.errors import ConfigError
from muster.emulator.launch.process_configs import ProcessConfigs
from muster.emulator.records.inputs import changes, inputs_of
from muster.emulator.scenario.reading import read_scenario
from muster.tasks.partitions import BUILT_IN as PARTITIONS
from muster.tasks.parts import vector_of
from muster.tasks.sources import SOURCES
from muster.tasks.task import OpenTask, Task
from muster.tasks.tasks import TASKS, read_task

TABLE = """\
site,age,bmi,ill
north,1,0.5,no
south,2,1.5,yes

north,3,2.5,no
east,4,3.5,yes
south,5,4.5,no
north,6,5.5,yes
"""


def task_of(folder: Path, source: dict[str, Any], **more: Any) -> Task:
    source = {key: str(folder / v) if "path" in key else v for key, v in source.items()}
    parsed = TASKS.parse({"name": "own", "source": source, **more})
    assert isinstance(parsed, Task)
    return parsed


def opened(folder: Path, source: dict[str, Any], clients: int = 2, **more: Any) -> OpenTask:
    return read_task(task_of(folder, source, **more).to_json()).open(clients, 1)


def csv(folder: Path, text: str = TABLE, **more: Any) -> dict[str, Any]:
    (folder / "a.csv").write_text(text)
    return {"kind": "csv", "path": "a.csv", "label": "ill", "user": "site", **more}


def npz(folder: Path, **arrays: Any) -> dict[str, Any]:
    np.savez(folder / "a.npz", **arrays)
    return {"kind": "npz", "path": "a.npz"}


def rows_of(opened: OpenTask, clients: int) -> list[tuple[tuple[float, ...], int]]:
    """All examples, in the order of their features."""
    sets = [opened.client(index) for index in range(clients)]
    found = [
        (tuple(x.tolist()), int(y)) for each in sets for x, y in zip(each.x, each.y, strict=True)
    ]
    return sorted(found)


def test_a_csv_file_is_read_with_its_users_and_numbered_labels(tmp_path: Path) -> None:
    found = opened(tmp_path, csv(tmp_path, test_path="a.csv"), 3, partition="natural")
    x = [[[4.0, 3.5]], [[1.0, 0.5], [3.0, 2.5], [6.0, 5.5]], [[2.0, 1.5], [5.0, 4.5]]]
    y = [[1], [0, 0, 1], [1, 0]]  # east, north, south
    for index in range(3):
        examples = found.client(index)
        assert examples.x.tolist() == x[index]
        assert examples.y.tolist() == y[index]
        assert examples.x.dtype == np.float32
    assert found.test().x[:, 0].tolist() == [1, 2, 3, 4, 5, 6]


def test_features_have_the_order_of_the_scenario(tmp_path: Path) -> None:
    source = csv(tmp_path, TABLE.replace(",", ";"), delimiter=";", features=["bmi", "age"])
    found = opened(tmp_path, source, 1, test_ratio=0.2)
    assert len(found.test()) == 1
    everything = rows_of(found, 1) + [
        (tuple(x.tolist()), int(y)) for x, y in zip(found.test().x, found.test().y, strict=True)
    ]
    assert sorted(x for x, _ in everything) == [(0.5 + i, 1.0 + i) for i in range(6)]


def test_columns_of_a_table_are_standardised_each(tmp_path: Path) -> None:
    text = "a,b,ill\n" + "".join(f"{i},{1000 * i},{i % 2}\n" for i in range(10))
    source = {**csv(tmp_path, text, test_path="a.csv"), "user": None}
    x = opened(tmp_path, source, 1, standardise=True).test().x
    np.testing.assert_allclose(x.mean(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(x.std(axis=0), 1, rtol=1e-6)


def test_arrays_are_read_with_their_test_set_and_pixels_are_scaled(tmp_path: Path) -> None:
    x = np.arange(6 * 4, dtype=np.uint8).reshape(6, 2, 2)
    y = np.array(["b", "a", "b", "a", "c", "c"])
    found = opened(tmp_path, npz(tmp_path, x=x, y=y, test_x=x[:1], test_y=y[:1]), 1)
    assert found.test().y.tolist() == [1]
    np.testing.assert_allclose(found.client(0).x, x / np.float32(255))
    floats = npz(tmp_path, pictures=x.astype(np.float64), y=[1, 5, 1, 5, 7, 7], site=[9] * 6)
    source = {**floats, "x": "pictures", "user": "site"}
    assert rows_of(opened(tmp_path, source, 1, partition="natural"), 1)


def test_every_user_keeps_examples_for_training(tmp_path: Path) -> None:
    site = np.repeat([0, 1, 2, 3], [1, 2, 5, 20])
    source = {**npz(tmp_path, x=np.ones((28, 2)), y=np.arange(28) % 2, site=site), "user": "site"}
    found = opened(tmp_path, source, 4, partition="natural", test_ratio=0.4)
    assert found.examples == [1, 1, 3, 12]
    assert found.left_out == 0
    assert len(found.test()) == 1 + 2 + 8


def test_users_without_a_device_are_counted(tmp_path: Path) -> None:
    site = np.repeat([0, 1, 2, 3], 7)
    source = {**npz(tmp_path, x=np.ones((28, 2)), y=np.arange(28) % 2, site=site), "user": "site"}
    assert opened(tmp_path, source, 3, partition="natural").left_out == 1
    assert opened(tmp_path, source, 3, partition="iid").left_out == 0


@pytest.mark.parametrize("kind", sorted(PARTITIONS))
def test_every_partition_divides_own_data(kind: str, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    x, y = random.random((200, 3)), random.integers(3, 7, 200)
    source = {**npz(tmp_path, x=x, y=y, site=y % 3), "user": "site"}
    settings: dict[str, dict[str, Any]] = {
        "assigned": {"labels": [[0, 1], [2], [3]]},
        "by-label": {"labels_per_client": 2},
    }
    found = opened(tmp_path, source, 3, partition={"kind": kind, **settings.get(kind, {})})
    assert sum(found.examples) <= 160
    assert {int(y) for index in range(3) for y in found.client(index).y} <= {0, 1, 2, 3}


Make = Callable[[Path], dict[str, Any]]
MISTAKES: dict[str, tuple[Make, str]] = {
    "no file": (lambda f: {"kind": "npz", "path": "b"}, r"b does not exist; expected a path rela"),
    "a text": (
        lambda f: csv(f, TABLE.replace("5,4.5", "5,high")),
        r"a.csv, line 7, column bmi: expected a finite number, found 'high'; fill it, leave",
    ),
    "a gap": (
        lambda f: csv(f, TABLE.replace("3,2.5", ",2.5")),
        r"line 5, column age: expected a finite number, found nothing",
    ),
    "nan": (lambda f: csv(f, TABLE.replace("3.5", "nan")), r"line 6, column bmi: .* found 'nan'"),
    "huge": (lambda f: csv(f, TABLE.replace("3.5", "1e99")), r"line 6, column bmi: .*'1e99'"),
    "no label": (lambda f: csv(f, TABLE.replace("yes", "")), r"line 3, column ill: expected a val"),
    "fractions": (
        lambda f: csv(f, label="bmi", features=["age"]),
        r"line 2, column bmi: expected a class: a whole number or a text, found 0.5",
    ),
    "short line": (
        lambda f: csv(f, TABLE.replace("5,4.5,no", "5,4.5")),
        r"a.csv, line 7: expected 4 values as in the first line, found 3",
    ),
    "semicolons": (
        lambda f: csv(f, TABLE.replace(",", ";")),
        r"line 1: expected a column 'ill', .*found site;age;bmi;ill; columns are separated by ','",
    ),
    "no such user": (lambda f: csv(f, user="clinic"), r"a column 'clinic', found site, age, bmi"),
    "no such feature": (lambda f: csv(f, features=["size"]), r"a column 'size', found site, age"),
    "label as feature": (lambda f: csv(f, features=["ill"]), r"no column of labels or users, f"),
    "twice": (lambda f: csv(f, TABLE.replace("age", "bmi")), r"line 1: expected each name once"),
    "empty": (lambda f: csv(f, ""), r"line 1: expected a column 'ill'.* found none"),
    "no rows": (lambda f: csv(f, "site,age,ill\n"), r"expected lines with examples after the"),
    "one class": (
        lambda f: csv(f, TABLE.replace("yes", "no")),
        r"a.csv, labels: expected two classes at least, found only no",
    ),
    "all different": (
        lambda f: csv(f, label="age", features=["bmi"]),
        r"labels: expected fewer classes than half of the 6 examples, found 6: 1, 2, 3, 4, 5 and",
    ),
    "binary": (lambda f: {**npz(f, x=[[1]]), "kind": "csv", "label": "y"}, r"a CSV file in UTF-8"),
    "text as npz": (lambda f: {**csv(f), "kind": "npz", "label": None}, r"expected an .npz file"),
    "no such array": (lambda f: npz(f, x=[[1.0]] * 4), r"a.npz: expected an array y, found x"),
    "objects": (
        lambda f: npz(f, x=np.array([[None]] * 4), y=[0, 1] * 2),
        r"a.npz, x: expected numbers or texts, found it has objects of Python",
    ),
    "flat x": (lambda f: npz(f, x=[1.0] * 4, y=[0, 1] * 2), r"a row for every example, found an"),
    "short y": (lambda f: npz(f, x=[[1.0]] * 4, y=[0, 1]), r"a.npz, y: expected 4 rows as in x, f"),
    "one-hot y": (lambda f: npz(f, x=[[1.0]] * 4, y=[[0, 1]] * 4), r"y: expected one number or te"),
    "infinite": (
        lambda f: npz(f, x=[[1.0], [np.inf]], y=[0, 1]),
        r"a.npz, x, row 1: expected finite numbers, found inf; fill such values",
    ),
    "fractional y": (
        lambda f: npz(f, x=[[1.0]] * 4, y=[0, 0.5, 1, 1]),
        r"whole number or a.*0.5",
    ),
    "fractional test_y": (
        lambda f: npz(f, x=[[1.0]] * 4, y=[0, 1] * 2, test_x=[[1.0]] * 2, test_y=[0, 0.5]),
        r"whole number or a.*0.5",
    ),
    "test of another shape": (
        lambda f: npz(f, x=[[1.0]] * 4, y=[0, 1] * 2, test_x=[[1.0, 2.0]], test_y=[0]),
        r"a.npz, test_x: expected examples of shape \(1,\) as in x, found \(2,\)",
    ),
    "no test_y": (
        lambda f: npz(f, x=[[1.0]] * 4, y=[0, 1] * 2, test_x=[[1.0]]),
        r"a.npz: expected an array test_y, found x, y, test_x",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_names_the_file_the_place_and_what_was_expected(
    name: str, tmp_path: Path
) -> None:
    make, why = MISTAKES[name]
    source = {key: value for key, value in make(tmp_path).items() if value is not None}
    if source["kind"] == "npz":
        source.pop("user", None)
    with pytest.raises(ConfigError, match=why) as found:
        opened(tmp_path, source)
    assert "\n" not in str(found.value)


def test_the_files_are_relative_to_the_scenario_and_bind_the_run(tmp_path: Path) -> None:
    csv(tmp_path)
    (tmp_path / "s.toml").write_text(
        'name = "x"\n[task]\nname = "own"\nmodel = "softmax"\n[task.source]\nkind = "csv"\n'
        'path = "a.csv"\nlabel = "ill"\nuser = "site"\n'
        '[server]\nrounds = 1\n[[groups]]\nname = "a"\ncount = 2\n'
    )
    scenario = read_scenario(tmp_path / "s.toml")
    assert scenario.task.paths() == [str(tmp_path / "a.csv")]
    assert ProcessConfigs(scenario, tmp_path).nursery().trial is not None
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "scenario.toml").write_text(scenario.to_toml())
    before = inputs_of(folder)
    assert [row.name for row in before if row.kind == "file"] == [str(tmp_path / "a.csv")]
    assert not [*changes(before, folder)]
    (tmp_path / "a.csv").write_text(TABLE.replace("4.5", "4.6"))
    assert [change.name for change in changes(before, folder)] == [str(tmp_path / "a.csv")]


def test_the_example_learns(tmp_path: Path) -> None:
    for file in (Path(__file__).parents[3] / "examples/data").glob("clinics.*"):
        (tmp_path / file.name).write_text(file.read_text())
    runpy.run_path(str(tmp_path / "clinics.py"), run_name="__main__")
    scenario = read_scenario(tmp_path / "clinics.toml")
    task = scenario.task.open(scenario.devices, scenario.seed)
    assert min(task.examples) >= 20
    module, accuracies = task.module(), []
    received = vector_of(module)
    for round in range(1, 4):
        accuracies.append(task.metrics(module)["accuracy"])
        named: dict[str, Any] = {
            "seed": 1,
            "client": "a",
            "round": round,
            "base_version": round - 1,
        }
        received = (
            received
            + train(task, module, received, task.client(0), scenario.training, **named).delta
        )
    assert accuracies[-1] > max(0.6, accuracies[0])


def test_a_source_is_described_once() -> None:
    assert all(kind.__doc__ for kind in SOURCES.built_in.values())


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ({"hub": "mnist"}, "expected OWNER/NAME, .* for example ylecun/mnist, found 'mnist'"),
        ({"hub": "https://hub/datasets/ylecun/mnist"}, "expected OWNER/NAME"),
        ({"hub": "lab/a..b"}, "expected OWNER/NAME"),
        ({}, "expected path, a folder, or hub"),
        ({"hub": "ylecun/mnist", "path": "mnist"}, "found both; leave one of them out"),
        ({"path": "mnist", "revision": "main"}, "of a data set of the hub; give hub"),
        ({"path": "mnist", "configuration": "small"}, "of a data set of the hub; give hub"),
    ],
)
def test_a_data_set_of_the_hub_has_the_name_of_its_page(source: dict[str, str], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        SOURCES.parse({"kind": "datasets", "label": "label", **source})


def test_the_name_of_a_data_set_of_the_hub_is_no_path() -> None:
    source = SOURCES.parse({"kind": "datasets", "path": "ylecun/mnist", "label": "label"})
    with pytest.raises(ConfigError, match=r"ylecun/mnist does not exist; .*hub = \"OWNER/NAME\""):
        source.check()  # type: ignore[attr-defined]
