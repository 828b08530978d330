"""Write the examples of the work, from MUSTER_DATA, with a client for each, for all simulators.

python benchmarks/peers/simulators/prepare.py FILE.npz
"""

import sys
from pathlib import Path

import numpy as np
from work import CLIENTS, SEED, WORK

from muster.common.errors import ConfigError
from muster.tasks.datasets import cifar10, idx
from muster.tasks.files import directory_of


def main() -> int:
    if len(sys.argv) != 2 or not sys.argv[1].endswith(".npz"):
        print(__doc__, file=sys.stderr)
        return 2
    try:
        shape: tuple[int, ...] = (-1,)
        if WORK == "lr-mnist":
            data = idx("mnist", directory_of("mnist", None))
        else:
            data, shape = cifar10(directory_of("cifar10", None)), (3, 32, 32)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 1
    order = np.random.default_rng(SEED).permutation(len(data.train_y))
    user = np.empty(len(order), np.int64)
    for client, share in enumerate(np.array_split(order, CLIENTS)):
        user[share] = client
    np.savez(
        Path(sys.argv[1]),
        x=data.train_x.reshape(len(data.train_x), *shape),
        y=data.train_y,
        user=user,
        test_x=data.test_x.reshape(len(data.test_x), *shape),
        test_y=data.test_y,
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
