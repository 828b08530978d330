"""The work that every simulator does, by the environment variable BENCH_WORK, and what its script
prints.

lr-mnist is LR-MNIST as FLUTE's README states it. https://github.com/microsoft/msrflute has the
numbers under "Benchmarking". It does not say how MNIST is divided; here each client has 60
examples, drawn at random without replacement. cnn-cifar10 is a CNN on the subset of CIFAR-10 that
muster knows, in the same way. Only numpy and torch are imported, because every environment has
them.
"""

import json
import os
import sys
import time
from functools import cache
from importlib.metadata import version
from typing import NamedTuple

import numpy as np
import torch


class Work(NamedTuple):
    """What is trained, and how."""

    clients: int
    rounds: int
    batch_size: int
    learning_rate: float
    test_every: int


WORKS = {"lr-mnist": Work(1000, 100, 10, 0.03, 20), "cnn-cifar10": Work(100, 20, 20, 0.05, 10)}
WORK = os.environ.get("BENCH_WORK", "lr-mnist")
CLIENTS, ROUNDS, BATCH_SIZE, LEARNING_RATE, TEST_EVERY = WORKS[WORK]
PER_ROUND, EPOCHS, LABELS, SEED = 10, 1, 10, 1
CHANNELS, HIDDEN = 16, 128
"""The sizes of the CNN of McMahan et al. (AISTATS 2017) that cnn-cifar10 trains."""

torch.set_num_threads(1)


class Data:
    """The arrays of the file that `prepare.py` wrote, whose path is the script's argument. A
    client's pixels become float32 when they are asked for.

    Attributes:
        ends: client c has the examples from ends[c] to ends[c + 1], in the order of `everything`.
    """

    def __init__(self, path: str | None = None) -> None:
        with np.load(path or sys.argv[1]) as arrays:
            self._x, self._y, user = arrays["x"], arrays["y"], arrays["user"]
            self._test = arrays["test_x"], arrays["test_y"]
        order = np.argsort(user, kind="stable")
        self._x, self._y = self._x[order], self._y[order]
        self.ends = np.searchsorted(user[order], np.arange(CLIENTS + 1))

    def client(self, number: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The examples of a client, numbered from 0."""
        own = slice(self.ends[number], self.ends[number + 1])
        return pixels(self._x[own]), torch.from_numpy(self._y[own])

    def everything(self) -> tuple[torch.Tensor, torch.Tensor]:
        """The examples of all clients, for simulators that want one data set."""
        return pixels(self._x), torch.from_numpy(self._y)

    def test(self) -> tuple[torch.Tensor, torch.Tensor]:
        return pixels(self._test[0]), torch.from_numpy(self._test[1])


@cache
def shared() -> Data:
    """The data, read once, for simulators that run a file of ours for every client."""
    return Data()


def pixels(x: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(x).float() / 255


def model() -> torch.nn.Module:
    """The same initial parameters in every system."""
    torch.manual_seed(SEED)
    if WORK == "lr-mnist":
        return torch.nn.Linear(28 * 28, LABELS)
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, CHANNELS, 5, padding=2),
        torch.nn.MaxPool2d(2),
        torch.nn.ReLU(),
        torch.nn.Conv2d(CHANNELS, 2 * CHANNELS, 5, padding=2),
        torch.nn.MaxPool2d(2),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(2 * CHANNELS * 8 * 8, HIDDEN),
        torch.nn.ReLU(),
        torch.nn.Linear(HIDDEN, LABELS),
    )


def train(network: torch.nn.Module, x: torch.Tensor, y: torch.Tensor) -> float:
    """One client's share of a round; returns the loss of its last minibatch."""
    optimizer = torch.optim.SGD(network.parameters(), lr=LEARNING_RATE)
    loss = torch.zeros(())
    for _ in range(EPOCHS):
        for batch in torch.split(torch.randperm(len(y)), BATCH_SIZE):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(network(x[batch]), y[batch])
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    return float(loss.detach())


def accuracy(network: torch.nn.Module, x: torch.Tensor, y: torch.Tensor) -> float:
    with torch.no_grad():
        return float((network(x).argmax(1) == y).float().mean())


def outcome(system: str, seconds: float, rounds: int, accuracy: float, updates: int) -> None:
    """Print what a simulator did as the line of JSON that `run_simulators.py` reads.

    Args:
        seconds: those of the rounds, without imports and reading data.
        updates: how many updates of clients were averaged.
    """
    measured = {"seconds": seconds, "rounds": rounds, "accuracy": accuracy, "updates": updates}
    print(json.dumps({"system": system, **measured}), flush=True)


def named(package: str, what: str = "") -> str:
    """A package with its version, for `outcome`."""
    return f"{package} {version(package)}" + (f", {what}" if what else "")


class Stopwatch:
    """The seconds since it was made or started again."""

    def __init__(self) -> None:
        self.start()

    def start(self) -> None:
        self._began = time.perf_counter()

    def seconds(self) -> float:
        return time.perf_counter() - self._began
