"""The model, the data of a node, and the training of the app."""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    """A small network with batch normalisation, whose counter is not floating point."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 10)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


def load_data(partition_id: int, num_partitions: int) -> tuple[TensorDataset, TensorDataset]:
    """The examples of a node: every n-th of the digits. A fifth is for evaluation."""
    digits = load_digits()
    x = torch.tensor(digits.data[partition_id::num_partitions] / 16, dtype=torch.float32)
    y = torch.tensor(digits.target[partition_id::num_partitions])
    held_out = len(x) // 5
    return TensorDataset(x[held_out:], y[held_out:]), TensorDataset(x[:held_out], y[:held_out])


def train(net: Net, data: TensorDataset, epochs: int, rate: float) -> float:
    """Train for some epochs; return the mean loss."""
    optimizer = torch.optim.SGD(net.parameters(), lr=rate, momentum=0.9)
    net.train()
    losses = []
    for _ in range(epochs):
        for x, y in DataLoader(data, batch_size=16, shuffle=True, drop_last=True):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return sum(losses) / len(losses)


def test(net: Net, data: TensorDataset) -> tuple[float, float]:
    """Return the mean loss and the accuracy."""
    net.eval()
    x, y = data.tensors
    with torch.no_grad():
        outputs = net(x)
    loss = nn.functional.cross_entropy(outputs, y).item()
    return loss, (outputs.argmax(1) == y).float().mean().item()
