"""A partition into groups of clients that have no label in common."""

from typing import Annotated

import numpy as np
import numpy.typing as npt
from pydantic import Field

from muster.common.bounds import Count, ExampleCount
from muster.common.errors import ConfigError
from muster.common.seeds import FloatArray, stream
from muster.tasks.partitions.contract import Indices, Partition, Share


class ClassGroups(Partition):
    """Labels are cut into groups, each for some of the clients. A client has the labels of its
    group, in proportions of its own, and in other proportions for validation.

    Both proportions are drawn from Dirichlet distributions. All clients have equally many examples.
    If the clients of a group want more examples of a label than there are, they share these in
    proportion to what they want, and get examples of the group's other labels for the rest. Labels
    and clients are cut into groups in their order, as evenly as possible.

    Yashwanth et al., Federated Learning by Utility-Constrained Stochastic Aggregation for Improving
    Rational Participation, 2026, appendix A.5 (https://arxiv.org/abs/2605.18020), names 0.5 and 1.0
    for the two distributions, and not the groups. With two groups of five labels and of five
    clients, clients can learn alone and also gain from others.
    """

    groups: Count = 2
    """Number of groups."""

    alpha: Annotated[float, Field(ge=1e-6, le=1e6)] = 0.5
    """Concentration of the proportions of a client's training examples."""

    validation_alpha: Annotated[float, Field(ge=1e-6, le=1e6)] = 1.0
    """Concentration of the proportions of its validation examples, whose number is the share
    `task.validation_ratio` of all its examples."""

    examples_per_client: ExampleCount | None = None
    """Number of examples of each client, with those for validation; other examples are left out.
    Absent: as many as all clients can have."""

    def split(self, labels: npt.NDArray[np.int64], clients: int, seed: int) -> list[Indices]:
        return [share.training for share in self.shares(labels, None, None, clients, seed, 0.0)]

    def shares(
        self,
        labels: npt.NDArray[np.int64],
        users: npt.NDArray[np.int64] | None,
        units: npt.NDArray[np.int64] | None,
        clients: int,
        seed: int,
        validation_ratio: float,
    ) -> list[Share]:
        if units is not None:
            raise ConfigError(
                "task.partition: class-groups draws examples for training and validation one by "
                "one, and these data are in pieces that overlap; expected another partition"
            )
        values = np.unique(labels)
        if self.groups > min(clients, len(values)):
            raise ConfigError(
                f"task.partition.groups: expected at most {min(clients, len(values))}, so that "
                f"each group has a label and a client, found {self.groups}; there are "
                f"{len(values)} labels and {clients} clients"
            )
        grouped = np.array_split(values, self.groups)
        members = [len(part) for part in np.array_split(np.arange(clients), self.groups)]
        size = self._size(labels, grouped, members)
        held = min(round(validation_ratio * size), size - 1)
        shares: list[Share] = []
        for number, (group, count) in enumerate(zip(grouped, members, strict=True)):
            draws = stream(seed, "partition", "class-groups", number)
            pools = [draws.permutation(np.flatnonzero(labels == value)) for value in group]
            alphas = (self.alpha, self.validation_alpha) * count
            proportions = np.array([draws.dirichlet(np.full(len(group), a)) for a in alphas])
            sizes = np.array([size - held, held] * count)
            counts = dealt(proportions, sizes, np.array([len(pool) for pool in pools]))
            taken = _taken(pools, counts)
            shares += [Share(*pair) for pair in zip(taken[::2], taken[1::2], strict=True)]
        return shares

    def _size(
        self, labels: npt.NDArray[np.int64], grouped: list[Indices], members: list[int]
    ) -> int:
        """The number of examples of each client."""
        there = [int(np.isin(labels, group).sum()) for group in grouped]
        most = min(examples // count for examples, count in zip(there, members, strict=True))
        wanted = self.examples_per_client
        if most < 1 or (wanted is not None and wanted > most):
            raise ConfigError(
                f"task.partition: {sum(members)} clients in {self.groups} groups can have at most "
                f"{most} training examples each, found {wanted or 1}; take fewer clients or fewer "
                "examples_per_client"
            )
        return most if wanted is None else wanted


def dealt(proportions: FloatArray, sizes: Indices, supply: Indices) -> Indices:
    """How many examples of each label are dealt to each hand, shape (hands, labels).

    Args:
        proportions: the labels that each hand wants, shape (hands, labels); rows have the sum 1.
        sizes: the number of examples of each hand, shape (hands,).
        supply: the number of examples of each label, shape (labels,); there are enough in all.
    """
    counts = np.array([_apportioned(*hand) for hand in zip(proportions, sizes, strict=True)])
    for label, there in enumerate(supply):
        if counts[:, label].sum() > there:
            counts[:, label] = _apportioned(counts[:, label], there)
    for hand, size in enumerate(sizes):
        if missing := size - counts[hand].sum():
            counts[hand] += _apportioned(supply - counts.sum(axis=0), missing)
    return counts


def _apportioned(weights: npt.NDArray[np.float64 | np.int64], total: int) -> Indices:
    """Divide a total by weights into whole numbers, by the largest remainders."""
    exact = total * weights / weights.sum()
    counts: Indices = np.floor(exact).astype(np.int64)
    largest = np.argsort(counts - exact, kind="stable")
    counts[largest[: total - counts.sum()]] += 1
    return counts


def _taken(pools: list[Indices], counts: Indices) -> list[Indices]:
    """The examples of each hand, ascending; the first hand takes from the beginning of a pool."""
    pieces = [
        np.split(pool, np.cumsum(numbers))[:-1]
        for pool, numbers in zip(pools, counts.T, strict=True)
    ]
    return [np.sort(np.concatenate(hand)) for hand in zip(*pieces, strict=True)]
