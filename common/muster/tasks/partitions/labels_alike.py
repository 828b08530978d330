"""Partitions in which, up to chance, every client has the labels of the whole data set."""

from typing import Annotated

import numpy as np
import numpy.typing as npt
from pydantic import Field

from muster.common.bounds import ExampleCount
from muster.common.seeds import stream
from muster.tasks.partitions.contract import Indices, Partition, require_examples


class Iid(Partition):
    """Examples are shuffled and divided evenly: sizes differ by one at most."""

    def split(self, labels: npt.NDArray[np.int64], clients: int, seed: int) -> list[Indices]:
        require_examples(len(labels), clients, 1)
        order = stream(seed, "partition", "iid").permutation(len(labels))
        return [np.sort(share) for share in np.array_split(order, clients)]


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
        require_examples(len(labels), clients, self.minimum)
        random = stream(seed, "partition", "quantity")
        shares = random.dirichlet(np.full(clients, self.alpha))
        rest = len(labels) - clients * self.minimum
        cuts = np.rint(np.cumsum(shares) * rest).astype(np.int64)
        ends = np.minimum(cuts, rest) + self.minimum * np.arange(1, clients + 1)
        order = random.permutation(len(labels))
        return [np.sort(share) for share in np.split(order, ends[:-1])]
