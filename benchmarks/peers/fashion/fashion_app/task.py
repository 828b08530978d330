"""The networks, the data of a node, and training and testing."""

from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def make_network(name: str) -> nn.Module:
    """Return an untrained network for pictures of 28×28 pixels in ten classes."""
    if name == "mlp":
        return nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))
    if name == "cnn":
        return nn.Sequential(
            *(nn.Conv2d(1, 6, 5), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Flatten(), nn.Linear(256, 120), nn.ReLU()),
            *(nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10)),
        )
    raise ValueError(f"network is {name!r}, expected mlp or cnn")


def load_data(folder: str, name: str) -> TensorDataset:
    """Return the examples in NAME.npz: pictures `x`, uint8, and labels `y`."""
    with np.load(Path(folder) / f"{name}.npz") as file:
        x = torch.from_numpy(file["x"]).unsqueeze(1).float() / 255
        return TensorDataset(x, torch.from_numpy(file["y"]))


def train(
    network: nn.Module, data: TensorDataset, epochs: int, batch_size: int, rate: float
) -> float:
    """Train for some epochs; return the mean loss."""
    optimizer = torch.optim.SGD(network.parameters(), lr=rate, momentum=0.9)
    network.train()
    losses = []
    for _ in range(epochs):
        for x, y in DataLoader(data, batch_size=batch_size, shuffle=True):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(network(x), y)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            losses.append(loss.item())
    return sum(losses) / len(losses)


def test(network: nn.Module, data: TensorDataset) -> float:
    """Return the accuracy."""
    network.eval()
    x, y = data.tensors
    with torch.no_grad():
        return float((network(x).argmax(1) == y).float().mean())
