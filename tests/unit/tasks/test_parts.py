"""What becomes of the entries of a module's state."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from muster.common.errors import ConfigError
from muster.tasks.parts import (
    counted_names,
    declare_counted,
    load_vector,
    schema,
    vector_of,
)


class Attention(nn.Module):
    """Causal attention with its mask in the state dict, as in public definitions of GPT."""

    mask: Tensor

    def __init__(self, persistent: bool = True) -> None:
        super().__init__()
        self.value = nn.Linear(3, 3)
        self.register_buffer("mask", torch.ones(3, 3).tril(), persistent=persistent)

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor((x @ self.mask) @ self.value.weight)


class Drawing(nn.Module):
    """A module that draws, and remembers how often it was called."""

    calls: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x * self.weight * torch.rand(())


def batch_norm() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))


def spectral() -> nn.Module:
    return nn.utils.parametrizations.spectral_norm(nn.Linear(3, 3))


def shared() -> nn.Module:
    norm = nn.BatchNorm1d(3)
    return nn.Sequential(norm, norm)


CASES: list[tuple[Callable[[], nn.Module], list[str]]] = [
    (batch_norm, ["1.running_mean", "1.running_var", "1.num_batches_tracked"]),
    (lambda: nn.BatchNorm1d(3, track_running_stats=False), []),
    (Attention, []),
    (lambda: Attention(persistent=False), []),
    (Drawing, ["calls"]),
    (spectral, ["parametrizations.weight.0._u", "parametrizations.weight.0._v"]),
    (shared, ["0.running_mean", "0.running_var", "0.num_batches_tracked"]),
    (lambda: nn.GroupNorm(1, 3), []),
]


def some() -> Tensor:
    return torch.arange(6.0).view(2, 3)


@pytest.mark.parametrize(("build", "names"), CASES)
def test_counted_are_the_buffers_that_a_forward_pass_changes(
    build: Callable[[], nn.Module], names: list[str]
) -> None:
    module = build().eval()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    drawn = torch.get_rng_state()
    declare_counted(module, some)
    assert [*counted_names(module)] == names
    assert [tensor.name for tensor in schema(module).tensors if tensor.counted] == names
    assert not module.training
    assert torch.equal(torch.get_rng_state(), drawn)
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_a_module_may_say_itself_what_is_counted() -> None:
    module = batch_norm()
    module.counted_buffers = ("1.running_mean",)  # type: ignore[assignment]
    declare_counted(module, some)
    assert counted_names(module) == ("1.running_mean",)


@pytest.mark.parametrize("declared", [("running_mean",), "1.running_mean", 3])
def test_what_a_module_declares_must_be_buffers_of_its_own(declared: object) -> None:
    module = batch_norm()
    module.counted_buffers = declared  # type: ignore[assignment]
    with pytest.raises(ConfigError, match=r"expected names of its buffers: 1\.running_mean, "):
        declare_counted(module, some)


def test_no_inputs_are_made_for_a_module_without_buffers() -> None:
    def never() -> Tensor:
        raise AssertionError

    declare_counted(nn.Linear(2, 1), never)


def test_a_module_that_fails_is_told_with_what_it_got() -> None:
    with pytest.raises(ConfigError, match=r"inputs of float32 and shape \(2, 3\): Runtime"):
        declare_counted(nn.Sequential(nn.Linear(4, 1), nn.BatchNorm1d(1)), some)


def test_a_vector_comes_back_with_whole_numbers_rounded() -> None:
    module = batch_norm()
    declare_counted(module, some)
    vector = np.arange(3 * 3 + 3 + 3 + 3 + 3 + 3 + 1, dtype=np.float32) + 0.25
    load_vector(module, vector)
    assert module.state_dict()["1.num_batches_tracked"].item() == 24
    np.testing.assert_array_equal(vector_of(module), [*vector[:-1], 24.0])


def frozen_layer(value: float, dtype: torch.dtype = torch.bfloat16) -> nn.Module:
    layer = nn.Linear(2, 1, dtype=dtype).requires_grad_(False)
    nn.init.constant_(layer.weight, value)
    nn.init.zeros_(layer.bias)
    return nn.Sequential(layer, nn.Linear(1, 1))


def test_frozen_parameters_do_not_travel_but_must_be_the_same() -> None:
    found = schema(frozen_layer(1.0))
    assert [tensor.name for tensor in found.tensors] == ["1.weight", "1.bias"]
    assert found == schema(frozen_layer(1.0))
    assert found != schema(frozen_layer(1.5))
    assert found != schema(frozen_layer(1.0, torch.float16))
    assert schema(nn.Linear(2, 1)).frozen == ""
