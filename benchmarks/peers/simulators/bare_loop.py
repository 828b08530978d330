"""The work as a loop in PyTorch, without any simulator."""

import copy

import torch
from work import (
    CLIENTS,
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
    train,
)


def main() -> None:
    data = Data()
    test = data.test()
    network = model()
    drawn = torch.Generator().manual_seed(SEED)
    watch = Stopwatch()
    for number in range(1, ROUNDS + 1):
        updates = []
        for client in torch.randperm(CLIENTS, generator=drawn)[:PER_ROUND].tolist():
            own = copy.deepcopy(network)
            train(own, *data.client(client))
            updates.append(own.state_dict())
        network.load_state_dict(
            {name: sum(update[name] for update in updates) / PER_ROUND for name in updates[0]}
        )
        if number % TEST_EVERY == 0:
            found = accuracy(network, *test)
    outcome(named("torch", "a loop"), watch.seconds(), ROUNDS, found, ROUNDS * PER_ROUND)


if __name__ == "__main__":
    main()
