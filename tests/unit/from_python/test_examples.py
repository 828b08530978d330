"""What people have in Python becomes files that the processes of a run read."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from muster.common.errors import ConfigError
from muster.tasks.tasks import TASKS
from muster.torch.examples import task_of

X = np.arange(60, dtype=np.float32).reshape(20, 3)
Y = np.arange(20) % 2


class Pairs(Dataset[Any]):
    """A data set of pairs of a tensor and a number."""

    def __init__(self, x: Any = X, y: Any = Y) -> None:
        self._x, self._y = x, y

    def __len__(self) -> int:
        return len(self._x)

    def __getitem__(self, index: int) -> Any:
        return torch.as_tensor(self._x[index]), int(self._y[index])


class Items(Dataset[Any]):
    """A data set of any items."""

    def __init__(self, items: list[Any]) -> None:
        self._items = items

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, index: int) -> Any:
        return self._items[index]


class Stream(IterableDataset[Any]):
    """A data set without a length."""

    def __iter__(self) -> Iterator[Any]:
        return iter(Pairs())


def examples(task: dict[str, Any]) -> list[tuple[tuple[float, ...], int]]:
    """All examples that two devices and the test set have."""
    parsed: Any = TASKS.parse(task)
    opened = parsed.open(2, 1)
    sets = [opened.client(0), opened.client(1), opened.test()]
    return sorted(
        (tuple(x.ravel().tolist()), int(y)) for s in sets for x, y in zip(s.x, s.y, strict=True)
    )


ALL = sorted((tuple(x.tolist()), int(y)) for x, y in zip(X, Y, strict=True))

FORMS: dict[str, Any] = {
    "arrays": (X, Y),
    "a list of both": [X, Y],
    "tensors": (torch.from_numpy(X), torch.from_numpy(Y)),
    "a tensor with a gradient": (torch.from_numpy(X.copy()).requires_grad_(), Y),
    "bfloat16": (torch.from_numpy(X).bfloat16(), Y),
    "lists": (X.tolist(), Y.tolist()),
    "a TensorDataset": TensorDataset(torch.from_numpy(X), torch.from_numpy(Y)),
    "a Dataset": Pairs(),
    "a Dataset of dictionaries": Items(
        [{"target": int(y), "picture": torch.from_numpy(x)} for x, y in zip(X, Y, strict=True)]
    ),
    "texts as labels": (X, np.array(["no", "yes"])[Y]),
}


@pytest.mark.parametrize("data", FORMS.values(), ids=FORMS)
def test_every_form_gives_the_same_examples(tmp_path: Path, data: Any) -> None:
    assert examples(task_of(data, None, None, tmp_path)) == ALL


def test_the_same_examples_are_written_once(tmp_path: Path) -> None:
    paths = [task_of(FORMS[f], None, None, tmp_path)["source"]["path"] for f in ("arrays",) * 2]
    other = task_of((X + 1, Y), None, None, tmp_path)["source"]["path"]
    assert paths[0] == paths[1] != other
    assert {str(path) for path in tmp_path.iterdir()} == {paths[0], other}


def test_examples_for_testing_are_kept_apart(tmp_path: Path) -> None:
    task: Any = TASKS.parse(task_of(Pairs(), (X[:4] + 100, Y[:4]), None, tmp_path))
    assert task.open(2, 1).test().x.tolist() == (X[:4] + 100).tolist()


def test_a_user_is_a_device_of_the_natural_partition(tmp_path: Path) -> None:
    found = task_of((X, Y), None, np.repeat(["b", "a"], 10), tmp_path)
    task: Any = TASKS.parse({**found, "partition": "natural"})
    assert task.open(2, 1).client(1).x.max() == X[9].max()  # b is the second in order


def test_the_name_of_a_data_set_is_that_task(tmp_path: Path) -> None:
    assert task_of("digits", None, None, tmp_path) == {"name": "digits"}
    assert not [*tmp_path.iterdir()]


REFUSED: dict[str, tuple[Any, str]] = {
    "a loader": (DataLoader(Pairs()), r"found a DataLoader; give its `dataset`"),
    "a stream": (Stream(), r"expected a Dataset with a length, found Stream without one"),
    "one array": (X, r"data: expected a pair \(x, y\) of arrays .*, found ndarray"),
    "three arrays": ((X, Y, Y), r"found 3 values"),
    "a number": (3, r"found int"),
    "labels missing": ((X, Y[:-1]), r"expected a row of x for every label in y, found arrays of"),
    "a number as y": ((X, 3), r"expected a row of x for every label in y"),
    "objects": (
        (X.astype(object), Y),
        r"data, x: expected numbers, .* found objects of type float",
    ),
    "rows of two lengths": (([[1.0], [1.0, 2.0]], [0, 1]), r"data, x: expected an array"),
    "inputs by no name": (({}, Y), r"arrays by the names of arguments .*, found none"),
    "inputs named y": (({"y": X}, Y), r"other than x, y and user, found y"),
    "a row short": (({"a": X, "b": X[1:]}, Y), r"expected a row of b for every label"),
    "an item without a label": (
        Items([{"ids": [1], "mask": [1]}]),
        r"dictionaries of inputs with one of label, labels, y, target, found an item {'ids'",
    ),
    "an item with a label alone": (Items([{"label": 1}]), r"found an item {'label': 1}"),
    "items with other inputs": (
        Items([{"a": [1], "b": [1], "y": 0}, {"a": [1], "y": 1}]),
        r"expected every item to have a, b, found one with a",
    ),
    "a Dataset of nothing": (Items([]), r"data: expected examples, found an empty Items"),
    "items of two shapes": (
        Pairs([np.ones(2), np.ones(3)], [0, 1]),
        r"expected examples of one shape, found \(2,\), \(3,\)",
    ),
}


@pytest.mark.parametrize(("data", "message"), REFUSED.values(), ids=REFUSED)
def test_what_is_no_examples_is_refused(tmp_path: Path, data: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        task_of(data, None, None, tmp_path)
    assert not [*tmp_path.iterdir()]


def test_a_data_set_by_name_takes_no_other_examples(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"digits has examples for testing"):
        task_of("digits", (X, Y), None, tmp_path)


def test_inputs_by_name_become_arguments_of_the_model(tmp_path: Path) -> None:
    ids = np.arange(len(Y) * 3).reshape(len(Y), 3)
    mask = np.ones((len(Y), 3), np.uint8)
    data: Any = ({"ids": torch.from_numpy(ids), "mask": mask}, Y)
    rows = zip(ids, mask, Y, strict=True)
    items = [{"ids": torch.from_numpy(i), "mask": m, "labels": int(y)} for i, m, y in rows]
    test = Items([({"ids": item["ids"], "mask": item["mask"]}, item["labels"]) for item in items])
    found: Any = TASKS.parse(task_of(data, test, None, tmp_path))
    assert task_of(Items(items), test, None, tmp_path) == task_of(data, test, None, tmp_path)
    dataset = found.dataset()
    assert dataset.inputs == {"ids": (3,), "mask": (3,)}
    assert np.array_equal(dataset.train_x["ids"], ids)
    assert len(dataset.test_y) == len(Y)
