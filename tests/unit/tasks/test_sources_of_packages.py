"""Sources that need packages which muster itself does not."""

import datetime
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from muster.common.errors import ConfigError
from muster.tasks.sources import SOURCES
from muster.tasks.task import OpenTask
from muster.tasks.tasks import TASKS
from muster.torch.examples import task_of

PIXELS = np.random.default_rng(0).integers(0, 256, (8, 5, 6, 3), np.uint8)


def opened(source: dict[str, Any], clients: int = 1, **more: Any) -> OpenTask:
    task: Any = TASKS.parse({"name": "own", "source": source, "test_ratio": 0.2, **more})
    task.check()
    found: OpenTask = task.open(clients, 1)
    return found


def pictures(folder: Path, *names: str) -> Path:
    """Pictures with these names below a folder."""
    image = pytest.importorskip("PIL.Image")
    for name, pixels in zip(names, PIXELS, strict=False):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        image.fromarray(pixels).save(folder / name)
    return folder


NAMES = ("train/cat/1.png", "train/cat/2.png", "train/dog/0.png", "train/dog/more/1.PNG")


def test_pictures_have_the_labels_of_their_folders(tmp_path: Path) -> None:
    path = str(pictures(tmp_path, *NAMES, "val/dog/9.png", "val/.hidden/x.png"))
    found = opened({"kind": "folder", "path": path})
    examples = found.client(0)
    np.testing.assert_allclose(examples.x, PIXELS[:4].transpose(0, 3, 1, 2) / np.float32(255))
    assert examples.y.tolist() == [0, 0, 1, 1]
    assert found.test().y.tolist() == [1]
    grey = opened({"kind": "folder", "path": path, "colour": False, "size": 4})
    assert grey.client(0).x.shape == (4, 4, 4)


def of_sizes(folder: Path) -> Path:
    image = pytest.importorskip("PIL.Image")
    pictures(folder, "cat/0.png", "dog/0.png")
    image.fromarray(PIXELS[0, :4]).save(folder / "dog/1.png")
    return folder


def broken(folder: Path) -> Path:
    pictures(folder, "cat/0.png", "dog/0.png")
    whole = (folder / "dog/0.png").read_bytes()
    (folder / "dog/1.png").write_bytes(whole[: len(whole) // 2])
    return folder


def without(folder: Path) -> Path:
    pictures(folder, "cat/0.png", "dog/0.png")
    (folder / "empty").mkdir()
    (folder / "empty/notes.txt").touch()
    return folder


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (of_sizes, r"dog/1.png: expected a picture of 6×5 pixels as the first one, found 6×4"),
        (broken, r"dog/1.png: expected a picture, found image file is truncated"),
        (without, r"empty: expected pictures \(.bmp, .* found notes.txt"),
        (lambda f: pictures(f, "0.png", "1.png"), r"a folder of pictures for every label, found 0"),
        (lambda f: pictures(f, "0.png") / "0.png", r"0.png: expected a folder, found a file"),
        (lambda f: f / "none", r"none does not exist"),
    ],
)
def test_wrong_pictures_are_refused(make: Callable[[Path], Path], why: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=why):
        opened({"kind": "folder", "path": str(make(tmp_path))})


def test_a_missing_package_is_named_with_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("muster.tasks.sources.contract.find_spec", lambda name: None)
    for kind, extra in (("folder", "pictures"), ("parquet", "parquet"), ("datasets", "datasets")):
        label = {} if kind == "folder" else {"label": "y"}
        source: Any = SOURCES.parse({"kind": kind, "path": str(tmp_path), **label})
        with pytest.raises(ConfigError, match=rf"pip install 'muster-fl\[{extra}\]'"):
            source.check()
    hub: Any = SOURCES.parse({"kind": "datasets", "hub": "ylecun/mnist", "label": "label"})
    with pytest.raises(ConfigError, match=r"pip install 'muster-fl\[datasets\]'"):
        hub.fetched()


COLUMNS: dict[str, list[Any]] = {
    "x": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
    "vector": [[float(i), 0.5] for i in range(6)],
    "site": ["b", "a", "b", "a", "b", "a"],
    "y": [3, 1, 3, 1, 3, 1],
}


def parquet(folder: Path, name: str, **columns: list[Any]) -> str:
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pa.table({**COLUMNS, **columns}), folder / name)
    return str(folder / name)


def test_a_parquet_file_is_read(tmp_path: Path) -> None:
    path = parquet(tmp_path, "a.parquet")
    source = {"kind": "parquet", "path": path, "test_path": path, "label": "y", "user": "site"}
    found = opened(source, 2, partition="natural")
    assert found.client(0).x.tolist() == [[2, 1, 0.5], [4, 3, 0.5], [6, 5, 0.5]]
    assert found.client(0).y.tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ({"x": [1, None, 3, 4, 5, 6]}, r"a.parquet, row 1, column x: expected a finite number"),
        (
            {"vector": [[1.0]] + [[1.0, 2.0]] * 5},
            r"row 1, column vector: expected .* \(1,\) .* found \(2,\)",
        ),
        ({"y": [1, None, 1, 2, 2, 2]}, r"row 1, column y: expected a value, found nothing"),
        ({"y": [[1]] * 6}, r"row 0, column y: expected a number or a text, found"),
        ({"x": COLUMNS["site"]}, r"row 0, column x: expected a finite number, found 'b'"),
        ({"x": [datetime.date(2026, 1, 1)] * 6}, r"column x: expected"),
    ],
)
def test_wrong_columns_are_refused(columns: dict[str, list[Any]], why: str, tmp_path: Path) -> None:
    path = parquet(tmp_path, "a.parquet", **columns)
    with pytest.raises(ConfigError, match=why):
        opened({"kind": "parquet", "path": path, "label": "y", "user": "site"})


def test_another_file_is_no_parquet_file(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    (tmp_path / "a.parquet").write_text("x,y\n")
    with pytest.raises(ConfigError, match=r"a.parquet: expected a Parquet file, found"):
        opened({"kind": "parquet", "path": str(tmp_path / "a.parquet"), "label": "y"})


def test_a_saved_data_set_is_read_with_its_pictures(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    image = pytest.importorskip("PIL.Image")
    pictures = [image.fromarray(pixels) for pixels in PIXELS[:6]]
    whole = datasets.Dataset.from_dict({**COLUMNS, "picture": pictures}).cast_column(
        "picture", datasets.Image()
    )
    datasets.DatasetDict({"train": whole, "test": whole}).save_to_disk(str(tmp_path / "d"))
    source = {
        "kind": "datasets",
        "path": str(tmp_path / "d"),
        "label": "y",
        "features": ["picture"],
    }
    found = opened(source)
    np.testing.assert_allclose(
        found.client(0).x, PIXELS[:6].transpose(0, 3, 1, 2) / np.float32(255)
    )
    assert found.test().y.tolist() == [1, 0, 1, 0, 1, 0]
    assert opened({**source, "features": ["x", "vector"]}).client(0).x.shape == (6, 3)
    with pytest.raises(ConfigError, match=r"expected a split 'learn', found train, test"):
        opened({**source, "split": "learn"})
    with pytest.raises(ConfigError, match=r"expected a folder of Dataset.save_to_disk, found"):
        opened({**source, "path": str(tmp_path)})


def test_unknown_labels_and_columns_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    pytest.importorskip("PIL.Image")
    names = datasets.ClassLabel(names=["a", "b"])
    whole = datasets.Dataset.from_dict({"x": [1.0, 2.0, 3.0, 4.0], "y": [0, 1, 0, 1]})
    hidden = datasets.Dataset.from_dict({"x": [5.0], "y": [-1]})
    splits = {"train": whole.cast_column("y", names), "test": hidden.cast_column("y", names)}
    datasets.DatasetDict(splits).save_to_disk(str(tmp_path / "hidden"))
    source = {"kind": "datasets", "path": str(tmp_path / "hidden"), "label": "y"}
    with pytest.raises(ConfigError, match=r"split test, column y: .* found -1, .*test_split"):
        opened(source)
    assert opened({**source, "test_split": "none"}).client(0).x.shape == (3, 1)

    broken = {**whole.to_dict(), "picture": [{"bytes": b"none", "path": None}] * 4}
    made = datasets.Dataset.from_dict(broken).cast_column("picture", datasets.Image())
    made.save_to_disk(str(tmp_path / "broken"))
    source["path"] = str(tmp_path / "broken")
    with pytest.raises(ConfigError, match=r"columns that can be read, found .*task.source.feat"):
        opened(source)
    assert opened({**source, "features": ["x"]}).client(0).x.shape == (3, 1)


def test_saved_partitions_are_users(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    for name, count in (("10", 4), ("9", 6)):
        rows = {name: column[:count] for name, column in COLUMNS.items() if name != "site"}
        datasets.Dataset.from_dict(rows).save_to_disk(str(tmp_path / name))
    source = {"kind": "datasets", "path": str(tmp_path), "label": "y", "user": "partition"}
    found = opened(source, 2, partition="natural", test_ratio=0.25)
    assert found.examples == [4, 3]  # those of 9 and of 10
    assert found.client(0).x.shape == (4, 3)
    del source["user"]
    assert opened(source).client(0).x.shape == (8, 3)


def test_data_sets_that_are_there_in_python_are_saved_for_the_processes(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    values: dict[str, list[Any]] = {
        "pixels": [[0.0, 1.0], [2.0, 3.0]] * 6,
        "site": ["a", "b"] * 6,
        "label": [0, 1] * 6,
    }
    made = datasets.Dataset.from_dict(values)
    tests = datasets.Dataset.from_dict({name: column[:2] for name, column in values.items()})
    for data, test in ((made, tests), (datasets.DatasetDict({"train": made, "test": tests}), None)):
        found = task_of(data, test, "site", tmp_path)
        assert found["source"]["label"] == "label"
        task: Any = TASKS.parse({**found, "partition": "natural"})
        opened = task.open(2, 1)
        assert opened.client(1).x.tolist() == [[2.0, 3.0]] * 6
        assert len(opened.test()) == 2
    assert task_of(made, None, None, tmp_path) == task_of(made, None, None, tmp_path)
    with pytest.raises(ConfigError, match=r"user: expected the name of a column, found list"):
        task_of(made, None, ["a"] * 12, tmp_path)
