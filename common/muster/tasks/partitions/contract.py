"""Partitions: which device holds which examples.

A partition is a function of the labels, the number of clients and the seed. Every device computes
the same partition and takes its share, so no data are transferred. No example goes to two clients,
and unless a partition says otherwise every example goes to a client. Labels are those of the data
set, even if `task.labels` renumbers them.
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Annotated, NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic import Field

from muster.common.errors import ConfigError
from muster.common.plugins import Plugin
from muster.tasks.task import held_out

Indices = npt.NDArray[np.int64]
Labels = list[Annotated[int, Field(ge=0, le=1_000_000)]]
"""Labels as a setting."""


class Share(NamedTuple):
    """The examples of a client, as ascending indices; no example is in both."""

    training: Indices
    validation: Indices


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

    def shares(
        self,
        labels: npt.NDArray[np.int64],
        users: npt.NDArray[np.int64] | None,
        units: npt.NDArray[np.int64] | None,
        clients: int,
        seed: int,
        validation_ratio: float,
    ) -> list[Share]:
        """Return each client's examples for training and for validation.

        Unless a partition says otherwise, validation examples are drawn from the client's examples.

        Args:
            labels, users: as in `split_of`.
            units: shape (examples,), the unit of each example, if the examples of a unit must stay
                together.
            validation_ratio: share of a client's examples for validation, 0 ≤ ratio < 1.

        Raises:
            ConfigError: the examples cannot be partitioned like this.
        """
        shares = []
        for index, held in enumerate(self.split_of(labels, users, clients, seed)):
            which = len(held) if units is None else units[held]
            rows, out = held_out(which, validation_ratio, seed, index)
            shares.append(Share(held[rows], held[out]))
        return shares


def once_each(labels: Sequence[int]) -> None:
    """Raise ValueError if a label is named twice."""
    if twice := sorted({label for label in labels if labels.count(label) > 1}):
        raise ValueError(f"expected each label once, found {twice[0]} twice")


def require_examples(examples: int, clients: int, minimum: int) -> None:
    """Raise ConfigError unless there are `minimum` examples at least for each client."""
    if clients < 1:
        raise ConfigError(f"a partition needs at least one client, found {clients}")
    if examples < clients * minimum:
        raise ConfigError(
            f"task.partition: {clients} clients with at least {minimum} of the training examples "
            f"each need {clients * minimum}, found {examples}; take fewer clients"
        )
