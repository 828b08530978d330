"""Training of parameters in half precision, whose values are kept in float32."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from muster.client.training.local import train
from muster.client.training.settings import Training
from muster.common.config import validate
from muster.tasks.parts import load_vector, vector_of
from muster.tasks.regression import LinearRegression


class Half(nn.Module):
    """A layer in half precision, one in float32, and a parameter that nothing depends on."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.first = nn.Linear(4, 3, dtype=dtype)
        self.last = nn.Linear(3, 1)
        self.idle = nn.Parameter(torch.ones(2, dtype=dtype))

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(self.last(self.first(x.to(self.first.weight.dtype)).float()))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_steps_that_half_precision_would_lose_add_up(dtype: torch.dtype) -> None:
    torch.manual_seed(2)
    module, rate, steps = Half(dtype), 1e-4, 20
    task = LinearRegression(dimension=4).open(population=1, seed=3)
    examples, received = task.client(0), vector_of(module)
    wanted = validate(
        Training, {"learning_rate": rate, "local_steps": steps, "batch_size": "full"}, "test"
    )
    found = train(
        task, module, received, examples, wanted, seed=1, client="a", round=1, base_version=0
    )

    # The same by hand: values in float32, gradients from the module that has them rounded.
    masters = [torch.from_numpy(part) for part in np.split(received.copy(), [2, 14, 17, 20])]
    x, y = torch.from_numpy(examples.x), torch.from_numpy(examples.y)
    for _ in range(steps):
        load_vector(module, torch.cat([part.ravel() for part in masters]).numpy())
        module.zero_grad()
        ((module(x).squeeze(1) - y).square().mean() / 2).backward()
        for master, parameter in zip(masters, module.parameters(), strict=True):
            if parameter.grad is not None:
                master -= rate * parameter.grad.float().ravel()
    expected = torch.cat([part.ravel() for part in masters]).numpy() - received
    np.testing.assert_allclose(found.delta, expected, rtol=1e-4, atol=1e-7)
    assert np.count_nonzero(found.delta[2:14]) == 12
    assert not found.delta[:2].any()
