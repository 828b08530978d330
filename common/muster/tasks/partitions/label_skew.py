"""Partitions in which clients hold different labels."""

from typing import Annotated

import numpy as np
import numpy.typing as npt
from pydantic import Field

from muster.common.bounds import Count, ExampleCount
from muster.common.errors import ConfigError
from muster.common.seeds import stream
from muster.tasks.partitions.contract import Indices, Partition, require_examples


class Dirichlet(Partition):
    """Each label is divided among the clients in proportions from a symmetric Dirichlet law.

    With a small alpha few clients hold each label; with a large alpha the partition is close to
    iid. Sizes differ too. Hsu et al., Measuring the Effects of Non-Identical Data Distribution for
    Federated Visual Classification, 2019 (https://arxiv.org/abs/1909.06335), use the Dirichlet law
    to draw proportions per client, and keep sizes equal. Here proportions are drawn per label, as
    in Yurochkin et al., Bayesian Nonparametric Federated Learning of Neural Networks, ICML 2019,
    section 4.
    """

    alpha: Annotated[float, Field(ge=1e-6, le=1e6)] = 0.5
    """Concentration. Hsu et al. use 0 to 100, and most comparisons are made at 0.5."""

    minimum: ExampleCount = 1
    """Fewest examples of a client; missing ones are taken from the clients that hold most."""

    def split(self, labels: npt.NDArray[np.int64], clients: int, seed: int) -> list[Indices]:
        require_examples(len(labels), clients, self.minimum)
        random = stream(seed, "partition", "dirichlet")
        owner = np.empty(len(labels), np.int64)
        for label in np.unique(labels):
            examples = random.permutation(np.flatnonzero(labels == label))
            shares = random.dirichlet(np.full(clients, self.alpha))
            ends = np.cumsum(shares)[:-1] * len(examples)
            owner[examples] = np.searchsorted(ends, np.arange(len(examples)), side="right")
        return self._repaired(owner, clients, random)

    def _repaired(self, owner: Indices, clients: int, random: np.random.Generator) -> list[Indices]:
        held = [np.flatnonzero(owner == client).tolist() for client in range(clients)]
        sizes = np.array([len(examples) for examples in held])
        # The usual way is to draw again until no client is short, which may never end. Here the
        # largest client holds more than `minimum` as long as a client is short, so the loop ends
        # when all missing examples have been moved.
        for short in np.flatnonzero(sizes < self.minimum):
            while sizes[short] < self.minimum:
                largest = int(np.argmax(sizes))
                held[short].append(held[largest].pop(int(random.integers(sizes[largest]))))
                sizes[short] += 1
                sizes[largest] -= 1
        return [np.array(sorted(examples), np.int64) for examples in held]


class ByLabel(Partition):
    """Each client holds only a few labels; the clients of a label share its examples evenly.

    The labels have equally many clients, give or take one. The combination of labels of each client
    is random.
    """

    labels_per_client: Count = 2
    """Number of labels that each client holds."""

    def split(self, labels: npt.NDArray[np.int64], clients: int, seed: int) -> list[Indices]:
        values, counts = np.unique(labels, return_counts=True)
        each = self.labels_per_client
        if each > len(values):
            raise ConfigError(
                f"task.partition.labels_per_client: expected at most {len(values)}, the labels "
                f"that there are, found {each}"
            )
        if clients * each < len(values):
            raise ConfigError(
                f"task.partition: {clients} clients with {each} labels each cannot hold all "
                f"{len(values)} labels; expected at least {-(-len(values) // each)} clients, or "
                "more labels_per_client"
            )
        random = stream(seed, "partition", "by-label")
        holders: list[list[int]] = [[] for _ in values]
        for client in range(clients):
            # Take the labels with the fewest holders so far; draw among equals.
            many = np.array([len(who) for who in holders])
            order = np.lexsort((random.random(len(values)), many))
            for label in order[:each]:
                holders[label].append(client)
        shares: list[list[Indices]] = [[] for _ in range(clients)]
        for value, count, who in zip(values, counts, holders, strict=True):
            if count < len(who):
                raise ConfigError(
                    f"task.partition: label {value} has {count} examples for {len(who)} clients; "
                    "expected one for each; take fewer clients or fewer labels_per_client"
                )
            examples = random.permutation(np.flatnonzero(labels == value))
            for client, share in zip(who, np.array_split(examples, len(who)), strict=True):
                shares[client].append(share)
        return [np.sort(np.concatenate(share)) for share in shares]


class Shards(Partition):
    """Examples are sorted by label and cut into shards of equal size; each client gets some shards.

    McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized Data,
    AISTATS 2017, section 3: MNIST in 200 shards of 300 pictures, two for each of 100 clients. With
    two shards most clients hold two labels.
    """

    shards_per_client: ExampleCount = 2
    """Number of shards that each client gets."""

    def split(self, labels: npt.NDArray[np.int64], clients: int, seed: int) -> list[Indices]:
        each = self.shards_per_client
        require_examples(len(labels), clients, each)
        shards = np.array_split(np.argsort(labels, kind="stable"), clients * each)
        order = stream(seed, "partition", "shards").permutation(len(shards)).reshape(clients, each)
        return [np.sort(np.concatenate([shards[number] for number in dealt])) for dealt in order]
