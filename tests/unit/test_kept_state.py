"""The state that a trainer of the user's own keeps on a device, as bytes."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from muster.client.training.kept_state import from_bytes, to_bytes
from muster.common.errors import ConfigError


def same(one: Any, other: Any) -> bool:
    """Whether two values have the same types and the same content."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        pairs = zip(one.items(), other.items(), strict=False)
        return len(one) == len(other) and all(a == b and same(x, y) for (a, x), (b, y) in pairs)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and one.shape == other.shape and bool((one == other).all())
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other)
    return bool(one == other)


@pytest.mark.parametrize(
    "value",
    [
        3, 2**70, -0.1, math.inf, True, None, "ü", [], {}, (), [1, [2.5, ("a", None)]],
        {"a": {1: "b", 2: [torch.ones(2)]}}, torch.tensor(3), torch.zeros(0, 4),
        torch.ones(3, dtype=torch.bfloat16), torch.tensor([True, False]), torch.eye(3).T[1:],
        np.arange(6).reshape(2, 3)[:, ::2], np.array([1.5], np.float32),
        np.zeros((2, 0)), np.array(7),
    ],
    ids=str,
)  # fmt: skip
def test_a_state_is_kept_as_it_is(value: Any) -> None:
    assert same(from_bytes(to_bytes({"value": value}, "mine:train")), {"value": value})


def test_the_state_of_an_optimizer_is_kept() -> None:
    module = nn.Linear(3, 2)
    optimizer = torch.optim.Adam(module.parameters(), amsgrad=True)
    module(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    state = {"optimizer": optimizer.state_dict(), "steps": 1}
    kept = to_bytes(state, "mine:train")
    assert same(from_bytes(kept), state)
    assert kept == to_bytes(from_bytes(kept), "mine:train")


def test_numbers_of_numpy_become_numbers() -> None:
    assert from_bytes(to_bytes({"loss": np.float32(0.5), "step": np.int64(3)}, "mine")) == {
        "loss": 0.5,
        "step": 3,
    }


def test_tensors_that_share_memory_are_kept_apart() -> None:
    weight = torch.ones(2)
    assert same(
        from_bytes(to_bytes({"a": weight, "b": weight}, "mine")), {"a": weight, "b": weight}
    )


def test_nothing_takes_no_bytes() -> None:
    assert to_bytes({}, "mine:train") == b""
    assert from_bytes(b"") == {}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({1, 2}, r"mine:train left state\['x'\] = \{1, 2\} of type set, expected tensors"),
        ([nn.Linear(1, 1)], r"left state\['x'\]\[0\] = Linear.* of type Linear"),
        ({(1, 2): 3}, r"left the key \(1, 2\) in state\['x'\], expected texts or whole numbers"),
        (np.array(["text"]), "of type ndarray"),
        (1j, "of type complex"),
    ],
)
def test_other_values_are_refused_by_name(value: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        to_bytes({"x": value}, "mine:train")
