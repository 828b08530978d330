"""Models with more than trained parameters, which the scenarios of this folder name."""

from collections import OrderedDict

import torch
from torch import Tensor, nn


def batch_norm(inputs: tuple[int, ...], outputs: int, *, width: int = 16) -> nn.Module:
    """A convolution network with batch normalisation. Its running statistics are part of the model:
    forward passes change them on the devices, and the server takes their weighted mean.

    Args:
        inputs: height and width of a picture.
    """
    return nn.Sequential(
        nn.Unflatten(1, (1, inputs[0])),
        nn.Conv2d(1, width, 3, padding=1),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(width * (inputs[0] // 2) * (inputs[1] // 2), outputs),
    )


class Adapted(nn.Module):
    """A frozen linear layer with an adapter of low rank: W x + B A x (Hu et al., LoRA, 2021)."""

    def __init__(self, layer: nn.Linear, rank: int) -> None:
        super().__init__()
        self.layer = layer.requires_grad_(False)
        self.down = nn.Parameter(torch.randn(rank, layer.in_features) / rank)
        self.up = nn.Parameter(torch.zeros(layer.out_features, rank))

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(self.layer(x) + x @ self.down.T @ self.up.T)


def adapters(
    inputs: tuple[int, ...], outputs: int, *, width: int = 3000, rank: int = 8
) -> nn.Module:
    """A perceptron of about ten million frozen parameters with adapters, which alone travel."""
    size = inputs[0] * inputs[1]
    return nn.Sequential(
        nn.Flatten(),
        Adapted(nn.Linear(size, width), rank),
        nn.ReLU(),
        Adapted(nn.Linear(width, width), rank),
        nn.ReLU(),
        nn.Linear(width, outputs),
    )


def with_head(inputs: tuple[int, ...], outputs: int, *, width: int = 32) -> nn.Module:
    """A perceptron whose parts have names: a body, batch normalisation, and a head.

    Args:
        inputs: height and width of a picture.
    """
    layers = OrderedDict[str, nn.Module](
        flatten=nn.Flatten(),
        body=nn.Linear(inputs[0] * inputs[1], width),
        norm=nn.BatchNorm1d(width),
        activation=nn.ReLU(),
        head=nn.Linear(width, outputs),
    )
    return nn.Sequential(layers)
