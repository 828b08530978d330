"""Runs a program that dies with the process that started it.

    python -m muster.common.child MODULE ARGUMENT...

runs MODULE as `python -m MODULE ARGUMENT...` would. Before that it asks the kernel to kill this
process when its parent is gone, because the program's own imports may take seconds, and a parent
that dies meanwhile must not leave an orphan. `muster.common.processes.child_command` makes this
command.
"""

import runpy
import sys

from muster.common.processes import die_with_parent


def main() -> None:
    """Run the module that the command line names."""
    die_with_parent()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
