"""The roles that a scenario gives the entries of a model, by name."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from muster.common.config import validate
from muster.common.errors import ConfigError
from muster.tasks.classification import Digits
from muster.tasks.parts import (
    counted_names,
    frozen_checksum,
    load_local,
    local_bytes,
    schema,
    travelling,
    vector_of,
)
from muster.tasks.roles import Parts, assign


class Net(nn.Module):
    """A network with a tied weight, normalisation, a table and a whole number that is a parameter.

    The names of the entries are those of its state dict.
    """

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(3, 3)
        self.norm = nn.BatchNorm1d(3)
        self.head = nn.Linear(3, 3)
        self.head.weight = self.body.weight
        self.scale = nn.Parameter(torch.ones(3, dtype=torch.float64), requires_grad=False)
        self.whole = nn.Parameter(torch.ones(3, dtype=torch.int64), requires_grad=False)
        self.register_buffer("table", torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(self.head(self.norm(self.body(x))))


def net(**roles: list[str]) -> Net:
    torch.manual_seed(1)
    module = Net()
    assign(module, Parts(**roles), lambda: torch.arange(6.0).view(2, 3))
    return module


RUNNING = ["norm.running_mean", "norm.running_var", "norm.num_batches_tracked"]

CASES: dict[str, tuple[dict[str, list[str]], list[str]]] = {
    "none": ({}, ["body.weight", "body.bias", "norm.weight", "norm.bias", "head.bias", *RUNNING]),
    "local normalisation": ({"local": ["norm.*"]}, ["body.weight", "body.bias", "head.bias"]),
    "a local head": (
        {"local": ["head.bias"]},
        ["body.weight", "body.bias", "norm.weight", "norm.bias", *RUNNING],
    ),
    "a tied weight, by its second name": (
        {"local": ["head.weight"]},
        ["body.bias", "norm.weight", "norm.bias", "head.bias", *RUNNING],
    ),
    "frozen with its statistics": (
        {"frozen": ["body.*", "n*"]},
        ["head.bias"],
    ),
    "counted": (
        {"counted": ["table"], "frozen": ["norm.weight"], "local": ["body.*", "norm.num*"]},
        ["norm.bias", "head.bias", "table", *RUNNING[:2]],
    ),
}


@pytest.mark.parametrize(("roles", "names"), CASES.values(), ids=CASES.keys())
def test_what_travels_is_what_the_roles_say(roles: dict[str, list[str]], names: list[str]) -> None:
    module = net(**roles)
    assert [tensor.name for tensor in schema(module).tensors] == names
    assert len(vector_of(module)) == sum(tensor.numel() for tensor in travelling(module))


def test_frozen_statistics_stay_while_the_rest_trains() -> None:
    module = net(frozen=["norm.*"])
    module.norm.running_mean.fill_(2.0)  # type: ignore[union-attr]
    module.train()(torch.randn(8, 3))
    assert module.norm.running_mean.tolist() == [2.0, 2.0, 2.0]  # type: ignore[union-attr]
    assert module.training
    assert not module.norm.training
    assert [*counted_names(module)] == []


def test_a_role_takes_precedence_over_requires_grad() -> None:
    module = net(frozen=["body.bias"], local=["norm.weight"])
    assert not module.body.bias.requires_grad
    assert module.norm.weight.requires_grad
    assert frozen_checksum(module) != frozen_checksum(net(local=["norm.weight"]))


def test_local_entries_keep_their_type_and_begin_anew_without_values() -> None:
    module = net(local=["norm.*", "head.bias"])
    begin = local_bytes(module)
    module.norm.num_batches_tracked.fill_(2**40 + 1)  # type: ignore[union-attr]
    module.head.bias.data.fill_(0.1)
    kept = local_bytes(module)
    assert len(kept) == 4 * (3 + 3 + 3 + 3 + 3) + 8
    load_local(module, b"")
    assert local_bytes(module) == begin
    load_local(module, kept)
    assert local_bytes(module) == kept
    assert module.norm.num_batches_tracked.item() == 2**40 + 1  # type: ignore[union-attr]


REFUSED: dict[str, tuple[dict[str, list[str]], str]] = {
    "no match": (
        {"local": ["classifier.*"]},
        r"task\.parts\.local: 'classifier\.\*' matches no entry of the model; there are: scale, ",
    ),
    "two roles": (
        {"local": ["head.*"], "frozen": ["*.bias"]},
        r"frozen \('\*\.bias'\) and local \('head\.\*'\) both claim 'head\.bias'",
    ),
    "two names of one entry": (
        {"local": ["head.weight"], "frozen": ["body.weight"]},
        "both claim 'body.weight'",
    ),
    "a trained buffer": ({"trained": ["table"]}, "'table' is a buffer, which training cannot"),
    "a counted parameter": ({"counted": ["body.*"]}, "'body.(bias|weight)' is a parameter"),
    "some statistics of a part": (
        {"frozen": ["norm.running_var"]},
        "'norm.running_var' is frozen, but not norm.running_mean, norm.num_batches_tracked of the",
    ),
    "a whole number": ({"local": ["whole"]}, "is of torch.int64, which has no gradient"),
}


@pytest.mark.parametrize(("roles", "why"), REFUSED.values(), ids=REFUSED.keys())
def test_roles_that_do_not_fit_are_refused(roles: dict[str, list[str]], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        net(**roles)


def test_a_local_parameter_of_double_precision_is_refused() -> None:
    with pytest.raises(ConfigError, match="must be float32, float16 or bfloat16: scale"):
        schema(net(local=["scale"]))


def test_parameters_without_a_shape_are_refused() -> None:
    module = nn.Sequential(nn.Linear(2, 3), nn.LazyLinear(2))
    with pytest.raises(ConfigError, match=r"must have shapes: 1.weight, 1.bias have none yet"):
        schema(module)
    module(torch.zeros(1, 2))
    assert [each.name for each in schema(module).tensors][-1] == "1.bias"


@pytest.mark.parametrize(
    ("values", "why"),
    [({"Local": ["x"]}, "Local"), ({"local": "x"}, "list"), ({"local": [""]}, "at least 1")],
)
def test_bad_tables_are_refused(values: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        validate(Parts, values, "test")


def test_built_in_models_take_roles_and_without_them_are_as_before() -> None:
    plain, parts = Digits().open(2, 0).module(), Parts(local=["output.*"])
    split = Digits(parts=parts).open(2, 0).module()
    names = [tensor.name for tensor in schema(split).tensors]
    assert names == ["hidden1.weight", "hidden1.bias"]
    np.testing.assert_array_equal(vector_of(split), vector_of(plain)[: len(vector_of(split))])
    assert "parts" not in Digits().to_json()
