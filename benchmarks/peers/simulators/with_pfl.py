"""The work with pfl's simulation in one process."""

from typing import Any

import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.central_evaluation import CentralEvaluationCallback
from pfl.data import FederatedDataset, get_user_sampler
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Weighted
from pfl.model.pytorch import PyTorchModel
from work import (
    BATCH_SIZE,
    CLIENTS,
    EPOCHS,
    LEARNING_RATE,
    PER_ROUND,
    ROUNDS,
    TEST_EVERY,
    Data,
    Stopwatch,
    accuracy,
    model,
    named,
    outcome,
)


class Network(torch.nn.Module):
    """The model with the loss and the metrics that pfl asks of it."""

    def __init__(self) -> None:
        super().__init__()
        self.network = model()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.network(x)
        return scores

    def loss(self, x: torch.Tensor, y: torch.Tensor, eval: bool = False) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(self(x), y)

    @torch.no_grad()
    def metrics(self, x: torch.Tensor, y: torch.Tensor, eval: bool = False) -> dict[str, Any]:
        return {"accuracy": Weighted(int((self(x).argmax(1) == y).sum()), len(y))}


def main() -> None:
    data = Data()
    test = data.test()
    network = Network()
    trained: list[int] = []

    def client(number: int) -> PyTorchTensorDataset:
        trained.append(number)
        return PyTorchTensorDataset(data.client(number), train_kwargs={}, eval_kwargs={})

    clients = FederatedDataset(client, get_user_sampler("random", range(CLIENTS)))
    watch = Stopwatch()
    FederatedAveraging().run(
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=ROUNDS,
            evaluation_frequency=TEST_EVERY,
            train_cohort_size=PER_ROUND,
            val_cohort_size=0,
        ),
        backend=SimulatedBackend(training_data=clients, val_data=clients),
        model=PyTorchModel(
            model=network,
            local_optimizer_create=torch.optim.SGD,
            central_optimizer=torch.optim.SGD(network.parameters(), lr=1.0),
        ),
        model_train_params=NNTrainHyperParams(
            local_learning_rate=LEARNING_RATE,
            local_num_epochs=EPOCHS,
            local_batch_size=BATCH_SIZE,
        ),
        model_eval_params=None,
        callbacks=[
            CentralEvaluationCallback(
                PyTorchTensorDataset(test),
                NNEvalHyperParams(local_batch_size=None),
                frequency=TEST_EVERY,
            )
        ],
    )
    seconds = watch.seconds()
    outcome(named("pfl"), seconds, ROUNDS, accuracy(network, *test), len(trained))


if __name__ == "__main__":
    main()
