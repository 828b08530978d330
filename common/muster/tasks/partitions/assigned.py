"""A partition by labels that the scenario assigns."""

from typing import Self

import numpy as np
import numpy.typing as npt
from pydantic import field_validator, model_validator

from muster.common.bounds import ExampleCount
from muster.common.errors import ConfigError
from muster.common.seeds import stream
from muster.tasks.partitions.contract import Indices, Labels, Partition, once_each


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
