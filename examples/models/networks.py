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


class Layer(nn.Module):
    """A layer of a transformer (pre-norm), whose frozen linear layers have adapters."""

    def __init__(self, width: int, heads: int, rank: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attend = Adapted(nn.Linear(width, 3 * width), rank)
        self.joined = Adapted(nn.Linear(width, width), rank)
        self.wider = Adapted(nn.Linear(width, 4 * width), rank)
        self.narrower = Adapted(nn.Linear(4 * width, width), rank)

    def forward(self, x: Tensor) -> Tensor:
        split = self.attend(self.before(x)).unflatten(2, (3, self.heads, -1))
        query, key, value = split.permute(2, 0, 3, 1, 4)
        seen = nn.functional.scaled_dot_product_attention(query, key, value)
        x = x + self.joined(seen.transpose(1, 2).flatten(2))
        return x + torch.as_tensor(self.narrower(self.wider(self.after(x)).relu()))


class Transformer(nn.Module):
    """A transformer that reads a picture row by row. Its embedding and its layers are frozen, as if
    they had been trained elsewhere; adapters, normalisations, positions and head are trained."""

    def __init__(
        self,
        inputs: tuple[int, ...],
        outputs: int,
        *,
        width: int = 128,
        depth: int = 2,
        heads: int = 4,
        rank: int = 8,
    ) -> None:
        super().__init__()
        rows, columns = inputs
        self.embed = nn.Linear(columns, width).requires_grad_(False)
        self.places = nn.Parameter(torch.randn(rows, width) / 10)
        self.layers = nn.Sequential(*(Layer(width, heads, rank) for _ in range(depth)))
        self.head = nn.Linear(width, outputs)

    def forward(self, x: Tensor) -> Tensor:
        read = self.layers(self.embed(x) + self.places)
        return torch.as_tensor(self.head(read.mean(1)))


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
