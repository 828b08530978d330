"""What APPFL loads by path: the data of a client and of the server, the model, and the metric."""

from typing import Any

import torch
from torch.utils.data import TensorDataset
from work import model, shared

__all__ = ["accuracy", "model", "of_client", "of_server"]


def of_client(number: int) -> tuple[TensorDataset, None]:
    return TensorDataset(*shared().client(number)), None


def of_server() -> TensorDataset:
    return TensorDataset(*shared().test())


def accuracy(true: Any, predicted: Any) -> float:
    return float((torch.as_tensor(predicted).argmax(1) == torch.as_tensor(true)).float().mean())
