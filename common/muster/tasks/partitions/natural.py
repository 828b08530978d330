"""A partition by the users of a data set."""

import numpy as np
import numpy.typing as npt

from muster.common.errors import ConfigError
from muster.common.seeds import stream
from muster.tasks.partitions.contract import Indices, Partition, require_examples


class Natural(Partition):
    """Each client is one of the data set's users, with the examples of that user.

    If there are fewer clients than users, users are drawn at random, and the examples of the others
    are left out. The run warns of them when it starts, and so does `muster plan` for data of your
    own.
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
                "shakespeare, or own with task.source.user"
            )
        require_examples(len(labels), clients, 1)
        there = np.unique(users)
        if clients > len(there):
            raise ConfigError(
                f"task.partition: natural gives each client a user of the data set; expected at "
                f"most {len(there)} clients, the users that there are, found {clients}"
            )
        chosen = np.sort(stream(seed, "partition", "natural").permutation(there)[:clients])
        return [np.flatnonzero(users == user) for user in chosen]
