"""Runs several packs in one container: forks a process for each, and ends with the last of them.

The configuration (`PackContainer`) comes as a line of JSON on standard input. If a pack dies
unexpectedly, all of them end with its exit status, and the supervisor decides what to do about it.
"""

import logging
import os
import signal
import sys
from typing import TYPE_CHECKING

import muster.client.processes.early_imports  # noqa: F401
from muster.client.processes import program
from muster.client.processes.config import PackContainer, PackProcess
from muster.common.errors import MusterError
from muster.common.garbage import rarely_collect
from muster.common.processes import die_with_parent
from muster.tasks.opening import open_task
from muster.tasks.task import OpenTask

if TYPE_CHECKING:
    from torch import nn


def main() -> int:
    """Fork the packs and wait for them; return the first exit status that is not 0, or 0."""
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s"
    )
    container = PackContainer.from_json(sys.stdin.readline())
    import torch

    torch.set_num_threads(1)
    torch.set_num_interop_threads(1)
    program.warm_for_forks()
    first = container.packs[0]
    try:
        task = open_task(first.task, first.population, first.seed)
        module = task.module()
    except MusterError as error:
        logging.getLogger("muster.client").error("%s", error)
        return 1
    rarely_collect()
    parent, living = os.getpid(), set[int]()
    for pack in container.packs:
        if (pid := os.fork()) == 0:
            os._exit(_live(pack, task, module, parent))
        living.add(pid)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    while living:
        pid, status = os.wait()
        living.discard(pid)
        if status != 0:
            return max(1, os.waitstatus_to_exitcode(status))
    return 0


def _live(pack: PackProcess, task: OpenTask, module: "nn.Module", parent: int) -> int:
    die_with_parent(parent)
    try:
        program.main(pack, task, module)
    except MusterError as error:
        logging.getLogger("muster.client").error("%s: %s", pack.name, error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
