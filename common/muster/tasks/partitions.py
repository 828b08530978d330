"""Partitions: which device holds which examples.

A partition is a function of the labels, the number of clients and the seed. Every device computes
the same partition and takes its share, so no data are transferred. No example goes to two clients,
and unless a partition says otherwise every example goes to a client. Labels are those of the data
set, even if `task.labels` renumbers them.
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Annotated, Self

import numpy as np
import numpy.typing as npt
from pydantic import (
    BeforeValidator,
    Field,
    SerializeAsAny,
    field_validator,
    model_validator,
)

from muster.common.bounds import Count, ExampleCount
from muster.common.errors import ConfigError
from muster.common.plugins import Plugin, Registry
from muster.common.seeds import stream

Indices = npt.NDArray[np.int64]
Labels = list[Annotated[int, Field(ge=0, le=1_000_000)]]
"""Labels as a setting."""


class Partition(Plugin):
    """A partition of labelled examples among clients."""

    @abstractmethod
    def split(self, labels: npt.NDArray[np.int64], clients: int, seed: int) -> list[Indices]:
        """Return the indices of each client's examples, ascending.

        Args:
            labels: shape (examples,).

        Raises:
            ConfigError: the examples cannot be partitioned like this.
        """

    def split_of(
        self,
        labels: npt.NDArray[np.int64],
        users: npt.NDArray[np.int64] | None,
        clients: int,
        seed: int,
    ) -> list[Indices]:
        """Return the indices of each client's examples, for partitions that may depend on users.

        Args:
            labels: shape (examples,).
            users: shape (examples,), the user of each example, from 0; None if the data have no
                users.

        Raises:
            ConfigError: the examples cannot be partitioned like this.
        """
        return self.split(labels, clients, seed)


class Iid(Partition):
    """Examples are shuffled and divided evenly: sizes differ by one at most."""

    def split(self, labels: npt.NDArray[np.int64], clients: int, seed: int) -> list[Indices]:
        _require(len(labels), clients, 1)
        order = stream(seed, "partition", "iid").permutation(len(labels))
        return [np.sort(share) for share in np.array_split(order, clients)]


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
        _require(len(labels), clients, self.minimum)
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


class Assigned(Partition):
    """Each client holds its assigned labels; the clients of a label share its examples evenly.

    With `labels = [[0], [0], [1, 2]]` the first two clients divide the examples of label 0, and the
    third has all examples of 1 and 2. Labels that are assigned to no client are left out.
    """

    labels: list[Labels]
    """The labels of each device, as numbered in the data set, in the order of the population."""

    examples_per_client: ExampleCount | None = None
    """Number of examples of each client, divided evenly among its labels; if they do not divide
    evenly, the labels named first have one more. Absent: all examples are given out."""

    @field_validator("labels")
    @classmethod
    def _assigns(cls, labels: list[Labels]) -> list[Labels]:
        for client, assigned in enumerate(labels):
            if not assigned:
                raise ValueError(f"device {client}: expected a label at least, found none")
            try:
                once_each(assigned)
            except ValueError as error:
                raise ValueError(f"device {client}: {error}") from None
        return labels

    @model_validator(mode="after")
    def _reaches(self) -> Self:
        most = max(map(len, self.labels), default=0)
        if self.examples_per_client is not None and self.examples_per_client < most:
            raise ValueError(
                f"examples_per_client: expected one at least of each of {most} labels, found "
                f"{self.examples_per_client}"
            )
        return self

    def split(self, labels: npt.NDArray[np.int64], clients: int, seed: int) -> list[Indices]:
        if len(self.labels) != clients:
            raise ConfigError(
                f"task.partition.labels: expected a list of labels for each of the {clients} "
                f"devices, found {len(self.labels)}"
            )
        shares: list[list[Indices]] = [[] for _ in range(clients)]
        for label in sorted({label for assigned in self.labels for label in assigned}):
            examples = np.flatnonzero(labels == label)
            if not len(examples):
                there = ", ".join(map(str, np.unique(labels)))
                raise ConfigError(
                    f"task.partition.labels: label {label} has no examples; there are: {there}"
                )
            random = stream(seed, "partition", "assigned", label)
            sizes = self._sizes(label, len(examples))
            given = np.split(random.permutation(examples), np.cumsum(list(sizes.values())))
            for client, share in zip(sizes, given, strict=False):  # the last piece is left over
                shares[client].append(share)
        return [np.sort(np.concatenate(share)) for share in shares]

    def _sizes(self, label: int, examples: int) -> dict[int, int]:
        """Number of examples of a label for each client that holds it."""
        holders = [client for client, assigned in enumerate(self.labels) if label in assigned]
        if self.examples_per_client is None:
            each, more = divmod(examples, len(holders))
            sizes = {client: each + (place < more) for place, client in enumerate(holders)}
        else:
            sizes = {}
            for client in holders:
                assigned = self.labels[client]
                each, more = divmod(self.examples_per_client, len(assigned))
                sizes[client] = each + (assigned.index(label) < more)
        if (needed := max(sum(sizes.values()), len(holders))) > examples:
            raise ConfigError(
                f"task.partition: label {label} has {examples} examples, and {len(holders)} "
                f"clients need {needed}; expected fewer clients with it, or fewer "
                "examples_per_client"
            )
        return sizes


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
        _require(len(labels), clients, each)
        shards = np.array_split(np.argsort(labels, kind="stable"), clients * each)
        order = stream(seed, "partition", "shards").permutation(len(shards)).reshape(clients, each)
        return [np.sort(np.concatenate([shards[number] for number in dealt])) for dealt in order]


class QuantitySkew(Partition):
    """Clients hold different numbers of examples, drawn from a symmetric Dirichlet law.

    Up to chance, each client has the labels of the whole data set. With a small alpha few clients
    hold nearly everything; with a large alpha sizes are equal. This is the quantity skew of Li et
    al., Federated Learning on Non-IID Data Silos: An Experimental Study, ICDE 2022, section IV.C,
    whose alpha is 0.5.
    """

    alpha: Annotated[float, Field(ge=1e-6, le=1e6)] = 0.5
    """Concentration of the sizes."""

    minimum: ExampleCount = 1
    """Fewest examples of a client; the Dirichlet law divides the other examples."""

    def split(self, labels: npt.NDArray[np.int64], clients: int, seed: int) -> list[Indices]:
        _require(len(labels), clients, self.minimum)
        random = stream(seed, "partition", "quantity")
        shares = random.dirichlet(np.full(clients, self.alpha))
        rest = len(labels) - clients * self.minimum
        cuts = np.rint(np.cumsum(shares) * rest).astype(np.int64)
        ends = np.minimum(cuts, rest) + self.minimum * np.arange(1, clients + 1)
        order = random.permutation(len(labels))
        return [np.sort(share) for share in np.split(order, ends[:-1])]


class Natural(Partition):
    """Each client is one of the data set's users, with the examples of that user.

    If there are fewer clients than users, users are drawn at random, and the examples of the others
    are left out.
    """

    def split(self, labels: npt.NDArray[np.int64], clients: int, seed: int) -> list[Indices]:
        return self.split_of(labels, None, clients, seed)

    def split_of(
        self,
        labels: npt.NDArray[np.int64],
        users: npt.NDArray[np.int64] | None,
        clients: int,
        seed: int,
    ) -> list[Indices]:
        if users is None:
            raise ConfigError(
                "task.partition: natural gives each client the examples of a user, and these data "
                "have no users; expected another partition, or a task with users: uci-har, "
                "shakespeare"
            )
        _require(len(labels), clients, 1)
        there = np.unique(users)
        if clients > len(there):
            raise ConfigError(
                f"task.partition: natural gives each client a user of the data set; expected at "
                f"most {len(there)} clients, the users that there are, found {clients}"
            )
        chosen = np.sort(stream(seed, "partition", "natural").permutation(there)[:clients])
        return [np.flatnonzero(users == user) for user in chosen]


def once_each(labels: Sequence[int]) -> None:
    """Raise ValueError if a label is named twice."""
    if twice := sorted({label for label in labels if labels.count(label) > 1}):
        raise ValueError(f"expected each label once, found {twice[0]} twice")


def _require(examples: int, clients: int, minimum: int) -> None:
    if clients < 1:
        raise ConfigError(f"a partition needs at least one client, found {clients}")
    if examples < clients * minimum:
        raise ConfigError(
            f"task.partition: {clients} clients with at least {minimum} of the training examples "
            f"each need {clients * minimum}, found {examples}; take fewer clients"
        )


BUILT_IN: dict[str, type[Partition]] = {
    "assigned": Assigned,
    "by-label": ByLabel,
    "dirichlet": Dirichlet,
    "iid": Iid,
    "natural": Natural,
    "quantity": QuantitySkew,
    "shards": Shards,
}
PARTITIONS = Registry("partition", "muster.partitions", BUILT_IN)
AnyPartition = Annotated[SerializeAsAny[Partition], BeforeValidator(PARTITIONS.parse)]
"""A partition as a setting."""
