"""The work with fluke, whose clients train one after the other in one process."""

import torchvision_for_processors  # noqa: F401  (first: fluke imports torchvision)
from fluke import DDict, FlukeENV
from fluke.algorithms.fedavg import FedAVG
from fluke.data import DataSplitter, DummyDataContainer, FastDataLoader
from fluke.evaluation import ClassificationEval
from torchmetrics import Accuracy
from work import (
    BATCH_SIZE,
    CLIENTS,
    EPOCHS,
    LABELS,
    LEARNING_RATE,
    PER_ROUND,
    ROUNDS,
    SEED,
    TEST_EVERY,
    Data,
    Stopwatch,
    accuracy,
    model,
    named,
    outcome,
)


def main() -> None:
    data = Data()
    test = data.test()
    around = FlukeENV()
    around.set_seed(SEED)
    around.set_device("cpu")
    # Its default evaluation has seven metrics, of which the work wants one.
    around.set_evaluator(
        ClassificationEval(
            TEST_EVERY, LABELS, accuracy=Accuracy(task="multiclass", num_classes=LABELS)
        )
    )
    around.set_eval_cfg(pre_fit=False, post_fit=False, locals=False, server=True)
    clients = [
        FastDataLoader(*data.client(number), num_labels=LABELS, batch_size=BATCH_SIZE, shuffle=True)
        for number in range(CLIENTS)
    ]
    container = DummyDataContainer(
        clients,
        [None] * CLIENTS,
        FastDataLoader(*test, num_labels=LABELS, batch_size=len(test[1])),
        LABELS,
    )
    network = model()
    training = DDict(
        batch_size=BATCH_SIZE,
        local_epochs=EPOCHS,
        loss="CrossEntropyLoss",
        optimizer=DDict(name="SGD", lr=LEARNING_RATE),
        scheduler=DDict(name="StepLR", gamma=1, step_size=1),
        persistency=False,  # clients of this work remember nothing
    )
    algorithm = FedAVG(
        n_clients=CLIENTS,
        data_splitter=DataSplitter(container),
        hyper_params=DDict(client=training, server=DDict(weighted=True), model=network),
    )
    watch = Stopwatch()
    algorithm.run(n_rounds=ROUNDS, eligible_perc=PER_ROUND / CLIENTS)
    seconds = watch.seconds()
    found = accuracy(algorithm.server.model, *test)
    outcome(named("fluke-fl"), seconds, ROUNDS, found, ROUNDS * PER_ROUND)


if __name__ == "__main__":
    main()
