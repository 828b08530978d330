"""A task that learns nothing: its model is a vector of a given length, which clients return
unchanged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import numpy as np
from pydantic import Field

from muster.tasks.task import Examples, OpenTask, Task

if TYPE_CHECKING:
    from torch import Tensor, nn


class Echo(Task):
    """A task whose model is one float32 tensor of `parameters` zeros."""

    parameters: Annotated[int, Field(gt=0)]
    """Length of the vector."""

    def open(self, population: int, seed: int) -> OpenEcho:
        return OpenEcho(self.parameters, population)


class OpenEcho(OpenTask):
    def __init__(self, parameters: int, population: int) -> None:
        self.examples = [1] * population
        self._parameters = parameters

    def client(self, index: int) -> Examples:
        return Examples(np.zeros((1, 1), np.float32), np.zeros(1, np.float32))

    def test(self) -> Examples:
        return self.client(0)

    def module(self) -> nn.Module:
        import torch
        from torch import nn

        class Blank(nn.Module):
            def __init__(self, parameters: int) -> None:
                super().__init__()
                self.vector = nn.Parameter(torch.zeros(parameters))

            def forward(self, x: Tensor) -> Tensor:
                return self.vector[:1].expand(len(x))

        return Blank(self._parameters)

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        return ((outputs - y) ** 2).mean()
