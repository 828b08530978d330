"""Runs a pack in a process that is not forked: it imports torch and reads its data by itself.

Packs that train on a GPU start like this, because CUDA does not survive a fork. With
`launch.start = "spawn"` all packs do. The configuration (`PackProcess`) comes as a line of JSON on
standard input.
"""

import logging
import signal
import sys

import muster.client.processes.early_imports  # noqa: F401
from muster.client.processes import program
from muster.client.processes.config import PackProcess
from muster.common.environment import settle_environment
from muster.common.errors import MusterError
from muster.tasks.opening import open_task


def main() -> int:
    """Run the pack; return the exit status."""
    # A Ctrl-C at the terminal reaches the whole process group. The supervisor decides what to do.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s"
    )
    config = PackProcess.from_json(sys.stdin.readline())
    settle_environment()  # also in a container, before CUDA reads its variables
    import torch

    torch.set_num_threads(1)
    torch.set_num_interop_threads(1)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.allow_tf32 = False  # 10 bits of mantissa would not agree with the CPU
    try:
        task = open_task(config.task, config.population, config.seed)
        program.main(config, task)
    except MusterError as error:
        logging.getLogger("muster.client").error("%s", error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
